// Shapes of RmsNorm, shared by test and bench.
#ifndef KERNELS_RMS_NORM_RMS_NORM_CASES_H_
#define KERNELS_RMS_NORM_RMS_NORM_CASES_H_

#include <cstdint>

namespace millrace {

struct RmsNormCase {
  int64_t tokens;
  int64_t size;
  int64_t row_padding;
};

inline constexpr RmsNormCase kRmsNormCases[] = {
    {0, 64, 0},   {1, 1, 0},    {1, 576, 0},   {13, 137, 0},  {7, 4096, 8},
    {64, 576, 0}, {3, 8200, 0}, {5, 8192, 16}, {2, 16385, 1}, {300, 40, 3},
};

}  // namespace millrace

#endif  // KERNELS_RMS_NORM_RMS_NORM_CASES_H_
