// Compares a tokenizer with recorded encodings.
#ifndef TOOLS_TOKENIZE_ENCODINGS_CHECK_H_
#define TOOLS_TOKENIZE_ENCODINGS_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/tokenizer.h"

namespace millrace {

struct RecordedEncoding {
  std::optional<std::string> text;                // without one only decoding is compared
  std::vector<int32_t> ids;                       // without special tokens added
  std::vector<int32_t> ids_with_special;          // with them
  std::optional<std::vector<int32_t>> ids_plain;  // special tokens in the text taken as text
  std::string decoded;                            // of ids, special tokens skipped
  std::string decoded_all;                        // of ids, all tokens
};

// Reads a JSON list of objects with the members of RecordedEncoding; text may be null and ids_plain
// missing.
absl::StatusOr<std::vector<RecordedEncoding>> ParseEncodings(std::string_view json);

// One line for each respect in which the tokenizer disagrees with `want`: encoding without and
// with special tokens, decoding with them skipped and kept, and both texts rebuilt one id at a
// time.
std::vector<std::string> Disagreements(const Tokenizer& tokenizer, const RecordedEncoding& want);

}  // namespace millrace

#endif  // TOOLS_TOKENIZE_ENCODINGS_CHECK_H_
