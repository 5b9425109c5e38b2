// The rows of Fp8Gemm's device table, and the choice of a kernel on the GPU.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_IMPL_H_
#define KERNELS_FP8_GEMM_FP8_GEMM_IMPL_H_

#include <cstdint>

#include "kernels/fp8_gemm/cuts.h"
#include "kernels/fp8_gemm/fp8_gemm.h"

namespace millrace {

absl::Status Fp8GemmCpu(const OpContext& ctx, const Fp8GemmArgs& args);
absl::Status Fp8GemmCuda(const OpContext& ctx, const Fp8GemmArgs& args);
int64_t Fp8GemmCudaWorkspaceBytes(int32_t multiprocessors);
int64_t Fp8GemmCudaFlags(int32_t multiprocessors);

// What computes a product on the GPU (README.md has the table).
enum class Fp8GemmKernel : uint8_t { kTiles, kFew, kM64, kSplit, kRing, kSkinny, kMma, kGeneric };
Fp8GemmKernel ChooseFp8Gemm(const Fp8GemmArgs& args, int32_t compute_capability);
// Fp8GemmCuda by a kernel that takes the call, chosen or not.
absl::Status Fp8GemmCudaBy(Fp8GemmKernel kernel, const OpContext& ctx, const Fp8GemmArgs& args);

// Of kTiles.
Fp8GemmTileCut CutFp8GemmTiles(const Fp8GemmArgs& args, int32_t multiprocessors);

// Of kSplit.
Fp8GemmCut CutFp8Gemm(const Fp8GemmArgs& args, int32_t multiprocessors);

// Of kM64.
Fp8GemmGroups GroupFp8Gemm(const Fp8GemmArgs& args, int32_t multiprocessors);

}  // namespace millrace

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_IMPL_H_
