// Shapes of LatentRope, shared by test and bench.
#ifndef KERNELS_LATENT_ROPE_LATENT_ROPE_CASES_H_
#define KERNELS_LATENT_ROPE_LATENT_ROPE_CASES_H_

#include <cstdint>

#include "kernels/core/dtype.h"

namespace millrace {

struct LatentRopeCase {
  int64_t tokens, heads, dim, pairs;
  int64_t padding = 0;  // elements after each head
  DType dtype = DType::kF32;
};

inline constexpr LatentRopeCase kLatentRopeCases[] = {
    {0, 4, 64, 8},
    {1, 1, 2, 1},
    {3, 2, 5, 0, 1},
    {7, 64, 512, 32},      // queries of Flash
    {5, 1, 512, 32, 8},    // its rows
    {9, 3, 128, 32, 4},    // index queries
    {6, 4, 64, 8, 0},      // the tiny model
    {13, 3, 21, 7, 3},     // no whole vectors
    {4, 2, 1300, 512, 2},  // longer than any buffer, as many pairs as may be
    {200, 5, 96, 48},      // several threads, all channels
    {11, 3, 70, 9, 2, DType::kBF16},
    {3, 64, 512, 32, 0, DType::kBF16},
    // Whole vectors of bf16: one head, few lanes a head, all channels, as long as registers take.
    {5, 1, 512, 32, 8, DType::kBF16},
    {7, 5, 96, 8, 0, DType::kBF16},
    {4, 9, 64, 32, 8, DType::kBF16},
    {2, 3, 1024, 256, 0, DType::kBF16},
    {2, 3, 1032, 32, 0, DType::kBF16},
    {520, 9, 128, 32, 0, DType::kBF16},
};

// What the benchmark times: heads of 512 channels, 64 of them rotated.
struct LatentRopeServed {
  int64_t tokens, heads;
  bool norm = false, inverse = false;
  bool large = false;  // of a size that only a GPU is given
};

inline constexpr LatentRopeServed kLatentRopeServed[] = {
    {1, 64, true},
    {1, 1},
    {1, 64, false, true},
    {64, 64, true},
    {64, 1},
    {64, 64, false, true},
    {512, 64, true, false, true},
    {4096, 64, true, false, true},
    {4096, 1},
    {4096, 64, false, true, true},
};

}  // namespace millrace

#endif  // KERNELS_LATENT_ROPE_LATENT_ROPE_CASES_H_
