// What kernels that read and write 16 bytes at a time ask about their operands.
#ifndef KERNELS_CORE_ROWS_ALIGNED_H_
#define KERNELS_CORE_ROWS_ALIGNED_H_

#include <cstdint>

#include "kernels/core/tensor_view.h"

namespace millrace {

// Whether every innermost row of t, of rank >= 1, begins on a multiple of `bytes`. The stride of a
// dimension of size 0 or 1 is never used and does not count.
inline bool RowsAligned(const TensorView& t, int64_t bytes = 16) {
  bool aligned = reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(bytes) == 0;
  for (int i = 0; i + 1 < t.rank; ++i) {
    aligned &= t.dim(i) <= 1 || t.stride(i) * DTypeBytes(t.dtype) % bytes == 0;
  }
  return aligned;
}

// Eight elements' worth: 16 bytes of bf16, 8 of codes.
inline bool RowsOfEights(const TensorView& t) { return RowsAligned(t, 8 * DTypeBytes(t.dtype)); }

}  // namespace millrace

#endif  // KERNELS_CORE_ROWS_ALIGNED_H_
