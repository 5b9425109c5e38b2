// Shapes of MoeExperts, for its test.
#ifndef KERNELS_MOE_EXPERTS_MOE_EXPERTS_CASES_H_
#define KERNELS_MOE_EXPERTS_MOE_EXPERTS_CASES_H_

#include <cstdint>

namespace millrace {

struct MoeExpertsCase {
  int64_t tokens;
  int64_t hidden;  // this and width: multiples of 32, so that every format has them
  int64_t width;
  int64_t all_experts;
  int64_t first_expert;  // of this rank
  int64_t experts;
  int64_t chosen;
  int64_t row_padding = 0;
  float limit = 0;
};

inline constexpr MoeExpertsCase kMoeExpertsCases[] = {
    {0, 64, 32, 4, 0, 4, 2},         {1, 32, 32, 1, 0, 1, 1},
    {1, 96, 64, 8, 0, 8, 2, 0, 2},   {5, 192, 128, 6, 0, 6, 2, 3, 1.5f},
    {7, 160, 32, 6, 2, 3, 4, 1, 10}, {3, 64, 96, 9, 8, 1, 2},
    {40, 96, 160, 5, 0, 5, 5},       {600, 32, 32, 7, 3, 4, 3, 2, 0.5f},
};

// With rounded activations, sizes as the GPU's kernels for NVFP4 divide them: pieces of 256 inputs,
// one to sixteen and more; streams of tiles in a block; items with few and 8 choices, experts
// with more; nobody's experts; rows off 16 bytes, which they leave to the plain ones.
inline constexpr MoeExpertsCase kMoeExpertsRoundedCases[] = {
    {1, 256, 256, 2, 0, 2, 1},     {3, 512, 256, 3, 0, 3, 2, 0, 2},
    {40, 256, 512, 2, 0, 2, 2, 4}, {7, 1280, 256, 6, 2, 2, 4, 8, 0.5f},
    {2, 4352, 256, 1, 0, 1, 1},    {1, 256, 4352, 2, 1, 1, 2, 0, 10},
    {9, 2048, 256, 9, 2, 3, 3},    {5, 256, 768, 2, 0, 2, 2, 3, 1},
};

// Served models' routed experts: DeepSeek-V4-Flash.
struct MoeExpertsServed {
  int64_t hidden, width, experts, chosen;
};
inline constexpr MoeExpertsServed kMoeExpertsServed = {4096, 2048, 256, 6};

}  // namespace millrace

#endif  // KERNELS_MOE_EXPERTS_MOE_EXPERTS_CASES_H_
