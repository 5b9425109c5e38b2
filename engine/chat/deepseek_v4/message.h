// What a conversation with a DeepSeek-V4 model is made of.
#ifndef ENGINE_CHAT_DEEPSEEK_V4_MESSAGE_H_
#define ENGINE_CHAT_DEEPSEEK_V4_MESSAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/chat/deepseek_v4/python_json.h"

namespace millrace::deepseek_v4 {

enum class ThinkingMode : uint8_t { kChat, kThinking };

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text

  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

// A value. Empty fields are fields that the message does not have.
struct Message {
  std::string role;  // "system", "developer", "user", "assistant", "tool" or "latest_reminder"
  std::string content;
  std::string reasoning_content;     // assistant
  std::vector<ToolCall> tool_calls;  // assistant
  bool wo_eos = false;               // assistant: the text goes on behind it
  std::string tool_call_id;          // tool: which call this answers
  std::vector<PythonJson> tools;     // system, developer: the function objects
  PythonJson response_format;        // system, developer: the schema; null: any answer
  std::string task;  // "action", "query", "authority", "domain", "title" or "read_url"
};

// Reads a list of messages in OpenAI's format. Content is text; that of a tool message may also be
// a list of parts, of which only text can be shown to the model. Keys not known here are passed
// over. InvalidArgument naming the message and the field: wrong types, roles that have no such
// field, tools that are not functions.
absl::StatusOr<std::vector<Message>> ReadMessages(const PythonJson& list);

}  // namespace millrace::deepseek_v4

#endif  // ENGINE_CHAT_DEEPSEEK_V4_MESSAGE_H_
