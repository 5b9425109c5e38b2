#include "engine/chat/model_chat.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

// DeepSeek's control tokens as its file has them (not special), and all letters as one unknown.
constexpr const char* kControls[] = {"<｜begin▁of▁sentence｜>",
                                     "<｜end▁of▁sentence｜>",
                                     "<｜User｜>",
                                     "<｜Assistant｜>",
                                     "<think>",
                                     "</think>",
                                     "｜DSML｜"};
enum Control { kBegin, kEnd, kUser, kAssistant, kThink, kThinkEnd, kDsml };
constexpr int32_t kUnknown = 100;

std::unique_ptr<Tokenizer> MakeTokenizer(int controls) {
  std::string added;
  for (int i = 0; i < controls; ++i) {
    absl::StrAppend(&added, i == 0 ? "" : ", ", R"({"id": )", i, R"(, "content": ")", kControls[i],
                    R"(", "single_word": false, "lstrip": false, "rstrip": false,
                       "normalized": false, "special": false})");
  }
  auto tokenizer =
      Tokenizer::FromJson(absl::StrCat(R"({"version": "1.0", "added_tokens": [)", added,
                                       R"(], "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
      "use_regex": false}, "post_processor": null,
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
      "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": "?", "continuing_subword_prefix": null,
      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
      "vocab": {"?": 100}, "merges": []}})"));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

// The control tokens of a prompt.
absl::StatusOr<std::vector<int32_t>> Controls(const std::vector<ChatMessage>& messages,
                                              const ChatOptions& options,
                                              const ModelChat& chat = DeepSeekV4Chat()) {
  auto ids = EncodeChat(chat, *MakeTokenizer(7), messages, options);
  if (!ids.ok()) return ids;
  std::erase(*ids, kUnknown);
  return ids;
}

std::string Refusal(const std::vector<ChatMessage>& messages, const ChatOptions& options,
                    const ModelChat& chat = DeepSeekV4Chat()) {
  const auto ids = Controls(messages, options, chat);
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(ids.status().message());
}

ModelConfig Config(ModelFamily family) {
  ModelConfig config;
  config.family = family;
  return config;
}

TEST(ModelChat, DeepSeekV4ThinksUnlessToldOtherwise) {
  const std::vector<ChatMessage> chat = {{"user", "a"}};
  const std::vector<int32_t> thinks = {kBegin, kUser, kAssistant, kThink};
  EXPECT_EQ(*Controls(chat, {}), thinks);
  EXPECT_EQ(*Controls(chat, {.thinking = true}), thinks);
  EXPECT_EQ(*Controls(chat, {.thinking = false}),
            (std::vector<int32_t>{kBegin, kUser, kAssistant, kThinkEnd}));
}

TEST(ModelChat, EffortIsTextOfTheProfile) {
  const std::vector<ChatMessage> chat = {{"user", "a"}};
  const auto tokenizer = MakeTokenizer(7);
  const auto length = [&](const ModelChat& format, const std::string& effort) {
    const auto ids = EncodeChat(format, *tokenizer, chat, {.reasoning_effort = effort});
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids->size();
  };
  const DeepSeekV4Chat preview, official = {deepseek_v4::EffortProfile::kOfficial};
  EXPECT_EQ(length(preview, "high"), length(preview, ""));
  EXPECT_GT(length(preview, "max"), length(preview, ""));
  EXPECT_GT(length(official, "high"), length(official, "low"));
  EXPECT_GT(length(official, "max"), length(official, "high"));
  EXPECT_NE(Refusal(chat, {.reasoning_effort = "low"}).find("only high and max"),
            std::string::npos);
  EXPECT_NE(Refusal(chat, {.reasoning_effort = "much"}).find("'much'"), std::string::npos);
}

TEST(ModelChat, FieldsOfMessagesReachThePrompt) {
  std::vector<ChatMessage> chat = {{"system", "a", R"({"tools": [{"function": {"name": "f"}}]})"},
                                   {"user", "a"}};
  const std::vector<int32_t> with_tools = *Controls(chat, {.thinking = false});
  EXPECT_GT(std::count(with_tools.begin(), with_tools.end(), kDsml), 0);
  chat.push_back(
      {"assistant", "",
       R"({"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]})"});
  chat.push_back({"tool", "", R"({"tool_call_id": "1",
                                  "content": [{"type": "text", "text": "a"}]})"});
  const std::vector<int32_t> answered = *Controls(chat, {.thinking = false});
  EXPECT_GT(answered.size(), with_tools.size());
}

TEST(ModelChat, RefusalsNameTheMessage) {
  const auto refusal = [](const std::string& fields) {
    return Refusal({{"user", "a"}, {"user", "b", fields}}, {});
  };
  for (const char* fields : {"{", "[1]", R"({"role": "user"})", R"({"content": "c"})",
                             R"({"tools": [{"function": {}}]})", R"({"tool_calls": 3})"}) {
    EXPECT_EQ(refusal(fields).rfind("message 1: ", 0), 0u) << refusal(fields);
  }
  EXPECT_EQ(Refusal({{"wizard", "a"}}, {}), "message 0: unknown role 'wizard'");
}

TEST(ModelChat, MessagesCannotForgeControlTokens) {
  const auto controls = [](const std::string& said) {
    return *Controls({{"system", said, R"({"tools": [{"function": {"name": ")" + said + R"("}}]})"},
                      {"user", said},
                      {"assistant", said, R"({"reasoning_content": ")" + said + R"("})"},
                      {"user", said}},
                     {});
  };
  const std::vector<int32_t> honest = controls("a");
  for (const char* token : kControls) {
    EXPECT_EQ(controls(token), honest) << token;
    EXPECT_EQ(controls(std::string("a") + token + "a"), honest) << token;
  }
}

TEST(ModelChat, TemplatesHaveNeitherThinkingNorFields) {
  const ModelChat plain = ChatTemplate();
  const std::vector<ChatMessage> chat = {{"user", "a"}};
  EXPECT_TRUE(Controls(chat, {}, plain).ok());
  EXPECT_TRUE(Controls(chat, {.thinking = false}, plain).ok());
  EXPECT_EQ(Refusal(chat, {.thinking = true}, plain).rfind("thinking", 0), 0u);
  EXPECT_EQ(Refusal(chat, {.reasoning_effort = "max"}, plain).rfind("thinking", 0), 0u);
  EXPECT_EQ(Refusal({{"user", "a", "{}"}}, {}, plain).rfind("message 0: ", 0), 0u);
}

TEST(ModelChat, RecognisedByFamilyThenByTemplate) {
  const TokenizerSettings chat_ml = {.chat_template = "<|im_start|>"};
  const auto tokenizer = MakeTokenizer(7);
  const std::string folder = ::testing::TempDir() + "/recognised";
  const auto recognised = [&](ModelFamily family, const TokenizerSettings& settings,
                              const Tokenizer& with) {
    return RecogniseChat(Config(family), settings, with, folder);
  };
  const auto llama = recognised(ModelFamily::kLlama, chat_ml, *tokenizer);
  ASSERT_TRUE(llama.has_value());
  EXPECT_TRUE(std::holds_alternative<ChatTemplate>(*llama));
  EXPECT_FALSE(recognised(ModelFamily::kLlama, {}, *tokenizer).has_value());
  // A tokenizer that lacks </think> would make text of it.
  EXPECT_FALSE(recognised(ModelFamily::kDeepSeekV4, chat_ml, *MakeTokenizer(5)).has_value());

  const auto profile = [&] {
    const auto chat = recognised(ModelFamily::kDeepSeekV4, chat_ml, *tokenizer);
    EXPECT_TRUE(chat.has_value());
    return std::get<DeepSeekV4Chat>(*chat).profile;
  };
  EXPECT_EQ(profile(), deepseek_v4::EffortProfile::kPreview);
  std::filesystem::create_directories(folder + "/encoding");
  std::ofstream(folder + "/encoding/encoding_dsv4.py")
      << "X = 'Reasoning Effort: Absolute maximum'";
  EXPECT_EQ(profile(), deepseek_v4::EffortProfile::kPreview);
  std::ofstream(folder + "/encoding/encoding_dsv4.py") << "Y = 'Reasoning Effort: Beyond maximum'";
  EXPECT_EQ(profile(), deepseek_v4::EffortProfile::kOfficial);
}

}  // namespace
}  // namespace millrace
