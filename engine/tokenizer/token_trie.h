// Finds the longest of many byte strings at a place in a text.
#ifndef ENGINE_TOKENIZER_TOKEN_TRIE_H_
#define ENGINE_TOKENIZER_TOKEN_TRIE_H_

#include <bitset>
#include <cstdint>
#include <string_view>

#include "absl/container/flat_hash_map.h"

namespace millrace {

// Filled once, then read by any thread.
class TokenTrie {
 public:
  struct Hit {
    size_t begin = 0;
    size_t end = 0;
    int32_t value = -1;
  };

  // The last value for the same text stands. REQUIRES: text not empty, value >= 0.
  void Add(std::string_view text, int32_t value);

  bool empty() const { return starts_.none(); }

  // The leftmost hit at or after `from`, of those that begin there the longest; false if none.
  // A text without hits costs one table look-up per byte; at worst a byte costs the length of
  // the longest entry.
  bool Find(std::string_view text, size_t from, Hit* hit) const;

 private:
  static uint64_t Edge(uint32_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }

  std::bitset<256> starts_;                        // first bytes of the entries
  absl::flat_hash_map<uint64_t, uint32_t> edges_;  // (node, byte) -> node
  absl::flat_hash_map<uint32_t, int32_t> values_;  // nodes where an entry ends
  uint32_t nodes_ = 1;                             // node 0 is the root
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_TOKEN_TRIE_H_
