// The rows of Fp8GroupedGemm's device table, and the choice of a kernel on the GPU.
#ifndef KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_IMPL_H_
#define KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_IMPL_H_

#include <cstdint>

#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm.h"

namespace millrace {

absl::Status Fp8GroupedGemmCpu(const OpContext& ctx, const Fp8GroupedGemmArgs& args);
absl::Status Fp8GroupedGemmCuda(const OpContext& ctx, const Fp8GroupedGemmArgs& args);

// What computes the products on the GPU (README.md has the table).
enum class Fp8GroupedGemmKernel : uint8_t { kTiles, kFew, kGeneric };
Fp8GroupedGemmKernel ChooseFp8GroupedGemm(const Fp8GroupedGemmArgs& args,
                                          int32_t compute_capability);

// One group's matrix of the weights or their scales, [G, rows, cols].
TensorView GroupOf(TensorView all, int64_t group);

// args.expected_rows, or what stands for it where it is 0.
int64_t ExpectedRows(const Fp8GroupedGemmArgs& args);

}  // namespace millrace

#endif  // KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_IMPL_H_
