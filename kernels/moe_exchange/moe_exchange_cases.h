// Shapes of the exchange, shared by test and bench.
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
    {0, 8, 4, 2, 2, 0},       {1, 1, 1, 1, 1, 0},      {1, 96, 8, 2, 4, 0},
    {7, 137, 9, 3, 4, 3},     {300, 64, 64, 6, 8, 0},  {33, 16, 5, 5, 2, 1},
    {5, 1096, 256, 8, 32, 4}, {9000, 4, 384, 6, 8, 0}, {2100, 5, 37, 6, 32, 0},
};

// What the benchmark times.
struct MoeExchangeServed {
  int64_t tokens;
  int64_t hidden;
  int64_t experts;
  int64_t chosen;
  int64_t ranks;
  bool large = false;  // of a size that only a GPU is given
};

inline constexpr MoeExchangeServed kMoeExchangeServed[] = {
    {1, 4096, 256, 6, 8},          {16, 4096, 256, 6, 8},         {64, 4096, 256, 6, 8},
    {512, 4096, 256, 6, 8},        {2048, 4096, 256, 6, 8, true}, {8192, 4096, 256, 6, 8, true},
    {8192, 7168, 384, 6, 8, true}, {8192, 4096, 256, 6, 2, true},
};

}  // namespace millrace

#endif  // KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_CASES_H_
