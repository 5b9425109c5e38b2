// The normalizers of tokenizer.json: text to text, before it is split.
#ifndef ENGINE_TOKENIZER_NORMALIZER_H_
#define ENGINE_TOKENIZER_NORMALIZER_H_

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
class Normalizer {
 public:
  // Reads Sequence, Prepend, Replace, NFC, NFD, NFKC, NFKD, Strip, Lowercase, ByteLevel; null is
  // none. Any other type is refused by name.
  static absl::StatusOr<Normalizer> FromJson(const JsonRef& spec);

  // Whether Apply() leaves every text as it is.
  bool is_identity() const { return steps_.empty(); }

  // Normalizes *text in place. Clears *at_start when what stood first was removed, for
  // pre-tokenizers that treat the beginning of the input otherwise than the rest.
  // REQUIRES: valid UTF-8. Fails only where a pattern gives up (ResourceExhausted).
  absl::Status Apply(std::string* text, bool* at_start, RegexScratch* scratch) const;

 private:
  enum class Kind { kPrepend, kReplace, kNormalForm, kStrip, kLowercase, kByteLevel };
  struct Step {
    Kind kind = Kind::kLowercase;
    int form = 0;                    // kNormalForm: a NormalForm
    bool left = false;               // kStrip
    bool right = false;              // kStrip
    std::string content;             // kPrepend, kReplace
    std::optional<Pattern> pattern;  // kReplace
  };

  static absl::Status Read(const JsonRef& spec, int depth, std::vector<Step>* steps);
  static absl::Status Replace(const Step& step, std::string* text, bool* at_start,
                              RegexScratch* scratch);

  std::vector<Step> steps_;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_NORMALIZER_H_
