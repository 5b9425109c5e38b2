// Recorded conversations and completions of DeepSeek-V4.
#ifndef TOOLS_PROMPT_PROMPT_CASES_H_
#define TOOLS_PROMPT_PROMPT_CASES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/chat/deepseek_v4/message.h"
#include "engine/chat/deepseek_v4/prompt.h"

namespace millrace {

struct PromptCase {
  std::vector<deepseek_v4::Message> messages;
  deepseek_v4::PromptOptions options;
  std::string prompt;
  std::vector<int32_t> ids;
};

struct ParseCase {
  struct Message {
    std::string content;
    std::string reasoning_content;
    std::vector<deepseek_v4::ToolCall> tool_calls;  // without ids
  };
  deepseek_v4::ThinkingMode mode = deepseek_v4::ThinkingMode::kChat;
  std::string completion;
  std::optional<Message> message;  // none: the text is malformed
};

struct PromptCases {
  std::vector<PromptCase> prompts;
  std::vector<ParseCase> parses;
};

// Reads {"prompts": [{messages, thinking_mode, drop_thinking, reasoning_effort, profile, prompt,
// ids}], "parses": [{completion, thinking_mode, message}]}; drop_thinking (true), reasoning_effort
// (null), profile ("preview") and one of the two lists may be missing. InvalidArgument naming the
// case.
absl::StatusOr<PromptCases> ParsePromptCases(std::string_view json);

}  // namespace millrace

#endif  // TOOLS_PROMPT_PROMPT_CASES_H_
