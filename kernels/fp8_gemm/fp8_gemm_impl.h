// The rows of Fp8Gemm's device table, and the choice of a kernel on the GPU.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_IMPL_H_
#define KERNELS_FP8_GEMM_FP8_GEMM_IMPL_H_

#include <cstdint>

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

// The tiles of kTiles that are expected to take the least time.
struct Fp8GemmTileCut {
  bool narrow = false;  // of 192 columns instead of 256
  // Of 192 and 128 columns, where y allows: the first `turn` rows of tiles (of 128 tokens) begin
  // with wide[0] tiles of 192, the others with wide[1]. Together those are whole rounds of the
  // multiprocessors. Where y does not allow, `narrow` holds, the better one without.
  bool mixed = false;
  int32_t turn = 0;
  int32_t wide[2] = {};
};
Fp8GemmTileCut CutFp8GemmTiles(const Fp8GemmArgs& args, int32_t multiprocessors);

// How kSplit cuts a product.
struct Fp8GemmCut {
  bool narrow = false;  // tiles of 64 outputs instead of 128
  int32_t splits = 1;   // blocks that share a tile's inputs: 1, 2, 4 or 8
};
Fp8GemmCut CutFp8Gemm(const Fp8GemmArgs& args, int32_t multiprocessors);

// How kM64 deals tiles out: each block of a group has `own` of them, and one the group shares by
// its inputs.
struct Fp8GemmGroups {
  bool wide = false;   // tiles of 128 outputs instead of 64
  int32_t splits = 1;  // blocks of a group: 1, 2, 4 or 8
  int32_t own = 0;
  int32_t groups = 1;
};
Fp8GemmGroups GroupFp8Gemm(const Fp8GemmArgs& args, int32_t multiprocessors);

}  // namespace millrace

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_IMPL_H_
