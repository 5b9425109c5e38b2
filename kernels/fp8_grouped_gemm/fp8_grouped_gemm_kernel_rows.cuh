// Which rows a group has.
#ifndef KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_KERNEL_ROWS_CUH_
#define KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_KERNEL_ROWS_CUH_

#include <cstdint>

#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_kernel.h"

namespace millrace {

// [x, y), inside [0, tokens) whatever the numbers say.
__device__ __forceinline__ int2 RowsOf(const Fp8Groups& groups, int group, int tokens) {
  const int32_t* const rows = groups.rows + group;
  if (groups.places >= 0) {
    const int first = group * groups.places;
    return {first, first + max(0, min(rows[0], groups.places))};
  }
  const int first = max(0, min(rows[0], tokens));
  return {first, max(first, min(rows[1], tokens))};
}

}  // namespace millrace

#endif  // KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_KERNEL_ROWS_CUH_
