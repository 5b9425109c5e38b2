// Remembers the ids of words already merged, in bounded memory.
#ifndef ENGINE_TOKENIZER_WORD_CACHE_H_
#define ENGINE_TOKENIZER_WORD_CACHE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace millrace {

// Two-way set-associative, about 2.5 MB when full; forgets everything when its store of keys or
// ids is full. One thread at a time.
class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 64;

  WordCache();

  // REQUIRES for all: word.size() <= kMaxWordBytes, hash == Hash(word).
  static uint64_t Hash(std::string_view word);

  // Appends the ids of `word` to *out; false when it is not known.
  bool Find(std::string_view word, uint64_t hash, std::vector<int32_t>* out) const;

  void Insert(std::string_view word, uint64_t hash, absl::Span<const int32_t> ids);

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t key = 0;  // offset into keys_
    uint32_t ids = 0;  // offset into ids_
    uint16_t key_bytes = 0;
    uint16_t id_count = 0;  // 0: empty slot
  };
  static size_t Home(uint64_t hash);

  std::vector<Slot> slots_;
  std::string keys_;
  std::vector<int32_t> ids_;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_WORD_CACHE_H_
