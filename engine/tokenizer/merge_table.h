// Which pairs of tokens merge, in which order, into what.
#ifndef ENGINE_TOKENIZER_MERGE_TABLE_H_
#define ENGINE_TOKENIZER_MERGE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace {

// A merge packed so that the smaller value is the one to do first: rank, then the new token.
using Merge = uint64_t;
inline constexpr Merge kNoMerge = ~Merge{0};
inline Merge PackMerge(uint32_t rank, int32_t result) {
  return Merge{rank} << 32 | static_cast<uint32_t>(result);
}
inline int32_t MergeResult(Merge merge) { return static_cast<int32_t>(merge & 0xFFFFFFFF); }

// A hash table with open addressing over pairs. Filled once, then read by any thread.
class MergeTable {
 public:
  explicit MergeTable(size_t max_pairs = 0) {
    size_t slots = 16;
    while (slots < 2 * max_pairs) slots *= 2;
    slots_.assign(slots, Slot{kEmpty, kNoMerge});
    mask_ = slots - 1;
  }

  // The last entry for a pair stands. REQUIRES: at most max_pairs different pairs.
  void Set(int32_t left, int32_t right, Merge merge) {
    const uint64_t pair = Pack(left, right);
    size_t at = Home(pair);
    while (slots_[at].pair != kEmpty && slots_[at].pair != pair) at = (at + 1) & mask_;
    slots_[at] = Slot{pair, merge};
  }

  // kNoMerge when the two do not merge. REQUIRES: ids >= 0.
  Merge Find(int32_t left, int32_t right) const {
    const uint64_t pair = Pack(left, right);
    for (size_t at = Home(pair);; at = (at + 1) & mask_) {
      if (slots_[at].pair == pair) return slots_[at].merge;
      if (slots_[at].pair == kEmpty) return kNoMerge;
    }
  }

 private:
  struct Slot {
    uint64_t pair;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  static uint64_t Pack(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t Home(uint64_t pair) const {
    const uint64_t mixed = pair * 0x9E3779B97F4A7C15ULL;
    return (mixed ^ mixed >> 32) & mask_;
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_MERGE_TABLE_H_
