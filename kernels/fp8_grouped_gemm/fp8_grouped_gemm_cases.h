// Shapes of Fp8GroupedGemm, shared by its test and its benchmark.
#ifndef KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_CASES_H_
#define KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_CASES_H_

#include <array>
#include <cstdint>

namespace millrace {

// Paddings in elements, of rows of codes and of scales of x; `spare`: rows that are no group's,
// masked behind each group's, contiguous ahead of all and behind.
struct Fp8GroupedGemmCase {
  int64_t groups;
  std::array<int32_t, 6> rows;  // of the first groups; beyond 6, they come round again
  int64_t inputs, outputs, spare, padding, scale_padding;
};

// Empty groups, first, last and all; groups of one row, of all places, of rows on each side of the
// widths of the kernels' tiles, beginning anywhere; blocks of 128 inputs and outputs whole and
// short; more groups than a warp has lanes, and tiles than a GPU has
// multiprocessors; rows off 16 bytes.
inline constexpr Fp8GroupedGemmCase kFp8GroupedGemmCases[] = {
    {1, {5}, 128, 128, 0, 0, 3},
    {3, {0, 0, 0}, 128, 8, 4, 0, 0},
    {4, {3, 0, 1, 8}, 144, 130, 5, 0, 3},
    {6, {0, 17, 33, 0, 16, 1}, 272, 333, 2, 16, 1},
    {5, {64, 65, 0, 129, 7}, 400, 264, 1, 0, 2},
    {2, {300, 257}, 272, 520, 3, 16, 0},
    {70, {2, 0, 0, 1, 0, 9}, 144, 40, 1, 0, 2},
    {80, {2, 1, 1, 1, 3, 9}, 144, 264, 1, 16, 0},
    {3, {4, 9, 130}, 100, 33, 1, 1, 0},
};

// Of the experts of a mixture, the ones that grouped FP8 products are compared at.
struct Fp8GroupedServed {
  int64_t outputs, inputs;
};
inline constexpr Fp8GroupedServed kFp8GroupedServed[] = {{4096, 7168}, {4096, 4096}, {4096, 2048}};

}  // namespace millrace

#endif  // KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_CASES_H_
