// Regular expressions of tokenizer.json, matched by PCRE2's JIT.
#ifndef ENGINE_TOKENIZER_REGEX_H_
#define ENGINE_TOKENIZER_REGEX_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace millrace {

struct RegexMatch {
  size_t begin = 0;
  size_t end = 0;
};

// The working memory of a search. One thread at a time; reusable for any number of regexes.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

  // Whether the texts searched may hold characters newer than PCRE2's tables (see
  // newer_characters.h). Set by whoever has looked; costs a copy per search.
  bool has_newer_characters = false;

 private:
  friend class Regex;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A compiled pattern. Immutable, any thread.
class Regex {
 public:
  // `pattern` in Oniguruma's syntax; what is not understood is refused by name.
  static absl::StatusOr<std::shared_ptr<const Regex>> Compile(std::string_view pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

 private:
  friend class RegexIterator;
  struct Impl;
  Regex();
  // 1 found, 0 not found, below 0 PCRE2's error.
  int Search(std::string_view text, size_t from, RegexScratch* scratch, RegexMatch* match) const;

  std::unique_ptr<Impl> impl_;
};

// The matches of `regex` in `text` from left to right, not overlapping; an empty match right
// behind the one before it is passed over. REQUIRES: valid UTF-8 that outlives the iterator.
class RegexIterator {
 public:
  RegexIterator(const Regex& regex, std::string_view text, RegexScratch* scratch);

  // False at the end and on failure: see status().
  bool Next(RegexMatch* match);

  // ResourceExhausted when the text drove the pattern past PCRE2's limits.
  const absl::Status& status() const { return status_; }

 private:
  const Regex& regex_;
  std::string stand_in_;
  std::string_view text_;
  RegexScratch* scratch_;
  size_t from_ = 0;
  size_t last_end_ = std::string_view::npos;
  absl::Status status_;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_REGEX_H_
