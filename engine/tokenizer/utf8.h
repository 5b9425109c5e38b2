// UTF-8 at the byte level: validation, code points, and the streaming replacement of bad bytes.
#ifndef ENGINE_TOKENIZER_UTF8_H_
#define ENGINE_TOKENIZER_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

// What a byte that is part of no code point is shown as (U+FFFD).
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Offset of the first byte that is not part of well-formed UTF-8, or npos when all of it is.
size_t FindInvalidUtf8(std::string_view text);

// Bytes of the code point that begins with `lead`. REQUIRES: lead begins one in valid text.
inline size_t Utf8Length(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// The code point at *pos; moves *pos past it. REQUIRES: valid UTF-8, *pos at a boundary.
char32_t NextCodePoint(std::string_view text, size_t* pos);

// The code point that ends just before `end`. REQUIRES: valid UTF-8, end > 0 at a boundary.
char32_t CodePointBefore(std::string_view text, size_t end);

void AppendUtf8(char32_t code_point, std::string* out);

// Follows a byte stream and knows at each moment whether it can still be UTF-8.
class Utf8Tracker {
 public:
  enum class State { kComplete, kPartial, kInvalid };
  // Once kInvalid it stays so until Reset().
  State Push(unsigned char byte);
  State state() const { return state_; }
  void Reset() { *this = Utf8Tracker(); }

 private:
  State state_ = State::kComplete;
  int missing_ = 0;           // continuation bytes still to come
  unsigned char low_ = 0x80;  // allowed range of the next one
  unsigned char high_ = 0xBF;
};

// Turns a byte stream into valid UTF-8: each maximal broken part becomes one U+FFFD, as the
// Unicode standard recommends. Holds back at most three bytes that may still become a character.
class Utf8Sanitizer {
 public:
  void Push(std::string_view bytes, std::string* out);
  // Writes what is still held as one U+FFFD.
  void Finish(std::string* out);

 private:
  Utf8Tracker tracker_;
  std::string pending_;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_UTF8_H_
