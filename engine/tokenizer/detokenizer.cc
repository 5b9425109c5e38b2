#include "engine/tokenizer/detokenizer.h"

namespace millrace {
namespace {

constexpr size_t kPromptTail = 64;

// Whether any of `ids` adds to a text, so that the ids behind them do not begin it.
bool HasText(const DecodeTable& table, absl::Span<const int32_t> ids, bool skip_special_tokens) {
  for (const int32_t id : ids) {
    if (table.Contains(id) && !(skip_special_tokens && table.IsSpecial(id))) return true;
  }
  return false;
}

}  // namespace

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                                               absl::Span<const int32_t> prompt)
    : stream_(tokenizer.decode_table(), skip_special_tokens) {
  const size_t cut = prompt.size() > kPromptTail ? prompt.size() - kPromptTail : 0;
  if (HasText(tokenizer.decode_table(), prompt.subspan(0, cut), skip_special_tokens)) {
    stream_.SkipStart();
  }
  std::string text_of_prompt;
  for (const int32_t id : prompt.subspan(cut)) stream_.Push(id, &text_of_prompt);
  stream_.ForgetHeldText();
}

std::string IncrementalDetokenizer::Push(int32_t id) {
  std::string text;
  stream_.Push(id, &text);
  return text;
}

std::string IncrementalDetokenizer::Finish() {
  std::string text;
  stream_.Finish(&text);
  return text;
}

}  // namespace millrace
