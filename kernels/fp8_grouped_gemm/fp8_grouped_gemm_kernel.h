// What the .cu files and fp8_grouped_gemm_cuda.cc both see.
#ifndef KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_KERNEL_H_
#define KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"

namespace millrace {

// Which rows are whose.
struct Fp8Groups {
  const int32_t* rows = nullptr;
  int32_t count = 0;   // groups
  int32_t places = 0;  // masked: of a group. Contiguous: -1
  // Whether each is expected to have some. Then weights are asked for before the numbers are known.
  bool all_have_rows = false;
};
static_assert(std::is_trivially_copyable_v<Fp8Groups>);

struct Fp8GroupedLaunch {
  Fp8GemmKernelArgs args;  // of all rows and groups, scales of blocks
  Fp8Groups groups;
  int32_t expected_rows = 0;  // of a group
  int32_t multiprocessors = 0;
};

// REQUIRES of both: sm_90; x, its scales, the weights and their rows on 16 bytes; inputs > 0.
cudaError_t LaunchFp8GroupedGemmFew(const Fp8GroupedLaunch& launch, cudaStream_t stream);
cudaError_t LaunchFp8GroupedGemmTiles(const Fp8GroupedLaunch& launch, cudaStream_t stream);

// Any shapes, strides and devices; slow. `weight_group_stride`: between groups, in elements.
cudaError_t LaunchFp8GroupedGemmGeneric(const Fp8GroupedLaunch& launch, int64_t weight_group_stride,
                                        cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_KERNEL_H_
