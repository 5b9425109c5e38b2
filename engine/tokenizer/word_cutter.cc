#include "engine/tokenizer/word_cutter.h"

#include "engine/tokenizer/utf8.h"

namespace millrace {

void WordCutter::AddToken(std::string_view token) {
  if (token.empty()) return;
  size_t pos = 0;
  char32_t left = NextCodePoint(token, &pos);
  while (pos < token.size()) {
    const char32_t right = NextCodePoint(token, &pos);
    const uint32_t a = Class(left);
    const uint32_t b = Class(right);
    if (a < kClasses && b < kClasses) {
      common_.set(a * kClasses + b);
    } else {
      others_.insert(uint64_t{left} << 32 | right);
    }
    left = right;
  }
}

}  // namespace millrace
