// The pre-tokenizers of tokenizer.json: text to words, the pieces that the model may not merge
// across.
#ifndef ENGINE_TOKENIZER_PRE_TOKENIZER_H_
#define ENGINE_TOKENIZER_PRE_TOKENIZER_H_

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/json_reader.h"
#include "engine/tokenizer/pattern.h"

namespace millrace {

// The working memory of PreTokenizer::Split. One thread at a time.
struct PreTokenizerScratch {
  struct Part {
    size_t begin;
    size_t end;
    bool is_match;
  };
  struct Level {
    std::string text;
    std::vector<Part> parts;
  };
  RegexScratch regex;
  std::deque<Level> levels;  // one per step
};

// Immutable, any thread.
class PreTokenizer {
 public:
  using Sink = absl::FunctionRef<void(std::string_view word)>;

  // Reads Sequence, Split, ByteLevel, Digits, Metaspace, Punctuation, Whitespace,
  // WhitespaceSplit, CharDelimiterSplit; null is none. Any other type is refused by name, and so
  // is a ByteLevel that is not the last of its sequence.
  static absl::StatusOr<PreTokenizer> FromJson(const JsonRef& spec);

  // Whether words are bytes to be looked up through the byte-level alphabet.
  bool byte_level() const { return byte_level_; }

  // Calls `sink` with each word, none of them empty, from left to right. `at_start` says that
  // `text` is the beginning of the whole input. REQUIRES: valid UTF-8.
  // Fails only where a pattern gives up (ResourceExhausted).
  absl::Status Split(std::string_view text, bool at_start, PreTokenizerScratch* scratch,
                     Sink sink) const;

 private:
  enum class Kind { kSplit, kPrefixSpace, kMetaspace };
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Prepend { kAlways, kFirst, kNever };
  struct Step {
    Kind kind = Kind::kSplit;
    std::optional<Pattern> pattern;           // kSplit
    Behavior behavior = Behavior::kIsolated;  // kSplit
    bool invert = false;                      // kSplit
    std::string replacement;                  // kMetaspace
    Prepend prepend = Prepend::kAlways;       // kMetaspace
  };
  struct Piece {
    std::string_view text;
    bool at_start;
  };

  static absl::StatusOr<Behavior> ReadBehavior(const JsonRef& spec);
  static Step SplitStep(Pattern pattern, Behavior behavior, bool invert);
  absl::Status Read(const JsonRef& spec, int depth);
  absl::Status ReadOne(const std::string& type, const JsonRef& spec);
  absl::Status ReadByteLevel(const JsonRef& spec);
  absl::Status ReadMetaspace(const JsonRef& spec);

  absl::Status Run(size_t step, Piece piece, PreTokenizerScratch* scratch, Sink sink) const;
  absl::Status RunIsolated(size_t step, Piece piece, PreTokenizerScratch* scratch, Sink sink) const;
  absl::Status RunSplit(size_t step, Piece piece, PreTokenizerScratch* scratch, Sink sink) const;
  absl::Status RunMetaspace(size_t step, Piece piece, PreTokenizerScratch* scratch,
                            Sink sink) const;

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_PRE_TOKENIZER_H_
