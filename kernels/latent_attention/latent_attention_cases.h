// Shapes of the test and the benchmark.
#ifndef KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_CASES_H_
#define KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_CASES_H_

#include <cstdint>

#include "kernels/core/dtype.h"

namespace millrace {

struct LatentAttentionCase {
  int64_t heads, dim, window, page_tokens;
  int64_t ratio = 0;   // 0: no compressed rows
  int64_t chosen = 0;  // of them; 0: all that a token sees
  DType q = DType::kF32;
  DType rows = DType::kF32;
  int64_t padding = 0;  // elements after each head
};

inline constexpr LatentAttentionCase kLatentAttentionCases[] = {
    {64, 512, 128, 128, 4, 64, DType::kF32, DType::kU8},  // Flash
    {64, 512, 128, 128, 128, 0, DType::kF32, DType::kU8},
    {16, 512, 128, 128, 0, 0, DType::kBF16, DType::kU8, 8},
    {32, 512, 128, 256, 4, 16, DType::kBF16, DType::kBF16},
    {64, 512, 128, 128, 4, 24, DType::kBF16, DType::kU8, 8},
    {70, 512, 21, 128, 128, 0, DType::kBF16, DType::kU8},
    {5, 512, 90, 64, 1, 70, DType::kBF16, DType::kBF16, 8},
    {9, 512, 21, 64, 4, 5, DType::kBF16, DType::kU8, 1},  // heads on any two bytes
    {4, 64, 16, 128, 4, 4},                               // the tiny model
    {4, 64, 16, 128, 128, 0},
    {2, 64, 16, 128},
    {1, 16, 1, 4},
    {5, 16, 3, 4, 2, 3, DType::kF32, DType::kF32, 3},
    {3, 48, 7, 6, 3, 0, DType::kF32, DType::kBF16, 1},
    {17, 32, 70, 16, 4, 100, DType::kBF16, DType::kF32, 2},  // more than a token sees
    {33, 80, 1000, 32, 1, 0, DType::kF32, DType::kF32, 5},   // a window longer than any sequence
};

// For the benchmark: Flash, one rank, FP8 rows of 128-token pages.
struct LatentAttentionServed {
  const char* name;
  int64_t sequences, before, tokens;  // of each sequence
  int64_t ratio, chosen;
};

inline constexpr LatentAttentionServed kLatentAttentionServed[] = {
    {"window_decode", 1, 4096, 1, 0, 0},     {"csa_decode", 1, 4096, 1, 4, 512},
    {"csa_decode_8", 8, 4096, 1, 4, 512},    {"hca_decode_128k", 1, 131071, 1, 128, 0},
    {"csa_prefill_64", 1, 2048, 64, 4, 512},
};

inline constexpr LatentAttentionServed kLatentAttentionServedOnGpu[] = {
    {"window_decode_32", 32, 4096, 1, 0, 0},     {"csa_decode_32", 32, 4096, 1, 4, 512},
    {"csa_decode_128", 128, 4096, 1, 4, 512},    {"window_prefill_2048", 1, 2048, 2048, 0, 0},
    {"csa_prefill_2048", 1, 2048, 2048, 4, 512}, {"hca_prefill_2048", 1, 2048, 2048, 128, 0},
};

}  // namespace millrace

#endif  // KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_CASES_H_
