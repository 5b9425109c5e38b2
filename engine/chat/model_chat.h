// How the conversations of one served model become prompts, whatever its format.
#ifndef ENGINE_CHAT_MODEL_CHAT_H_
#define ENGINE_CHAT_MODEL_CHAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/chat/chat_message.h"
#include "engine/chat/chat_template.h"
#include "engine/chat/deepseek_v4/prompt.h"
#include "engine/config/model_config.h"
#include "engine/tokenizer/tokenizer.h"

namespace millrace {

// The published encoder of DeepSeek-V4: tools, reasoning, tasks. Thinks unless told otherwise.
struct DeepSeekV4Chat {
  deepseek_v4::EffortProfile profile = deepseek_v4::EffortProfile::kPreview;
};

using ModelChat = std::variant<ChatTemplate, DeepSeekV4Chat>;

// The format of the model in `model_dir`: DeepSeek-V4's by the family (whose tokenizer must know
// its control tokens), others by their template. None when it is not a known one. The profile of
// DeepSeek-V4 is read off the encoder that its folder holds; without one it is the preview's.
std::optional<ModelChat> RecogniseChat(const ModelConfig& config, const TokenizerSettings& settings,
                                       const Tokenizer& tokenizer, const std::string& model_dir);

// The ids of the prompt. Control tokens spelled out inside a message stay ordinary text.
// InvalidArgument naming the message, or the option that the format does not have.
absl::StatusOr<std::vector<int32_t>> EncodeChat(const ModelChat& chat, const Tokenizer& tokenizer,
                                                absl::Span<const ChatMessage> messages,
                                                const ChatOptions& options);

}  // namespace millrace

#endif  // ENGINE_CHAT_MODEL_CHAT_H_
