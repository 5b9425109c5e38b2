// Parts of a text in which special tokens are not to be found: what a user wrote.
#ifndef ENGINE_TOKENIZER_LITERAL_SPANS_H_
#define ENGINE_TOKENIZER_LITERAL_SPANS_H_

#include <cstddef>
#include <utility>
#include <vector>

namespace millrace {

// Bytes [begin, end) of a text.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
};

// What is not to be found in them.
enum class LiteralScope { kSpecialTokens, kAddedTokens };

// Spans in order, not overlapping, none of them empty. A value.
class LiteralSpans {
 public:
  LiteralSpans() = default;
  // REQUIRES: in order, not overlapping.
  explicit LiteralSpans(std::vector<TextSpan> spans,
                        LiteralScope scope = LiteralScope::kSpecialTokens)
      : spans_(std::move(spans)), scope_(scope) {}

  LiteralScope scope() const { return scope_; }
  bool empty() const { return spans_.empty(); }
  const std::vector<TextSpan>& spans() const { return spans_; }

  // The first span that shares a byte with [begin, end), or null.
  const TextSpan* Overlapping(size_t begin, size_t end) const;

  // The spans inside [begin, end), counted from `begin`.
  LiteralSpans Within(size_t begin, size_t end) const;

 private:
  std::vector<TextSpan> spans_;
  LiteralScope scope_ = LiteralScope::kSpecialTokens;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_LITERAL_SPANS_H_
