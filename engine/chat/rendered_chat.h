// A conversation as one text, with the memory of which parts of it people wrote.
#ifndef ENGINE_CHAT_RENDERED_CHAT_H_
#define ENGINE_CHAT_RENDERED_CHAT_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizer/literal_spans.h"

namespace millrace {

struct RenderedChat {
  std::string text;                     // ends where the assistant's answer begins
  std::vector<TextSpan> message_spans;  // what the messages contributed
};

// Builds one from front to back.
class ChatWriter final {
 public:
  // Text of the format: its control tokens are control tokens.
  void Control(std::string_view text) { chat_.text += text; }
  // Text of a message: nothing in it is a control token.
  void Message(std::string_view text) {
    if (text.empty()) return;
    chat_.message_spans.push_back({chat_.text.size(), chat_.text.size() + text.size()});
    chat_.text += text;
  }
  RenderedChat Take() { return std::move(chat_); }

 private:
  RenderedChat chat_;
};

}  // namespace millrace

#endif  // ENGINE_CHAT_RENDERED_CHAT_H_
