// Shapes of the test.
#ifndef KERNELS_INDEX_SELECT_INDEX_SELECT_CASES_H_
#define KERNELS_INDEX_SELECT_INDEX_SELECT_CASES_H_

#include <cstdint>

#include "kernels/core/dtype.h"

namespace millrace {

struct IndexSelectCase {
  int64_t heads, dim, chosen, ratio, page_tokens;
  DType q = DType::kF32;
  DType keys = DType::kF32;
  int64_t padding = 0;  // elements after each head and row
};

inline constexpr IndexSelectCase kIndexSelectCases[] = {
    {64, 128, 512, 4, 128, DType::kF32, DType::kBF16},  // Flash
    {64, 128, 16, 4, 128, DType::kBF16, DType::kBF16, 8},
    {8, 32, 4, 4, 128},  // the tiny model
    {8, 128, 16, 4, 128, DType::kF32, DType::kF32, 3},
    {1, 1, 1, 1, 3},
    {33, 20, 7, 3, 18, DType::kF32, DType::kF32, 1},
    {5, 7, 100, 4, 16, DType::kBF16, DType::kF32, 2},
    {17, 48, 2, 128, 256},
};

// For the benchmark: Flash, bf16 keys in 128-token pages.
struct IndexSelectServed {
  const char* name;
  int64_t sequences, before, tokens;  // of each sequence
};

inline constexpr IndexSelectServed kIndexSelectServed[] = {
    {"decode_4k", 1, 4096, 1},
    {"decode_64k", 1, 65536, 1},
    {"decode_8_of_4k", 8, 4096, 1},
    {"prefill_64_at_4k", 1, 4096, 64},
};

inline constexpr IndexSelectServed kIndexSelectServedOnGpu[] = {
    {"decode_1m", 1, 1048575, 1},          {"decode_64_of_4k", 64, 4096, 1},
    {"decode_64_of_32k", 64, 32768, 1},    {"prefill_4096", 1, 0, 4096},
    {"prefill_1024_at_4k", 1, 4096, 1024}, {"prefill_1024_at_64k", 1, 65536, 1024},
};

}  // namespace millrace

#endif  // KERNELS_INDEX_SELECT_INDEX_SELECT_CASES_H_
