// The merging loop of byte pair encoding.
#ifndef ENGINE_TOKENIZER_MERGER_H_
#define ENGINE_TOKENIZER_MERGER_H_

#include <cstdint>
#include <vector>

#include "engine/tokenizer/merge_table.h"

namespace millrace {

// The working memory of MergeAll. One thread at a time.
struct MergerScratch {
  struct Candidate {
    Merge merge;
    uint32_t pos;
  };
  std::vector<Merge> merges;  // by position: of the symbol there with the next one
  std::vector<uint32_t> next;
  std::vector<uint32_t> previous;
  std::vector<Candidate> heap;
};

// Merges *symbols in place until no pair merges: always the pair of the lowest rank, of equal ones
// the leftmost. O(n log n) for n symbols. REQUIRES: fewer than 2^32 symbols, ids >= 0.
void MergeAll(const MergeTable& table, std::vector<int32_t>* symbols, MergerScratch* scratch);

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_MERGER_H_
