// Conversations and completions against what the publisher's encoder makes of them.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "engine/chat/deepseek_v4/completion_parser.h"
#include "engine/chat/deepseek_v4/prompt.h"

namespace millrace::deepseek_v4 {
namespace {

PythonJson ReadRecorded() {
  std::ifstream file("engine/chat/deepseek_v4/testdata/recorded.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto json = PythonJson::Parse(text);
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : PythonJson();
}

ThinkingMode Mode(const PythonJson& recorded) {
  return recorded.Find("thinking_mode")->text == "thinking" ? ThinkingMode::kThinking
                                                            : ThinkingMode::kChat;
}

TEST(Recorded, PromptsRenderByteForByte) {
  const PythonJson recorded = ReadRecorded();
  ASSERT_GE(recorded.Find("prompts")->elements.size(), 30u);
  for (const PythonJson& want : recorded.Find("prompts")->elements) {
    SCOPED_TRACE(want.Dump());
    PromptOptions options;
    options.mode = Mode(want);
    options.drop_thinking = want.Find("drop_thinking")->IsTruthy();
    const bool is_max = want.Find("reasoning_effort")->text == "max";
    options.effort = is_max ? ReasoningEffort::kMax : ReasoningEffort::kDefault;
    const auto messages = ReadMessages(*want.Find("messages"));
    ASSERT_TRUE(messages.ok()) << messages.status();
    const auto prompt = RenderPrompt(*messages, options);
    ASSERT_TRUE(prompt.ok()) << prompt.status();
    EXPECT_EQ(prompt->text, want.Find("prompt")->text);
  }
}

// A message as the publisher's parser gives it, keys in its order.
std::string Dump(const Completion& completion) {
  PythonJson content{.kind = PythonJson::Kind::kString, .text = completion.content};
  PythonJson reasoning{.kind = PythonJson::Kind::kString, .text = completion.reasoning_content};
  std::string calls;
  for (const ToolCall& call : completion.tool_calls) {
    calls += calls.empty() ? "" : ", ";
    calls += "{\"type\": \"function\", \"function\": {\"name\": ";
    AppendJsonString(call.name, &calls);
    calls += ", \"arguments\": ";
    AppendJsonString(call.arguments, &calls);
    calls += "}}";
  }
  return "{\"role\": \"assistant\", \"content\": " + content.Dump() +
         ", \"reasoning_content\": " + reasoning.Dump() + ", \"tool_calls\": [" + calls + "]}";
}

TEST(Recorded, CompletionsParse) {
  const PythonJson recorded = ReadRecorded();
  int malformed = 0;
  for (const PythonJson& want : recorded.Find("parses")->elements) {
    SCOPED_TRACE(want.Dump());
    CompletionParser parser(Mode(want));
    parser.Push(want.Find("completion")->text);
    parser.Finish();
    const Completion& completion = parser.completion();
    EXPECT_EQ(completion.text, want.Find("completion")->text);
    if (want.Find("message")->is_null()) {
      ++malformed;
      EXPECT_NE(completion.malformed, "");
    } else {
      EXPECT_EQ(completion.malformed, "");
      EXPECT_EQ(Dump(completion), want.Find("message")->Dump());
    }
  }
  EXPECT_GE(malformed, 10);
}

}  // namespace
}  // namespace millrace::deepseek_v4
