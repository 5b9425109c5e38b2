#include "engine/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "engine/tokenizer/newer_characters.h"
#include "engine/tokenizer/utf8.h"

namespace millrace {
namespace {

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

utf8proc_option_t OptionsOf(NormalForm form) {
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compat = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  int options = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (compat) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

// Text below U+0300 is in NFC, and ASCII is in every form.
bool IsNormalizedAtSight(std::string_view text, NormalForm form) {
  const unsigned char limit = form == NormalForm::kNfc ? 0xCC : 0x80;
  return std::all_of(text.begin(), text.end(),
                     [limit](char c) { return static_cast<unsigned char>(c) < limit; });
}

}  // namespace

std::string Normalize(std::string_view text, NormalForm form) {
  if (IsNormalizedAtSight(text, form)) return std::string(text);
  utf8proc_uint8_t* raw = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &raw, OptionsOf(form));
  const std::unique_ptr<utf8proc_uint8_t, FreeDeleter> owned(raw);
  // Valid UTF-8 can fail only for want of memory; the text as it came is the best left to give.
  if (length < 0) return std::string(text);
  return std::string(reinterpret_cast<const char*>(raw), static_cast<size_t>(length));
}

std::string Lowercase(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const char32_t code = NextCodePoint(text, &pos);
    if (code == 0x130) {  // the only letter whose lower case is two code points
      lower.append("i\xCC\x87");
      continue;
    }
    AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))),
               &lower);
  }
  return lower;
}

bool IsWhitespace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x9 && c <= 0xD);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsNumeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO || IsNewerNumeric(c);
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

}  // namespace millrace
