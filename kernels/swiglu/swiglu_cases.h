// Shapes of Swiglu, shared by test and bench.
#ifndef KERNELS_SWIGLU_SWIGLU_CASES_H_
#define KERNELS_SWIGLU_SWIGLU_CASES_H_

#include <cstdint>

namespace millrace {

struct SwigluCase {
  int64_t tokens;
  int64_t size;
  int64_t row_padding;
  int64_t block = 0;
  float limit = 0;
};

inline constexpr SwigluCase kSwigluCases[] = {
    {0, 64, 0},          {1, 1, 0},         {1, 1536, 0},         {13, 137, 0},
    {64, 768, 0},        {7, 33, 5},        {300, 7, 1},          {2, 14336, 0},
    {512, 352, 8},       {5, 64, 0, 16},    {3, 60, 2, 5},        {2, 7, 0, 7},
    {9, 24, 0, 1},       {4, 1536, 8, 128}, {5, 137, 3, 0, 2.5f}, {6, 64, 0, 16, 0.75f},
    {3, 2048, 0, 0, 10},
};

// What the benchmark times.
struct SwigluServed {
  int64_t tokens;
  int64_t size;
  int64_t block = 0;
  bool large = false;  // of a size that only a GPU is given
};

inline constexpr SwigluServed kSwigluServed[] = {
    {1, 1536},
    {512, 1536},
    {1, 14336},
    {16, 14336},
    {64, 14336},
    {512, 14336},
    {512, 14336, 64},
    {2048, 14336, 0, true},
    {8192, 14336, 0, true},
    {8192, 14336, 64, true},
};

}  // namespace millrace

#endif  // KERNELS_SWIGLU_SWIGLU_CASES_H_
