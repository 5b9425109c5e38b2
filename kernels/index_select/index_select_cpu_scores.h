// What the CPU row hands to the code of one instruction set.
#ifndef KERNELS_INDEX_SELECT_INDEX_SELECT_CPU_SCORES_H_
#define KERNELS_INDEX_SELECT_INDEX_SELECT_CPU_SCORES_H_

#include <cstdint>

#include "kernels/core/dtype.h"

namespace millrace {

// Scores of entries [begin, end) for one token.
struct IndexScores {
  const float* q = nullptr;        // [heads][dim]
  const float* weights = nullptr;  // [heads], scaled
  int64_t heads = 0;
  int64_t dim = 0;
  const int32_t* pages = nullptr;  // of the token's sequence
  const void* keys = nullptr;
  DType keys_dtype = DType::kF32;
  int64_t page_stride = 0;  // in elements
  int64_t key_stride = 0;
  int64_t page_entries = 0;
  int64_t begin = 0;
  int64_t end = 0;
  float* scores = nullptr;   // of entry 0
  float* scratch = nullptr;  // IndexScratchFloats(heads, dim)
};

struct IndexKernels {
  void (*score)(const IndexScores&);
};

extern const IndexKernels kIndexScalar;
extern const IndexKernels kIndexAvx2;
extern const IndexKernels kIndexAvx512;

// Heads are taken in panels, of at most so many.
inline constexpr int64_t kIndexMaxPanel = 32;
inline constexpr int64_t kIndexKeysTogether = 4;

constexpr int64_t IndexPaddedHeads(int64_t heads) {
  return (heads + kIndexMaxPanel - 1) / kIndexMaxPanel * kIndexMaxPanel;
}

// Panels of queries, their weights, keys widened to floats.
constexpr int64_t IndexScratchFloats(int64_t heads, int64_t dim) {
  return IndexPaddedHeads(heads) * (dim + 1) + kIndexKeysTogether * dim;
}

}  // namespace millrace

#endif  // KERNELS_INDEX_SELECT_INDEX_SELECT_CPU_SCORES_H_
