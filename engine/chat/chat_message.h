// A conversation as a client sends it, before anybody knows the model's format.
#ifndef ENGINE_CHAT_CHAT_MESSAGE_H_
#define ENGINE_CHAT_CHAT_MESSAGE_H_

#include <optional>
#include <string>

namespace millrace {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"; some formats have more
  std::string content;
  // A JSON object of further fields in OpenAI's format, such as tools and tool_calls, for the
  // formats that have them. Empty: none.
  std::string fields_json = {};

  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

// For formats that have a choice.
struct ChatOptions {
  std::optional<bool> thinking;  // none: the model's default
  std::string reasoning_effort;  // empty: the model's default

  friend bool operator==(const ChatOptions&, const ChatOptions&) = default;
};

}  // namespace millrace

#endif  // ENGINE_CHAT_CHAT_MESSAGE_H_
