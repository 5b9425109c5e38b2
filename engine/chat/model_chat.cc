#include "engine/chat/model_chat.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/chat/deepseek_v4/fixed_texts.h"
#include "engine/chat/deepseek_v4/message.h"
#include "engine/chat/deepseek_v4/python_json.h"
#include "engine/config/read_file.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

using deepseek_v4::EffortProfile;
using deepseek_v4::PythonJson;
using deepseek_v4::ReasoningEffort;
using deepseek_v4::ThinkingMode;

constexpr int64_t kMaxEncoderBytes = 1 << 20;

bool KnowsControlTokens(const Tokenizer& tokenizer) {
  for (const std::string_view token :
       {deepseek_v4::kBeginOfSentence, deepseek_v4::kEndOfSentence, deepseek_v4::kUser,
        deepseek_v4::kAssistant, deepseek_v4::kThinkBegin, deepseek_v4::kThinkEnd}) {
    if (!tokenizer.TokenToId(token).has_value()) return false;
  }
  return true;
}

// Only the later releases know the longer of the two texts, and their encoder spells it.
EffortProfile ProfileOf(const std::string& model_dir) {
  constexpr std::string_view kMark = "Reasoning Effort: Beyond maximum";
  const auto encoder = ReadFile(model_dir + "/encoding/encoding_dsv4.py", kMaxEncoderBytes);
  const bool official = encoder.ok() && encoder->find(kMark) != std::string::npos;
  return official ? EffortProfile::kOfficial : EffortProfile::kPreview;
}

absl::Status MessageError(size_t index, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("message ", index, ": ", what));
}

void Set(std::string_view key, const std::string& text, PythonJson* object) {
  PythonJson value;
  value.kind = PythonJson::Kind::kString;
  value.text = text;
  object->members.push_back({std::string(key), std::move(value)});
}

// A message in OpenAI's format.
absl::StatusOr<PythonJson> ToJson(const ChatMessage& message, size_t index) {
  PythonJson object;
  object.kind = PythonJson::Kind::kObject;
  if (!message.fields_json.empty()) {
    auto fields = PythonJson::Parse(message.fields_json);
    if (!fields.ok()) {
      return MessageError(index, absl::StrCat("fields: ", fields.status().message()));
    }
    if (!fields->is_object()) return MessageError(index, "fields: not a JSON object");
    object = *std::move(fields);
  }
  if (object.Find("role") != nullptr) return MessageError(index, "fields: the role is no part");
  Set("role", message.role, &object);
  const bool has_content = object.Find("content") != nullptr;
  if (has_content && !message.content.empty()) {
    return MessageError(index, "fields: the content is there twice");
  }
  if (!has_content) Set("content", message.content, &object);
  return object;
}

absl::StatusOr<std::vector<deepseek_v4::Message>> ReadDeepSeekV4(
    absl::Span<const ChatMessage> messages) {
  PythonJson list;
  list.kind = PythonJson::Kind::kArray;
  for (size_t i = 0; i < messages.size(); ++i) {
    ASSIGN_OR_RETURN(PythonJson object, ToJson(messages[i], i));
    list.elements.push_back(std::move(object));
  }
  return deepseek_v4::ReadMessages(list);
}

absl::StatusOr<ReasoningEffort> ParseEffort(const std::string& name) {
  if (name.empty()) return ReasoningEffort::kDefault;
  if (name == "low") return ReasoningEffort::kLow;
  if (name == "high") return ReasoningEffort::kHigh;
  if (name == "max") return ReasoningEffort::kMax;
  return absl::InvalidArgumentError(
      absl::StrCat("the reasoning effort '", name, "' is not low, high or max"));
}

absl::StatusOr<std::vector<int32_t>> EncodeDeepSeekV4(const DeepSeekV4Chat& chat,
                                                      const Tokenizer& tokenizer,
                                                      absl::Span<const ChatMessage> messages,
                                                      const ChatOptions& options) {
  deepseek_v4::PromptOptions prompt = {
      .mode = options.thinking.value_or(true) ? ThinkingMode::kThinking : ThinkingMode::kChat,
      .profile = chat.profile};
  ASSIGN_OR_RETURN(prompt.effort, ParseEffort(options.reasoning_effort));
  ASSIGN_OR_RETURN(const std::vector<deepseek_v4::Message> read, ReadDeepSeekV4(messages));
  ASSIGN_OR_RETURN(const RenderedChat rendered, deepseek_v4::RenderPrompt(read, prompt));
  return deepseek_v4::EncodePrompt(rendered, tokenizer);
}

absl::Status CheckPlain(absl::Span<const ChatMessage> messages, const ChatOptions& options) {
  if (options.thinking.value_or(false) || !options.reasoning_effort.empty()) {
    return absl::InvalidArgumentError("thinking: this model's format has no such mode");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].fields_json.empty()) continue;
    return MessageError(i, "this model's format has only roles and contents: no tools");
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<ModelChat> RecogniseChat(const ModelConfig& config, const TokenizerSettings& settings,
                                       const Tokenizer& tokenizer, const std::string& model_dir) {
  if (config.family == ModelFamily::kDeepSeekV4) {
    if (!KnowsControlTokens(tokenizer)) return std::nullopt;
    return DeepSeekV4Chat{.profile = ProfileOf(model_dir)};
  }
  const std::optional<ChatTemplate> known = ChatTemplate::Recognise(settings);
  if (!known.has_value()) return std::nullopt;
  return *known;
}

absl::StatusOr<std::vector<int32_t>> EncodeChat(const ModelChat& chat, const Tokenizer& tokenizer,
                                                absl::Span<const ChatMessage> messages,
                                                const ChatOptions& options) {
  if (const auto* v4 = std::get_if<DeepSeekV4Chat>(&chat)) {
    return EncodeDeepSeekV4(*v4, tokenizer, messages, options);
  }
  RETURN_IF_ERROR(CheckPlain(messages, options));
  return EncodeChat(std::get<ChatTemplate>(chat), tokenizer, messages);
}

}  // namespace millrace
