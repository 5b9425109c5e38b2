// Conversations to prompts. A model's Jinja template is untrusted code and is never evaluated: it
// is only looked at to recognise one of the known formats.
#ifndef ENGINE_CHAT_CHAT_TEMPLATE_H_
#define ENGINE_CHAT_CHAT_TEMPLATE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/chat/chat_message.h"
#include "engine/chat/rendered_chat.h"
#include "engine/config/model_config.h"
#include "engine/tokenizer/tokenizer.h"

namespace millrace {

enum class ChatFormat : uint8_t {
  kChatMl,  // <|im_start|>role\ncontent<|im_end|>\n
  kLlama3,  // <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>
  kLlama2,  // [INST] <<SYS>>\nsystem\n<</SYS>>\n\nuser [/INST] assistant </s>
};

// A value.
struct ChatTemplate {
  ChatFormat format = ChatFormat::kChatMl;
  std::string default_system;   // used when the conversation does not begin with a system message
  std::string system_preamble;  // stands before the system message (Llama 3.1's dates)
  bool always_system = false;   // a system block even without a system message

  // The format of a tokenizer_config.json's chat_template; none when it is not a known one.
  static std::optional<ChatTemplate> Recognise(const TokenizerSettings& settings);
};

// InvalidArgument naming the message: no message, an unknown role, content that is not UTF-8, a
// system message that is not the first, and for kLlama2 roles that do not alternate.
absl::StatusOr<RenderedChat> RenderChat(const ChatTemplate& chat,
                                        absl::Span<const ChatMessage> messages);

// The ids of the rendered prompt. Control tokens spelled out inside a message stay ordinary text.
absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatTemplate& chat,
                                                const Tokenizer& tokenizer,
                                                absl::Span<const ChatMessage> messages);

}  // namespace millrace

#endif  // ENGINE_CHAT_CHAT_TEMPLATE_H_
