// Shapes of the test.
#ifndef KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_CASES_H_
#define KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_CASES_H_

#include <cstdint>

namespace millrace {

struct MoeExchangeCase {
  int64_t tokens;
  int64_t hidden;
  int64_t experts;
  int64_t chosen;
  int64_t ranks;
  int64_t row_padding;
};

inline constexpr MoeExchangeCase kMoeExchangeCases[] = {
    {0, 8, 4, 2, 2, 0},   {1, 1, 1, 1, 1, 0},     {1, 96, 8, 2, 4, 0},
    {7, 137, 9, 3, 4, 3}, {300, 64, 64, 6, 8, 0}, {33, 16, 5, 5, 2, 1},
};

}  // namespace millrace

#endif  // KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_CASES_H_
