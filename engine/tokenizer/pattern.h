// What a split or a replacement looks for: a literal, a regular expression or a kind of character.
#ifndef ENGINE_TOKENIZER_PATTERN_H_
#define ENGINE_TOKENIZER_PATTERN_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/json_reader.h"
#include "engine/tokenizer/regex.h"

namespace millrace {

// Immutable, any thread.
class Pattern {
 public:
  // Reads {"String": literal} or {"Regex": pattern}.
  static absl::StatusOr<Pattern> FromJson(const JsonRef& spec);
  static absl::StatusOr<Pattern> OfRegex(std::string_view pattern);
  static Pattern OfLiteral(std::string literal);
  // Each character for which `predicate` holds is one match.
  static Pattern OfCharacters(bool (*predicate)(char32_t));

  // Calls `visit` with each match from left to right. REQUIRES: valid UTF-8.
  absl::Status ForEachMatch(std::string_view text, RegexScratch* scratch,
                            absl::FunctionRef<void(RegexMatch)> visit) const;

  bool is_regex() const { return regex_ != nullptr; }
  const std::string& literal() const { return literal_; }

 private:
  Pattern() = default;

  std::shared_ptr<const Regex> regex_;
  bool (*predicate_)(char32_t) = nullptr;
  std::string literal_;
};

// `text` with each match replaced by `content`.
absl::StatusOr<std::string> ReplaceAll(const Pattern& pattern, std::string_view text,
                                       std::string_view content, RegexScratch* scratch);

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_PATTERN_H_
