#include "tools/client/chat_answer.h"

#include <algorithm>
#include <utility>

#include "engine/chat/deepseek_v4/fixed_texts.h"

namespace millrace {
namespace {

using deepseek_v4::CompletionDelta;
using deepseek_v4::ThinkingMode;
using deepseek_v4::ToolCall;

void Append(const CompletionDelta& delta, CompletionDelta& whole) {
  whole.reasoning_content += delta.reasoning_content;
  whole.content += delta.content;
  whole.tool_calls.insert(whole.tool_calls.end(), delta.tool_calls.begin(), delta.tool_calls.end());
}

// Text of a model may end inside a character.
std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

ChatAnswer::ChatAnswer(const ChatReading& reading)
    : end_tokens_(reading.end_tokens),
      parser_(reading.thinking ? ThinkingMode::kThinking : ThinkingMode::kChat) {}

CompletionDelta ChatAnswer::Push(std::string_view text) {
  pushed_ += text.size();
  CompletionDelta delta = parser_.Push(text);
  Append(delta, given_);
  return delta;
}

CompletionDelta ChatAnswer::End(const ResponseComplete& complete) {
  const std::string_view text = complete.text;
  CompletionDelta delta = parser_.Push(text.substr(std::min(pushed_, text.size())));
  const bool model_ended =
      complete.matched_token.has_value() &&
      std::count(end_tokens_.begin(), end_tokens_.end(), *complete.matched_token) > 0;
  // Servers leave the token that ended the answer out of its text, unless asked for it.
  if (model_ended && !text.ends_with(deepseek_v4::kEndOfSentence)) {
    Append(parser_.Push(deepseek_v4::kEndOfSentence), delta);
  }
  const bool was_malformed = parser_.malformed();
  Append(parser_.Finish(), delta);
  Append(delta, given_);
  if (was_malformed || model_ended) malformed_ = parser_.completion().malformed;
  return delta;
}

nlohmann::ordered_json ToolCallJson(const ToolCall& call) {
  nlohmann::ordered_json json;
  json["type"] = "function";
  json["function"] = {{"name", call.name}, {"arguments", call.arguments}};
  return json;
}

nlohmann::ordered_json ChatAnswer::Json() const {
  nlohmann::ordered_json json;
  json["role"] = "assistant";
  if (!given_.reasoning_content.empty()) json["reasoning_content"] = given_.reasoning_content;
  json["content"] = given_.content;
  for (const ToolCall& call : given_.tool_calls) json["tool_calls"].push_back(ToolCallJson(call));
  return json;
}

void ChatPrinter::Show(const CompletionDelta& delta) {
  if (!delta.reasoning_content.empty()) {
    if (section_ == Section::kNone) notes_ << "--- reasoning\n";
    section_ = Section::kReasoning;
    notes_ << delta.reasoning_content << std::flush;
  }
  if (delta.content.empty() && delta.tool_calls.empty()) return;
  if (section_ == Section::kReasoning) notes_ << "\n--- answer" << std::endl;
  section_ = Section::kAnswer;
  if (!delta.content.empty()) {
    answer_ << delta.content << std::flush;
    in_line_ = true;
  }
  for (const ToolCall& call : delta.tool_calls) {
    if (in_line_) answer_ << "\n";
    answer_ << Dump(ToolCallJson(call)) << std::endl;
    in_line_ = false;
  }
}

void ChatPrinter::End(const ChatAnswer& answer, const std::string& text) {
  if (section_ == Section::kReasoning) notes_ << std::endl;
  if (in_line_) answer_ << std::endl;
  in_line_ = false;
  if (answer.malformed().empty()) return;
  notes_ << "The answer is not well formed (" << answer.malformed() << "). As it came:\n"
         << text << std::endl;
}

}  // namespace millrace
