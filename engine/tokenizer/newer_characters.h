// Characters of Unicode 15 and 16, which Debian's PCRE2 (10.42, Unicode 14) takes for unassigned.
// Tokenizers were trained with tables that know them, so patterns must see their category.
#ifndef ENGINE_TOKENIZER_NEWER_CHARACTERS_H_
#define ENGINE_TOKENIZER_NEWER_CHARACTERS_H_

#include <string>
#include <string_view>

namespace millrace {

// REQUIRES, here and below: valid UTF-8.
bool HasNewerCharacters(std::string_view text);

// `text` with each newer character replaced by an old one of the same category and of as many
// bytes, so that a pattern that asks for categories matches at the same offsets.
std::string WithStandIns(std::string_view text);

// Whether `code_point` is a newer character of category Nd, Nl or No.
bool IsNewerNumeric(char32_t code_point);

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_NEWER_CHARACTERS_H_
