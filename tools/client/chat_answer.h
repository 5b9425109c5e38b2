// A DeepSeek-V4 model's answer to a conversation: reasoning, content and tool calls, read out of
// its text as that comes.
#ifndef TOOLS_CLIENT_CHAT_ANSWER_H_
#define TOOLS_CLIENT_CHAT_ANSWER_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/wire/response.h"
#include "engine/chat/deepseek_v4/completion_parser.h"
#include "engine/chat/deepseek_v4/message.h"
#include "nlohmann/json.hpp"

namespace millrace {

// How answers are to be read.
struct ChatReading {
  bool thinking = true;
  std::vector<int32_t> end_tokens;  // of the model
};

// Of one choice.
class ChatAnswer final {
 public:
  explicit ChatAnswer(const ChatReading& reading);

  // What more of the text adds.
  deepseek_v4::CompletionDelta Push(std::string_view text);
  // What the end adds; takes what Push has not seen of the whole text. Once, and last.
  deepseek_v4::CompletionDelta End(const ResponseComplete& complete);

  // All that Push and End gave.
  const deepseek_v4::CompletionDelta& given() const { return given_; }
  // Why the text is no proper answer; empty for proper ones, and for those that were cut off by a
  // limit or a stop string before they could be.
  const std::string& malformed() const { return malformed_; }
  // In OpenAI's format, what came of it when malformed or cut off.
  nlohmann::ordered_json Json() const;

 private:
  const std::vector<int32_t> end_tokens_;
  deepseek_v4::CompletionParser parser_;
  deepseek_v4::CompletionDelta given_;
  size_t pushed_ = 0;  // bytes
  std::string malformed_;
};

// A tool call in OpenAI's format.
nlohmann::ordered_json ToolCallJson(const deepseek_v4::ToolCall& call);

// Shows one answer as it comes: the content, then a tool call a line, on `answer`; the reasoning
// apart, under a heading, on `notes`.
class ChatPrinter final {
 public:
  ChatPrinter(std::ostream& answer, std::ostream& notes) : answer_(answer), notes_(notes) {}

  void Show(const deepseek_v4::CompletionDelta& delta);
  // Ends the last line. Says on `notes` what is wrong with a malformed answer, with its text.
  void End(const ChatAnswer& answer, const std::string& text);

 private:
  enum class Section { kNone, kReasoning, kAnswer };

  std::ostream& answer_;
  std::ostream& notes_;
  Section section_ = Section::kNone;
  bool in_line_ = false;  // of the answer
};

}  // namespace millrace

#endif  // TOOLS_CLIENT_CHAT_ANSWER_H_
