// Shapes of the test and the benchmark.
#ifndef KERNELS_LATENT_APPEND_LATENT_APPEND_CASES_H_
#define KERNELS_LATENT_APPEND_LATENT_APPEND_CASES_H_

#include <cstdint>

#include "kernels/core/dtype.h"

namespace millrace {

struct LatentAppendCase {
  int64_t tokens, dim, pages, page_tokens;
  DType from = DType::kF32;
  DType store = DType::kF32;
  int64_t padding = 0;  // elements after each row of `rows`
};

inline constexpr LatentAppendCase kLatentAppendCases[] = {
    {0, 64, 2, 4},
    {1, 1, 1, 1},
    {9, 20, 4, 5, DType::kF32, DType::kF32, 3},
    {17, 7, 9, 3, DType::kF32, DType::kBF16, 1},
    {11, 33, 3, 7, DType::kBF16, DType::kBF16, 2},
    {6, 24, 2, 4, DType::kBF16, DType::kF32, 5},
    {300, 512, 4, 128, DType::kF32, DType::kBF16},
    {0, 512, 1, 2, DType::kF32, DType::kU8},
    {1, 512, 1, 1, DType::kF32, DType::kU8},
    {13, 512, 5, 7, DType::kF32, DType::kU8, 4},
    {12, 512, 3, 5, DType::kBF16, DType::kU8, 6},
    {200, 512, 3, 128, DType::kF32, DType::kU8},
    {37, 512, 3, 64, DType::kBF16, DType::kU8},
    {9, 1032, 2, 9, DType::kBF16, DType::kBF16, 8},
    {5, 520, 2, 3, DType::kBF16, DType::kF32},
};

// DeepSeek-V4's rows, on the benchmark's activations.
struct LatentAppendServed {
  const char* name;
  int64_t tokens;
  DType store = DType::kU8;
};

inline constexpr LatentAppendServed kLatentAppendServed[] = {
    {"fp8_1", 1},
    {"fp8_16", 16},
    {"fp8_64", 64},
    {"fp8_512", 512},
    {"bf16_1", 1, DType::kBF16},
    {"bf16_512", 512, DType::kBF16},
};

inline constexpr LatentAppendServed kLatentAppendServedOnGpu[] = {
    {"fp8_2048", 2048},
    {"fp8_8192", 8192},
    {"fp8_65536", 65536},
    {"bf16_8192", 8192, DType::kBF16},
    {"bf16_65536", 65536, DType::kBF16},
};

}  // namespace millrace

#endif  // KERNELS_LATENT_APPEND_LATENT_APPEND_CASES_H_
