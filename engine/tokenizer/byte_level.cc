#include "engine/tokenizer/byte_level.h"

#include <array>

#include "engine/tokenizer/utf8.h"

namespace millrace {
namespace {

constexpr bool StandsForItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Bytes that are not printable in Latin-1 take the code points from U+0100 up, in order.
constexpr std::array<char32_t, 256> MakeAlphabet() {
  std::array<char32_t, 256> alphabet{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    alphabet[byte] = StandsForItself(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return alphabet;
}
constexpr std::array<char32_t, 256> kAlphabet = MakeAlphabet();
constexpr char32_t kAlphabetEnd = 0x100 + 68;
static_assert(kAlphabet[' '] == 0x120 && kAlphabet[0xAD] == kAlphabetEnd - 1);

constexpr std::array<int16_t, kAlphabetEnd> MakeInverse() {
  std::array<int16_t, kAlphabetEnd> inverse{};
  for (auto& entry : inverse) entry = -1;
  for (int byte = 0; byte < 256; ++byte) inverse[kAlphabet[byte]] = static_cast<int16_t>(byte);
  return inverse;
}
constexpr std::array<int16_t, kAlphabetEnd> kInverse = MakeInverse();

}  // namespace

char32_t ByteLevelChar(uint8_t byte) { return kAlphabet[byte]; }

std::string EncodeByteLevel(std::string_view bytes) {
  std::string spelled;
  for (const char c : bytes) AppendUtf8(kAlphabet[static_cast<unsigned char>(c)], &spelled);
  return spelled;
}

std::optional<std::string> DecodeByteLevel(std::string_view spelled) {
  std::string bytes;
  for (size_t pos = 0; pos < spelled.size();) {
    const char32_t code = NextCodePoint(spelled, &pos);
    if (code >= kAlphabetEnd || kInverse[code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kInverse[code]));
  }
  return bytes;
}

}  // namespace millrace
