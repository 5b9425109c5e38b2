#include "engine/tokenizer/newer_characters.h"

#include <algorithm>
#include <bitset>

#include "engine/tokenizer/utf8.h"

namespace millrace {
namespace {

enum Kind : unsigned char { kLu, kLl, kLm, kLo, kHan, kM, kNd, kNo, kP, kS, kNumKinds };

struct Range {
  char32_t first;
  char32_t last;
  Kind kind;
};

// Assigned in Unicode 15.0 to 16.0, in order.
// clang-format off
constexpr Range kNewer[] = {
    {0x897, 0x897, kM}, {0xCF3, 0xCF3, kM}, {0xECE, 0xECE, kM}, {0x1B4E, 0x1B4F, kP},
    {0x1B7F, 0x1B7F, kP}, {0x1C89, 0x1C89, kLu}, {0x1C8A, 0x1C8A, kLl}, {0x2427, 0x2429, kS},
    {0x2FFC, 0x2FFF, kS}, {0x31E4, 0x31E5, kS}, {0x31EF, 0x31EF, kS}, {0xA7CB, 0xA7CC, kLu},
    {0xA7CD, 0xA7CD, kLl}, {0xA7DA, 0xA7DA, kLu}, {0xA7DB, 0xA7DB, kLl}, {0xA7DC, 0xA7DC, kLu},
    {0x105C0, 0x105F3, kLo}, {0x10D40, 0x10D49, kNd}, {0x10D4A, 0x10D4D, kLo},
    {0x10D4E, 0x10D4E, kLm}, {0x10D4F, 0x10D4F, kLo}, {0x10D50, 0x10D65, kLu},
    {0x10D69, 0x10D6D, kM}, {0x10D6E, 0x10D6E, kP}, {0x10D6F, 0x10D6F, kLm},
    {0x10D70, 0x10D85, kLl}, {0x10D8E, 0x10D8F, kS}, {0x10EC2, 0x10EC4, kLo},
    {0x10EFC, 0x10EFF, kM}, {0x1123F, 0x11240, kLo}, {0x11241, 0x11241, kM},
    {0x11380, 0x11389, kLo}, {0x1138B, 0x1138B, kLo}, {0x1138E, 0x1138E, kLo},
    {0x11390, 0x113B5, kLo}, {0x113B7, 0x113B7, kLo}, {0x113B8, 0x113C0, kM},
    {0x113C2, 0x113C2, kM}, {0x113C5, 0x113C5, kM}, {0x113C7, 0x113CA, kM}, {0x113CC, 0x113D0, kM},
    {0x113D1, 0x113D1, kLo}, {0x113D2, 0x113D2, kM}, {0x113D3, 0x113D3, kLo},
    {0x113D4, 0x113D5, kP}, {0x113D7, 0x113D8, kP}, {0x113E1, 0x113E2, kM},
    {0x116D0, 0x116E3, kNd}, {0x11B00, 0x11B09, kP}, {0x11BC0, 0x11BE0, kLo},
    {0x11BE1, 0x11BE1, kP}, {0x11BF0, 0x11BF9, kNd}, {0x11F00, 0x11F01, kM},
    {0x11F02, 0x11F02, kLo}, {0x11F03, 0x11F03, kM}, {0x11F04, 0x11F10, kLo},
    {0x11F12, 0x11F33, kLo}, {0x11F34, 0x11F3A, kM}, {0x11F3E, 0x11F42, kM},
    {0x11F43, 0x11F4F, kP}, {0x11F50, 0x11F59, kNd}, {0x11F5A, 0x11F5A, kM},
    {0x1342F, 0x1342F, kLo}, {0x13440, 0x13440, kM}, {0x13441, 0x13446, kLo},
    {0x13447, 0x13455, kM}, {0x13460, 0x143FA, kLo}, {0x16100, 0x1611D, kLo},
    {0x1611E, 0x1612F, kM}, {0x16130, 0x16139, kNd}, {0x16D40, 0x16D42, kLm},
    {0x16D43, 0x16D6A, kLo}, {0x16D6B, 0x16D6C, kLm}, {0x16D6D, 0x16D6F, kP},
    {0x16D70, 0x16D79, kNd}, {0x18CFF, 0x18CFF, kLo}, {0x1B132, 0x1B132, kLo},
    {0x1B155, 0x1B155, kLo}, {0x1CC00, 0x1CCEF, kS}, {0x1CCF0, 0x1CCF9, kNd},
    {0x1CD00, 0x1CEB3, kS}, {0x1D2C0, 0x1D2D3, kNo}, {0x1DF25, 0x1DF2A, kLl},
    {0x1E030, 0x1E06D, kLm}, {0x1E08F, 0x1E08F, kM}, {0x1E4D0, 0x1E4EA, kLo},
    {0x1E4EB, 0x1E4EB, kLm}, {0x1E4EC, 0x1E4EF, kM}, {0x1E4F0, 0x1E4F9, kNd},
    {0x1E5D0, 0x1E5ED, kLo}, {0x1E5EE, 0x1E5EF, kM}, {0x1E5F0, 0x1E5F0, kLo},
    {0x1E5F1, 0x1E5FA, kNd}, {0x1E5FF, 0x1E5FF, kP}, {0x1F6DC, 0x1F6DC, kS},
    {0x1F774, 0x1F776, kS}, {0x1F77B, 0x1F77F, kS}, {0x1F7D9, 0x1F7D9, kS}, {0x1F8B2, 0x1F8BB, kS},
    {0x1F8C0, 0x1F8C1, kS}, {0x1FA75, 0x1FA77, kS}, {0x1FA87, 0x1FA89, kS}, {0x1FA8F, 0x1FA8F, kS},
    {0x1FAAD, 0x1FAAF, kS}, {0x1FABB, 0x1FABF, kS}, {0x1FAC6, 0x1FAC6, kS}, {0x1FACE, 0x1FACF, kS},
    {0x1FADA, 0x1FADC, kS}, {0x1FADF, 0x1FADF, kS}, {0x1FAE8, 0x1FAE9, kS}, {0x1FAF7, 0x1FAF8, kS},
    {0x1FBCB, 0x1FBEF, kS}, {0x2B739, 0x2B739, kHan}, {0x2EBF0, 0x2EE5D, kHan},
    {0x31350, 0x323AF, kHan},
};
// clang-format on

// Old characters of each kind, of three and of four bytes.
constexpr char32_t kStandIns[kNumKinds][2] = {
    /* Lu  */ {0x2C60, 0x10400}, /* Ll  */ {0x2C61, 0x10428}, /* Lm  */ {0x2C7C, 0x16B40},
    /* Lo  */ {0x0904, 0x10450}, /* Han */ {0x4E00, 0x20000}, /* M   */ {0x0900, 0x11001},
    /* Nd  */ {0x0966, 0x11066}, /* No  */ {0x2460, 0x10107}, /* P   */ {0x2E41, 0x11047},
    /* S   */ {0x2600, 0x1F600},
};

constexpr int kBlock = 64;  // code points per bit of the filter

using Filter = std::bitset<0x110000 / kBlock>;

Filter MakeFilter() {
  Filter filter;
  for (const Range& range : kNewer) {
    for (char32_t block = range.first / kBlock; block <= range.last / kBlock; ++block) {
      filter.set(block);
    }
  }
  return filter;
}

const Range* FindRange(char32_t code_point) {
  static const Filter filter = MakeFilter();
  if (!filter[code_point / kBlock]) return nullptr;
  const Range* end = std::end(kNewer);
  const Range* range =
      std::lower_bound(std::begin(kNewer), end, code_point,
                       [](const Range& candidate, char32_t code) { return candidate.last < code; });
  return range != end && range->first <= code_point ? range : nullptr;
}

}  // namespace

bool HasNewerCharacters(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    if (static_cast<unsigned char>(text[pos]) < 0xE0) {  // all newer ones have three bytes or four
      ++pos;
      continue;
    }
    if (FindRange(NextCodePoint(text, &pos)) != nullptr) return true;
  }
  return false;
}

std::string WithStandIns(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const char32_t code = NextCodePoint(text, &pos);
    const Range* range = FindRange(code);
    AppendUtf8(range == nullptr ? code : kStandIns[range->kind][code < 0x10000 ? 0 : 1], &out);
  }
  return out;
}

bool IsNewerNumeric(char32_t code_point) {
  const Range* range = FindRange(code_point);
  return range != nullptr && (range->kind == kNd || range->kind == kNo);
}

}  // namespace millrace
