#include "tools/prompt/prompt_check.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

std::string Refusal(const std::string& json) {
  return std::string(ParsePromptCases(json).status().message());
}

TEST(ParsePromptCases, NamesTheCaseAndTheField) {
  EXPECT_EQ(Refusal("{"), "not JSON at byte 1: want a key in quotes");
  EXPECT_EQ(Refusal("{}"), "holds neither prompts nor parses");
  EXPECT_EQ(Refusal(R"({"prompts": {}})"), "prompts: want a list");
  EXPECT_EQ(Refusal(R"({"prompts": [{}]})"), "prompts[0]: messages: want a list");
  EXPECT_EQ(Refusal(R"({"prompts": [{"messages": [{}]}]})"), "prompts[0]: message 0: has no role");
  EXPECT_EQ(Refusal(R"({"prompts": [{"messages": [], "thinking_mode": "x"}]})"),
            "prompts[0]: thinking_mode: want chat or thinking");
  EXPECT_EQ(Refusal(R"({"parses": [{"thinking_mode": "chat"}]})"),
            "parses[0]: completion: want a text");
}

TEST(CompareRendered, ShowsTheFirstDifference) {
  const auto cases = ParsePromptCases(R"({"prompts": [{"messages": [
      {"role": "user", "content": "Hello"}], "thinking_mode": "chat", "ids": [],
      "prompt": "<｜begin▁of▁sentence｜><｜User｜>Hallo<｜Assistant｜></think>"}]})");
  ASSERT_TRUE(cases.ok()) << cases.status();
  PromptCase want = cases->prompts[0];
  const Difference difference = CompareRendered(want);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->substr(0, 15), "prompt, byte 42");
  want.prompt.replace(42, 1, "e");
  EXPECT_EQ(CompareRendered(want), std::nullopt);
}

TEST(CompareParsed, SeesEveryField) {
  const auto cases = ParsePromptCases(R"({"parses": [{"thinking_mode": "thinking",
      "completion": "why</think>so\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
      "message": {"role": "assistant", "content": "so", "reasoning_content": "why", "tool_calls":
        [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]}}]})");
  ASSERT_TRUE(cases.ok()) << cases.status();
  const ParseCase& right = cases->parses[0];
  EXPECT_EQ(CompareParsed(right, {}), std::nullopt);
  EXPECT_EQ(CompareParsed(right, {1, 1, 9, 20}), std::nullopt);
  const auto differs = [&](auto change) {
    ParseCase wrong = right;
    change(*wrong.message);
    return CompareParsed(wrong, {}).has_value();
  };
  EXPECT_TRUE(differs([](auto& m) { m.content = "s"; }));
  EXPECT_TRUE(differs([](auto& m) { m.reasoning_content += "x"; }));
  EXPECT_TRUE(differs([](auto& m) { m.tool_calls[0].name = "g"; }));
  EXPECT_TRUE(differs([](auto& m) { m.tool_calls[0].arguments = "{ }"; }));
  EXPECT_TRUE(differs([](auto& m) { m.tool_calls.clear(); }));
  ParseCase wrong = right;
  wrong.message.reset();
  EXPECT_EQ(CompareParsed(wrong, {}), "not taken for malformed");
  wrong = right;
  wrong.completion.pop_back();
  EXPECT_EQ(CompareParsed(wrong, {}), "refused: the text ends among the tool calls");
}

}  // namespace
}  // namespace millrace
