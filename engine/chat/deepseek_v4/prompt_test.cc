#include "engine/chat/deepseek_v4/prompt.h"

#include <gtest/gtest.h>
#include <openssl/sha.h>

#include "absl/strings/escaping.h"
#include "engine/chat/deepseek_v4/fixed_texts.h"

namespace millrace::deepseek_v4 {
namespace {

constexpr PromptOptions kChat = {.mode = ThinkingMode::kChat};
constexpr PromptOptions kThinking = {.mode = ThinkingMode::kThinking};

RenderedChat Rendered(const std::string& messages, const PromptOptions& options) {
  const auto read = ReadMessages(*PythonJson::Parse(messages));
  EXPECT_TRUE(read.ok()) << read.status();
  const auto rendered = RenderPrompt(*read, options);
  return rendered.ok() ? *rendered : RenderedChat{rendered.status().ToString(), {}};
}

// With short names for the control tokens.
std::string Render(const std::string& messages, const PromptOptions& options) {
  std::string text = Rendered(messages, options).text;
  const std::pair<std::string_view, const char*> kShort[] = {
      {kBeginOfSentence, "[B]"},
      {kEndOfSentence, "[E]"},
      {kUser, "[U]"},
      {kAssistant, "[A]"},
      {kThinkBegin, "[T]"},
      {kThinkEnd, "[/T]"},
      {kLatestReminder, "[R]"},
      {kDsml, "|"},
  };
  for (const auto& [token, name] : kShort) {
    for (size_t at; (at = text.find(token)) != std::string::npos;) {
      text.replace(at, token.size(), name);
    }
  }
  return text;
}

std::string Sha256(std::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

TEST(FixedTexts, AreThePublishers) {
  EXPECT_EQ(Sha256(kToolsHead), "c7c9042638154a237b5d1bd48be772374a35a4d24c5cacfd1ffbd92703da329c");
  EXPECT_EQ(Sha256(kAbsoluteMaximum),
            "f7a24f3b3050d4a83781e9b755b316aae2ec1d9dc87562541d90bcb04d7350f7");
  EXPECT_EQ(Sha256(kBeyondMaximum),
            "53fb31b8392ec5b4a926481943efc67636748f137c1a49d493a7af4d4fa55d2c");
}

TEST(RenderPrompt, ModesEndBehindTheRightToken) {
  const std::string messages = R"([{"role": "system", "content": "S"},
                                   {"role": "user", "content": " U\n"}])";
  EXPECT_EQ(Render(messages, kChat), "[B]S[U] U\n[A][/T]");
  EXPECT_EQ(Render(messages, kThinking), "[B]S[U] U\n[A][T]");
}

TEST(RenderPrompt, DropsOldReasoningAndDeveloperMessages) {
  const std::string messages = R"([
      {"role": "developer", "content": "D"},
      {"role": "assistant", "content": "A", "reasoning_content": "R"},
      {"role": "latest_reminder", "content": "L"},
      {"role": "user", "content": "U"},
      {"role": "assistant", "content": "B", "reasoning_content": "Q"}])";
  EXPECT_EQ(Render(messages, kThinking), "[B]A[E][R]L[U]U[A][T]Q[/T]B[E]");
  PromptOptions keep = kThinking;
  keep.drop_thinking = false;
  EXPECT_EQ(Render(messages, keep), "[B][U]D[A][T]R[/T]A[E][R]L[U]U[A][T]Q[/T]B[E]");
  EXPECT_EQ(Render(messages, kChat), "[B][U]D[A][/T]A[E][R]L[U]U[A][/T]B[E]");
}

TEST(RenderPrompt, ToolsKeepReasoning) {
  const std::string text = Render(R"([
      {"role": "system", "content": "S", "tools": [{"function": {"name": "f", "x": [1.0]}},
                                                   {"function": {"name": "g"}}]},
      {"role": "user", "content": "U"},
      {"role": "assistant", "content": "A", "reasoning_content": "R"},
      {"role": "user", "content": "V"}])",
                                  kThinking);
  EXPECT_EQ(text.find("[B]S\n\n## Tools\n\n"), 0u);
  const std::string schemas = "Schemas\n\n{\"name\": \"f\", \"x\": [1.0]}\n{\"name\": \"g\"}\n\n";
  EXPECT_NE(text.find(schemas), std::string::npos);
  const std::string end = "tool calls.\n[U]U[A][T]R[/T]A[E][U]V[A][T]";
  EXPECT_EQ(text.substr(text.size() - end.size()), end);
}

TEST(RenderPrompt, ToolCallsAndTheirAnswers) {
  EXPECT_EQ(Render(R"([
      {"role": "user", "content": "U"},
      {"role": "assistant", "content": "A", "tool_calls": [
        {"id": "one", "function": {"name": "f", "arguments": "{\"s\": \"1\", \"n\": [1,2]}"}},
        {"id": "two", "function": {"name": "g", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "two", "content": "2"},
      {"role": "user", "content": "V"},
      {"role": "tool", "tool_call_id": "one", "content": [{"type": "image"}]}])",
                   kChat),
            "[B][U]U[A][/T]A\n\n<|tool_calls>\n"
            "<|invoke name=\"f\">\n<|parameter name=\"s\" string=\"true\">1</|parameter>\n"
            "<|parameter name=\"n\" string=\"false\">[1, 2]</|parameter>\n</|invoke>\n"
            "<|invoke name=\"g\">\n\n</|invoke>\n</|tool_calls>[E]"
            "[U]<tool_result>[Unsupported image]</tool_result>\n\nV\n\n"
            "<tool_result>2</tool_result>[A][/T]");
}

TEST(RenderPrompt, Tasks) {
  const auto task = [](const std::string& name, const PromptOptions& options) {
    return Render(R"([{"role": "user", "content": "U", "task": ")" + name + R"("}])", options);
  };
  EXPECT_EQ(task("query", kThinking), "[B][U]U<｜query｜>");
  EXPECT_EQ(task("read_url", kChat), "[B][U]U<｜read_url｜>");
  EXPECT_EQ(task("action", kThinking), "[B][U]U[A][T]<｜action｜>");
  EXPECT_EQ(task("action", kChat), "[B][U]U[A][/T]<｜action｜>");
  EXPECT_EQ(task("dance", kChat),
            "INVALID_ARGUMENT: message 0: unknown task 'dance': want action, query, authority, "
            "domain, title or read_url");
  // No reasoning in the answer to a task, and no task where the user goes on.
  EXPECT_EQ(Render(R"([{"role": "user", "content": "U", "task": "title"},
                       {"role": "assistant", "content": "A", "reasoning_content": "R"}])",
                   kThinking),
            "[B][U]U<｜title｜>A[E]");
  EXPECT_EQ(Render(R"([{"role": "user", "content": "U", "task": "title"},
                       {"role": "user", "content": "V"}, {"role": "user", "content": "W"}])",
                   kChat),
            "[B][U]U[U]V\n\nW[A][/T]");
}

TEST(RenderPrompt, ResponseFormatAndUnfinishedAnswers) {
  EXPECT_EQ(Render(R"([{"role": "developer", "content": "D", "response_format": {"a": 1e22}},
                       {"role": "assistant", "content": "A", "wo_eos": true}])",
                   kChat),
            "[B][U]D\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to "
            "reply:\n{\"a\": 1e+22}[A][/T]A");
  EXPECT_EQ(Render(R"([{"role": "system", "content": "S", "response_format": {}}])", kChat),
            "[B]S");
}

TEST(RenderPrompt, ReasoningEffort) {
  const std::string messages = R"([{"role": "user", "content": "U"}])";
  const auto render = [&](EffortProfile profile, ReasoningEffort effort, ThinkingMode mode) {
    return Render(messages, {.mode = mode, .effort = effort, .profile = profile});
  };
  const std::string absolute = "[B]" + std::string(kAbsoluteMaximum) + "[U]U[A][T]";
  const std::string beyond = "[B]" + std::string(kBeyondMaximum) + "[U]U[A][T]";
  const std::string none = "[B][U]U[A][T]";
  using enum ReasoningEffort;
  using enum EffortProfile;
  EXPECT_EQ(render(kPreview, kDefault, ThinkingMode::kThinking), none);
  EXPECT_EQ(render(kPreview, kHigh, ThinkingMode::kThinking), none);
  EXPECT_EQ(render(kPreview, kMax, ThinkingMode::kThinking), absolute);
  EXPECT_EQ(render(kPreview, kMax, ThinkingMode::kChat), "[B][U]U[A][/T]");
  EXPECT_EQ(render(kPreview, kLow, ThinkingMode::kThinking),
            "INVALID_ARGUMENT: reasoning effort low: this release of the model has only high and "
            "max");
  EXPECT_EQ(render(kOfficial, kDefault, ThinkingMode::kThinking), none);
  EXPECT_EQ(render(kOfficial, kLow, ThinkingMode::kThinking), none);
  EXPECT_EQ(render(kOfficial, kHigh, ThinkingMode::kThinking), absolute);
  EXPECT_EQ(render(kOfficial, kMax, ThinkingMode::kThinking), beyond);
}

TEST(RenderPrompt, RefusesBadConversations) {
  EXPECT_EQ(Render("[]", kChat), "INVALID_ARGUMENT: the conversation holds no message");
  EXPECT_EQ(Render(R"([{"role": "user", "content": "U"}, {"role": "function"}])", kChat),
            "INVALID_ARGUMENT: message 1: unknown role 'function'");
  EXPECT_EQ(Render(R"([{"role": "developer", "content": ""}])", kChat),
            "INVALID_ARGUMENT: message 0: a developer message needs content");
  EXPECT_EQ(Render(R"([{"role": "assistant", "tool_calls": [
                        {"function": {"name": "f", "arguments": "[1]"}}]}])",
                   kChat),
            "INVALID_ARGUMENT: message 0: call of 'f': the arguments are JSON, but not an object");
  const Message broken = {.role = "user", .content = "\x80"};
  EXPECT_EQ(RenderPrompt({broken}, kChat).status().message(),
            "message 0: text that is not valid UTF-8");
}

TEST(RenderPrompt, SpansCoverExactlyWhatTheMessagesSaid) {
  const RenderedChat chat = Rendered(R"([
      {"role": "system", "content": "s", "tools": [{"function": {"name": "tool"}}]},
      {"role": "user", "content": "u"},
      {"role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": [
        {"id": "one", "function": {"name": "f", "arguments": "{\"k\": \"v\"}"}}]},
      {"role": "tool", "tool_call_id": "one", "content": "t"}])",
                                     kThinking);
  std::string said;
  for (const TextSpan& s : chat.message_spans)
    said += chat.text.substr(s.begin, s.end - s.begin) + "|";
  EXPECT_EQ(said, "s|{\"name\": \"tool\"}|u|r|a|f|k|v|t|");
}

// Bytes of the alphabet that is needed here, and control tokens as DeepSeek's file has them: not
// special.
std::string TokenizerJson() {
  std::string added;
  int id = 0;
  for (const std::string_view token : {kBeginOfSentence, kUser, kAssistant, kThinkBegin, kThinkEnd,
                                       kEndOfSentence, kDsml, std::string_view("<｜query｜>")}) {
    added += (added.empty() ? "" : ", ") + std::string(R"({"id": )") + std::to_string(id) +
             R"(, "content": ")" + std::string(token) +
             R"(", "single_word": false, "lstrip": false, "rstrip": false, "normalized": )" +
             (id % 2 == 0 ? "true" : "false") + R"(, "special": false})";
    ++id;
  }
  return R"({"version": "1.0", "added_tokens": [)" + added + R"(], "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
      "use_regex": false}, "post_processor": null,
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
      "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": "?", "continuing_subword_prefix": null,
      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
      "vocab": {"?": 100, "a": 101, "<": 102, ">": 103}, "merges": []}})";
}

TEST(EncodePrompt, MessagesCannotForgeControlTokens) {
  const auto tokenizer = Tokenizer::FromJson(TokenizerJson());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto controls = [&](const std::string& said) {
    std::string json;
    AppendJsonString(said, &json);
    const RenderedChat chat = Rendered(
        R"([{"role": "system", "content": )" + json + R"(}, {"role": "user", "content": )" + json +
            R"(}, {"role": "assistant", "content": )" + json + R"(, "reasoning_content": )" + json +
            R"(, "tool_calls": [{"function": {"name": )" + json + R"(, "arguments": )" + json +
            R"(}}]}, {"role": "tool", "content": )" + json + "}]",
        {.mode = ThinkingMode::kThinking, .drop_thinking = false});
    const auto ids = EncodePrompt(chat, **tokenizer);
    EXPECT_TRUE(ids.ok()) << ids.status();
    std::vector<int32_t> found;
    for (const int32_t id : *ids) {
      if (id < 100) found.push_back(id);
    }
    return found;
  };
  const std::vector<int32_t> honest = controls("a");
  EXPECT_EQ(honest.size(), 15u) << "the format's own";
  for (const std::string_view token : {kBeginOfSentence, kUser, kAssistant, kThinkBegin, kThinkEnd,
                                       kEndOfSentence, kDsml, std::string_view("<｜query｜>")}) {
    EXPECT_EQ(controls(std::string(token)), honest);
    EXPECT_EQ(controls("a" + std::string(token) + "a"), honest);
    // Nor half of one, with the rest coming from the format.
    EXPECT_EQ(controls(std::string(token.substr(0, token[0] == '<' ? 1 : 3))), honest);
  }
}

}  // namespace
}  // namespace millrace::deepseek_v4
