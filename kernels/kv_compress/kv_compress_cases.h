// Shapes of the test.
#ifndef KERNELS_KV_COMPRESS_KV_COMPRESS_CASES_H_
#define KERNELS_KV_COMPRESS_KV_COMPRESS_CASES_H_

#include <cstdint>

#include "kernels/core/dtype.h"

namespace millrace {

struct KvCompressCase {
  int64_t ratio, dim, pairs;
  int64_t page_tokens;
  int64_t carry_blocks = 0;  // of a page; 0: windows do not overlap
  DType store = DType::kF32;
  DType weight = DType::kF32;
};

inline constexpr KvCompressCase kKvCompressCases[] = {
    {4, 512, 32, 128, 1},                               // ratio-4 rows of Flash
    {4, 128, 32, 128, 1, DType::kBF16},                 // their index keys
    {128, 512, 32, 128, 0, DType::kF32, DType::kBF16},  // ratio-128 rows
    {4, 64, 8, 256, 2, DType::kBF16, DType::kBF16},     // the tiny model, larger pages
    {128, 64, 8, 384, 0},
    {4, 32, 8, 8, 1},   // two windows a block
    {4, 4, 2, 16, 4},   // each window the first of its block
    {3, 20, 5, 18, 2},  // sizes of no model
    {5, 12, 0, 10, 0},
    {1, 8, 1, 4, 0},  // a row for each token
};

// FP8 rows, of Flash's shape.
inline constexpr KvCompressCase kKvCompressFp8Cases[] = {
    {4, 512, 32, 128, 1, DType::kU8},
    {128, 512, 32, 256, 0, DType::kU8},
};

}  // namespace millrace

#endif  // KERNELS_KV_COMPRESS_KV_COMPRESS_CASES_H_
