// Shapes of Swiglu, shared by test and bench.
#ifndef KERNELS_SWIGLU_SWIGLU_CASES_H_
#define KERNELS_SWIGLU_SWIGLU_CASES_H_

#include <cstdint>

namespace millrace {

struct SwigluCase {
  int64_t tokens;
  int64_t size;
  int64_t row_padding;
};

inline constexpr SwigluCase kSwigluCases[] = {
    {0, 64, 0}, {1, 1, 0},   {1, 1536, 0},  {13, 137, 0},  {64, 768, 0},
    {7, 33, 5}, {300, 7, 1}, {2, 14336, 0}, {512, 352, 8},
};

}  // namespace millrace

#endif  // KERNELS_SWIGLU_SWIGLU_CASES_H_
