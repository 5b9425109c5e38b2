// Shapes of the test.
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
    {0, 8, 0}, {3, 0, 0}, {1, 1, 0}, {1, 7168, 0}, {7, 137, 3}, {300, 96, 0}, {65, 4096, 8},
};

}  // namespace millrace

#endif  // KERNELS_ADD_ADD_CASES_H_
