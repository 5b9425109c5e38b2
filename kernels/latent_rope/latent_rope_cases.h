// Shapes of the test.
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
};

}  // namespace millrace

#endif  // KERNELS_LATENT_ROPE_LATENT_ROPE_CASES_H_
