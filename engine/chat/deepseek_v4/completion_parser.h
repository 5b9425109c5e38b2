// What a DeepSeek-V4 model wrote: reasoning, content, tool calls. Read as it is written.
#ifndef ENGINE_CHAT_DEEPSEEK_V4_COMPLETION_PARSER_H_
#define ENGINE_CHAT_DEEPSEEK_V4_COMPLETION_PARSER_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "engine/chat/deepseek_v4/dsml.h"
#include "engine/chat/deepseek_v4/message.h"
#include "engine/tokenizer/utf8.h"

namespace millrace::deepseek_v4 {

// What a piece of a completion added. All of them together are the fields of a Completion that is
// well formed, and what was shown before the fault of one that is not. Always whole characters.
struct CompletionDelta {
  std::string reasoning_content;
  std::string content;
  std::vector<ToolCall> tool_calls;  // whole ones, without ids

  bool empty() const { return reasoning_content.empty() && content.empty() && tool_calls.empty(); }
};

struct Completion {
  std::string malformed;  // what is wrong; the three fields below are empty then
  std::string reasoning_content;
  std::string content;
  std::vector<ToolCall> tool_calls;

  std::string text;  // everything that came, also when malformed
  // Whether the end-of-sentence token came. A text cut off between two tool calls, or behind the
  // head of one, is well formed without it.
  bool ended = false;
};

// Takes the text as it comes, special tokens included, from behind the prompt to behind the
// end-of-sentence token. Takes and refuses the texts that the publisher's parser takes and
// refuses; the result does not depend on where the text was cut. One completion, one thread;
// time is linear in the text.
class CompletionParser final {
 public:
  explicit CompletionParser(ThinkingMode mode);

  // REQUIRES: not finished.
  CompletionDelta Push(std::string_view bytes);
  // What was held back, for it might have become a tag.
  CompletionDelta Finish();
  bool malformed() const { return state_ == State::kMalformed; }
  // REQUIRES: finished.
  const Completion& completion() const;

 private:
  enum class State {
    kReasoning,
    kContent,
    kBetweenCalls,    // behind the head of the block, or behind a call
    kInvokeName,      // behind <invoke
    kParameter,       // behind <parameter
    kAfterParameter,  // behind </parameter
    kAfterCalls,
    kEnd,
    kMalformed,
  };

  // Steps over watched tokens until none is left. `final`: nothing comes behind the text.
  void Advance(bool final, CompletionDelta* delta);
  // The first token of `watched` at or behind scan_, or null. Leaves scan_ where it stands, or
  // where one may still come to stand.
  const std::string_view* FindToken(absl::Span<const std::string_view> watched, bool final);
  // `region` ended with `token`.
  void Step(std::string_view region, std::string_view token, CompletionDelta* delta);
  void StepText(std::string_view region, std::string_view token);
  void StepInCalls(std::string_view region, std::string_view token, CompletionDelta* delta);
  // The text ended in `region`.
  void End(std::string_view region, CompletionDelta* delta);
  // Gives out reasoning or content up to scan_.
  void Emit(CompletionDelta* delta);
  void AddParameter(std::string_view region);
  void CloseCall(CompletionDelta* delta);
  void Fail(std::string what);

  State state_;
  Completion completion_;
  bool finished_ = false;
  size_t region_ = 0;    // where the region begins in the text
  size_t scan_ = 0;      // no token begins between region_ and here
  size_t emitted_ = 0;   // reasoning and content are given out up to here
  Utf8Tracker utf8_;     // of what was taken in
  size_t complete_ = 0;  // whole characters end here
  std::string call_name_;
  std::vector<DsmlParameter> call_parameters_;
  absl::flat_hash_set<std::string> call_parameter_names_;
};

}  // namespace millrace::deepseek_v4

#endif  // ENGINE_CHAT_DEEPSEEK_V4_COMPLETION_PARSER_H_
