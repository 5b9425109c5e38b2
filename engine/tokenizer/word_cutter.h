// Finds the places in a word that no merge can cross, so that a long word falls into short ones.
//
// SentencePiece-style tokenizers often have no pre-tokenizer: the whole text is one word. But a
// merge can only join two characters if some token that a merge makes holds them side by side.
// Where no token does, the parts left and right are merged independently, and the result is the
// same as that of the whole.
#ifndef ENGINE_TOKENIZER_WORD_CUTTER_H_
#define ENGINE_TOKENIZER_WORD_CUTTER_H_

#include <bitset>
#include <cstdint>
#include <string_view>

#include "absl/container/flat_hash_set.h"

namespace millrace {

// Filled once, then read by any thread.
class WordCutter {
 public:
  // Takes note of the neighbours in a token that a merge makes. REQUIRES: valid UTF-8.
  void AddToken(std::string_view token);

  // Whether `left` and `right`, side by side in this order, may end up in one token.
  bool CanJoin(char32_t left, char32_t right) const {
    const uint32_t a = Class(left);
    const uint32_t b = Class(right);
    if (a < kClasses && b < kClasses) return common_[a * kClasses + b];
    return others_.contains(uint64_t{left} << 32 | right);
  }

 private:
  // ASCII and U+2581, SentencePiece's blank, are looked up in a table of bits.
  static constexpr uint32_t kClasses = 129;
  static uint32_t Class(char32_t c) { return c < 128 ? c : c == 0x2581 ? 128 : kClasses; }

  std::bitset<kClasses * kClasses> common_;
  absl::flat_hash_set<uint64_t> others_;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_WORD_CUTTER_H_
