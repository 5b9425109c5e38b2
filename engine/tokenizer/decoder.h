// The decoders of tokenizer.json: tokens back to text.
//
// A decoder there is a list of steps, each of which maps all tokens of an answer to new ones. Read
// for streaming they fall into stages: steps that see one token at a time, ByteFallback (which
// joins runs of byte tokens), more steps of one token, and what is done to the text as a whole
// (joining bytes to characters, stripping the ends). Lists that do not fit this are refused.
#ifndef ENGINE_TOKENIZER_DECODER_H_
#define ENGINE_TOKENIZER_DECODER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/json_reader.h"
#include "engine/tokenizer/pattern.h"

namespace millrace {

// Immutable, any thread.
class Decoder {
 public:
  // Strips up to `start` and `stop` times `content` from the ends of a text.
  struct StripRule {
    char32_t content = 0;
    int64_t start = 0;
    int64_t stop = 0;
  };

  // Reads Sequence, ByteLevel, Metaspace, Replace, ByteFallback, Fuse and Strip; null joins tokens
  // with blanks. Any other type is refused by name.
  static absl::StatusOr<Decoder> FromJson(const JsonRef& spec);

  // The byte that `token` stands for on its own ("<0x0A>"), if ByteFallback is on.
  // Here and below a pattern that gives up leaves its token as it is.
  std::optional<uint8_t> ByteOf(std::string_view token, bool is_first, RegexScratch* scratch) const;
  // What `token` adds to the text. `is_first`: it is the first of the answer.
  std::string PieceOf(std::string_view token, bool is_first, RegexScratch* scratch) const;
  // What a run of byte tokens, joined to `run`, adds to the text.
  std::string PieceOfRun(std::string_view run, bool is_first, RegexScratch* scratch) const;

  // Whether pieces are bytes that may hold parts of characters.
  bool byte_level() const { return byte_level_; }
  const std::vector<StripRule>& strips() const { return strips_; }

 private:
  enum class Kind { kReplace, kMetaspace, kStrip, kJoin };
  struct Step {
    Kind kind = Kind::kReplace;
    std::optional<Pattern> pattern;  // kReplace, kMetaspace
    std::string content;             // the same
    bool keeps_first = false;        // kMetaspace: a blank at the very beginning is kept
    StripRule strip;                 // kStrip
  };
  struct Reader;

  static void Apply(const std::vector<Step>& steps, bool is_first, RegexScratch* scratch,
                    std::string* token);

  std::vector<Step> before_;  // ByteFallback; all steps where there is none
  std::vector<Step> behind_;
  bool byte_fallback_ = false;
  bool byte_level_ = false;
  std::vector<StripRule> strips_;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_DECODER_H_
