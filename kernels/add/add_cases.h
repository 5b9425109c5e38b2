// Shapes of Add, shared by test and bench.
#ifndef KERNELS_ADD_ADD_CASES_H_
#define KERNELS_ADD_ADD_CASES_H_

#include <cstdint>

namespace millrace {

struct AddCase {
  int64_t tokens;
  int64_t width;
  int64_t row_padding;
};

inline constexpr AddCase kAddCases[] = {
    {0, 8, 0},    {3, 0, 0},     {1, 1, 0},    {1, 7168, 0},  {7, 137, 3},
    {300, 96, 0}, {65, 4096, 8}, {2, 2056, 1}, {66000, 1, 0},
};

// DeepSeek-V4-Flash's, decoded and in a prefill.
inline constexpr int64_t kAddServedWidth = 4096;
inline constexpr int64_t kAddServedTokens[] = {1, 8, 64, 1024, 8192};

}  // namespace millrace

#endif  // KERNELS_ADD_ADD_CASES_H_
