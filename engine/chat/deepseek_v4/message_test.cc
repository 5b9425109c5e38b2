#include "engine/chat/deepseek_v4/message.h"

#include <gtest/gtest.h>

namespace millrace::deepseek_v4 {
namespace {

absl::StatusOr<std::vector<Message>> Read(const std::string& json) {
  return ReadMessages(*PythonJson::Parse(json));
}

std::string Refusal(const std::string& json) {
  const auto messages = Read(json);
  return messages.ok() ? "taken" : std::string(messages.status().message());
}

TEST(ReadMessages, ReadsEveryField) {
  const auto messages = Read(R"([
    {"role": "system", "content": "s", "response_format": {"type": "object"}, "tools":
      [{"type": "function", "function": {"name": "f", "n": 1e22}}], "name": 7},
    {"role": "user", "content": "u", "task": "query"},
    {"role": "assistant", "content": null, "reasoning_content": "r", "wo_eos": true, "tool_calls": [
      {"id": "c0", "type": "function", "function": {"name": "f", "arguments": "{}"}},
      {"function": {"id": "c1", "name": "g", "arguments": ""}}]},
    {"role": "tool", "tool_call_id": "c0", "content": [
      {"type": "text", "text": "a"}, {"type": "image"}, {"type": "text"}]}])");
  ASSERT_TRUE(messages.ok()) << messages.status();
  const std::vector<Message>& m = *messages;
  ASSERT_EQ(m.size(), 4u);
  EXPECT_EQ(m[0].content, "s");
  ASSERT_EQ(m[0].tools.size(), 1u);
  EXPECT_EQ(m[0].tools[0].Dump(), R"({"name": "f", "n": 1e+22})");
  EXPECT_EQ(m[0].response_format.Dump(), R"({"type": "object"})");
  EXPECT_EQ(m[1].task, "query");
  EXPECT_EQ(m[2].content, "");
  EXPECT_EQ(m[2].reasoning_content, "r");
  EXPECT_TRUE(m[2].wo_eos);
  EXPECT_EQ(m[2].tool_calls, (std::vector<ToolCall>{{"c0", "f", "{}"}, {"c1", "g", ""}}));
  EXPECT_EQ(m[3].tool_call_id, "c0");
  EXPECT_EQ(m[3].content, "a\n\n[Unsupported image]\n\n");
}

TEST(ReadMessages, SaysWhichMessageAndWhatIsWrong) {
  EXPECT_EQ(Refusal("{}"), "messages is not a list");
  EXPECT_EQ(Refusal(R"([{"role": "user"}, 5])"), "message 1: is not an object");
  EXPECT_EQ(Refusal(R"([{"content": "a"}])"), "message 0: has no role");
  EXPECT_EQ(Refusal(R"([{"role": 1}])"), "message 0: role is not a text");
  EXPECT_EQ(Refusal(R"([{"role": "user", "content": [{"type": "text", "text": "a"}]}])"),
            "message 0: content is not a text");
  EXPECT_EQ(Refusal(R"([{"role": "user", "content": null}])"), "message 0: content is null");
  EXPECT_EQ(Refusal(R"([{"role": "latest_reminder"}])"), "message 0: has no content");
  EXPECT_EQ(Refusal(R"([{"role": "tool", "content": 5}])"),
            "message 0: content is neither a text nor a list of parts");
  EXPECT_EQ(Refusal(R"([{"role": "tool", "content": ["a"]}])"),
            "message 0: content part 0: is not an object");
  EXPECT_EQ(Refusal(R"([{"role": "tool", "content": [{"text": "a"}]}])"),
            "message 0: content part 0: has no type");
  EXPECT_EQ(Refusal(R"([{"role": "assistant", "tool_calls": {}}])"),
            "message 0: tool_calls is not a list");
  EXPECT_EQ(Refusal(R"([{"role": "assistant", "tool_calls": [{"id": "a"}]}])"),
            "message 0: tool call 0: has no function");
  EXPECT_EQ(Refusal(R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}])"),
            "message 0: tool call 0: has no arguments");
  EXPECT_EQ(Refusal(R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f",
                        "arguments": {}}}]}])"),
            "message 0: tool call 0: arguments is not a text");
  EXPECT_EQ(Refusal(R"([{"role": "user", "tool_calls": [{"function": {"name": "f",
                        "arguments": ""}}]}])"),
            "message 0: a message of user calls no tools");
  EXPECT_EQ(Refusal(R"([{"role": "system", "tools": [{"name": "f"}]}])"),
            "message 0: tool 0 has no function object");
  EXPECT_EQ(Refusal(R"([{"role": "user", "tools": [{"function": {}}]}])"),
            "message 0: tools and response_format belong to a system or developer message, not to "
            "one of user");
  EXPECT_EQ(Refusal(R"([{"role": "user", "wo_eos": 1}])"), "message 0: wo_eos is not a boolean");
}

}  // namespace
}  // namespace millrace::deepseek_v4
