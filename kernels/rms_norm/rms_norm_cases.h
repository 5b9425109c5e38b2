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
    {9, 2048, 0}, {4, 2056, 8}, {2, 24576, 0},
};

// What the benchmark times.
struct RmsNormServed {
  int64_t tokens;
  int64_t size;
  bool large = false;  // of a size that only a GPU is given
};

inline constexpr RmsNormServed kRmsNormServed[] = {
    {1, 576},           {16, 576},           {512, 576},       {1, 4096},
    {16, 4096},         {64, 4096},          {512, 4096},      {2048, 4096, true},
    {8192, 4096, true}, {16384, 4096, true}, {64, 8192, true}, {8192, 8192, true},
};

}  // namespace millrace

#endif  // KERNELS_RMS_NORM_RMS_NORM_CASES_H_
