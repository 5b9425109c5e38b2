// Conversations to DeepSeek-V4 prompts, byte for byte what the publisher's encoder makes of them.
#ifndef ENGINE_CHAT_DEEPSEEK_V4_PROMPT_H_
#define ENGINE_CHAT_DEEPSEEK_V4_PROMPT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/chat/deepseek_v4/message.h"
#include "engine/chat/rendered_chat.h"
#include "engine/tokenizer/tokenizer.h"

namespace millrace::deepseek_v4 {

enum class ReasoningEffort : uint8_t { kDefault, kLow, kHigh, kMax };

// The releases say how much to think in different ways.
enum class EffortProfile : uint8_t {
  kPreview,   // Flash and Pro of April 2026: high is the default, there is no low
  kOfficial,  // from -0731 and -0813 on: low is the default
};

struct PromptOptions {
  ThinkingMode mode = ThinkingMode::kThinking;
  // Whether reasoning, and developer messages, from before the last user's turn are left out when
  // thinking. Conversations with tools keep them all the same.
  bool drop_thinking = true;
  ReasoningEffort effort = ReasoningEffort::kDefault;  // matters when thinking
  EffortProfile profile = EffortProfile::kPreview;
};

// The prompt, from the beginning-of-sentence token to where the model goes on. InvalidArgument
// naming the message: none at all, an unknown role or task, a developer message that says
// nothing, tool arguments that are JSON but no object, text that is not UTF-8; or an effort that
// the profile does not have.
absl::StatusOr<RenderedChat> RenderPrompt(absl::Span<const Message> messages,
                                          const PromptOptions& options);

// Its ids. Control tokens spelled out in a message, be it in a tool's schema or answer, stay
// ordinary text.
absl::StatusOr<std::vector<int32_t>> EncodePrompt(const RenderedChat& prompt,
                                                  const Tokenizer& tokenizer);

}  // namespace millrace::deepseek_v4

#endif  // ENGINE_CHAT_DEEPSEEK_V4_PROMPT_H_
