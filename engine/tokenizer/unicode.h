// Properties and transformations of Unicode text that the tokenizer families ask for.
// All text taken and returned is valid UTF-8.
#ifndef ENGINE_TOKENIZER_UNICODE_H_
#define ENGINE_TOKENIZER_UNICODE_H_

#include <string>
#include <string_view>

namespace millrace {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

std::string Normalize(std::string_view text, NormalForm form);

std::string Lowercase(std::string_view text);

// White_Space of the Unicode character database.
bool IsWhitespace(char32_t code_point);

// General category Nd, Nl or No.
bool IsNumeric(char32_t code_point);

// ASCII punctuation, or general category P.
bool IsPunctuation(char32_t code_point);

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_UNICODE_H_
