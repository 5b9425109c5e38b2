// Shapes of the hyper-connections, shared by test and bench.
#ifndef KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_CASES_H_
#define KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_CASES_H_

#include <cstdint>

namespace millrace {

struct HyperConnectionCase {
  int64_t tokens;
  int64_t streams;
  int64_t width;
  int64_t row_padding;
};

inline constexpr HyperConnectionCase kHyperConnectionCases[] = {
    {0, 4, 64, 0}, {1, 1, 1, 0},  {1, 4, 96, 0}, {2, 4, 512, 8}, {13, 4, 137, 3},
    {5, 2, 33, 1}, {4, 8, 24, 0}, {90, 4, 5, 0}, {17, 3, 16, 0}, {9, 4, 192, 0},
};

// The widest published model.
inline constexpr HyperConnectionCase kHyperConnectionWidest = {2, 4, 7168, 0};

}  // namespace millrace

#endif  // KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_CASES_H_
