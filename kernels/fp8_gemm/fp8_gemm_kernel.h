// What the .cu files and fp8_gemm_cuda.cc both see.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_H_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/fp8_gemm/cuts.h"
#include "kernels/quantize/code_args.h"

namespace millrace {

// A bias or a residual, or nothing.
struct Fp8GemmAddend {
  const void* data = nullptr;
  int64_t stride = 0;  // of a residual, from a token to the next
  bool bf16 = false;   // or f32
};

// As Fp8GemmArgs. Strides in elements.
struct Fp8GemmKernelArgs {
  const uint8_t* x = nullptr;
  const uint8_t* weight = nullptr;
  const float* x_scale = nullptr;
  const float* weight_scale = nullptr;
  void* y = nullptr;
  int64_t x_stride = 0;
  int64_t weight_stride = 0;
  int64_t y_stride = 0;
  // Of 128 x 128 blocks: between the rows of the scale's matrix. Otherwise between the scales of
  // neighbouring tokens and outputs, 0 where there is one for all.
  int64_t x_scale_stride = 0;
  int64_t weight_scale_stride = 0;
  int32_t tokens = 0;
  int32_t inputs = 0;
  int32_t outputs = 0;
  // Where the weight is many matrices (kernels/fp8_grouped_gemm): how many, from one's first row to
  // the next one's, in rows of weight_stride, and as far in elements of weight_scale.
  int32_t groups = 1;
  int32_t weight_group_rows = 0;
  int64_t weight_scale_group_stride = 0;
  Fp8GemmAddend bias, residual;
  CodeArgs gated;       // of LaunchFp8GateUp() (kernels/fp8_gate_up), instead of y
  bool blocks = false;  // scales of blocks
  bool y_bf16 = false;
};
static_assert(std::is_trivially_copyable_v<Fp8GemmKernelArgs>);

// Scratch of LaunchFp8GemmFew().
struct Fp8GemmSplit {
  float* parts = nullptr;    // Fp8GemmPartFloats()
  int32_t* ready = nullptr;  // Fp8GemmFlagCount(); zero before, and again when the kernel ends
};

// Most tokens that LaunchFp8GemmFew() takes.
inline constexpr int32_t kFp8GemmFewTokens = 128;

constexpr int64_t Fp8GemmPartFloats(int32_t tokens, int32_t multiprocessors) {
  int64_t columns = 8;
  while (columns < tokens) columns *= 2;
  return int64_t{multiprocessors} * 128 * columns;
}
constexpr int64_t Fp8GemmFlagCount(int32_t multiprocessors) { return int64_t{multiprocessors} * 2; }

// REQUIRES of the next four: sm_90; x, weight and their rows on 16 bytes, scales of blocks of x
// too; inputs > 0.

// Many tokens.
cudaError_t LaunchFp8GemmTiles(const Fp8GemmKernelArgs& args, const Fp8GemmTileCut& cut,
                               int32_t multiprocessors, cudaStream_t stream);
// Fewer tokens: at most 64, with scales of blocks 32.
inline constexpr int32_t kFp8GemmMostSplits = 8;
cudaError_t LaunchFp8GemmSplit(const Fp8GemmKernelArgs& args, const Fp8GemmCut& cut,
                               cudaStream_t stream);
// 33 to 64 tokens, scales of blocks.
cudaError_t LaunchFp8GemmM64(const Fp8GemmKernelArgs& args, const Fp8GemmGroups& groups,
                             cudaStream_t stream);
// Few tokens: at most kFp8GemmFewTokens.
cudaError_t LaunchFp8GemmFew(const Fp8GemmKernelArgs& args, const Fp8GemmSplit& split,
                             int32_t multiprocessors, cudaStream_t stream);

// Any number of tokens, by mma.sync. REQUIRES: sm_80; x, weight and their rows on 16 bytes.
cudaError_t LaunchFp8GemmMma(const Fp8GemmKernelArgs& args, cudaStream_t stream);

// Up to kFp8GemmSkinnyTokens tokens; sm_89 and later. REQUIRES: x, weight and their rows on 16
// bytes; inputs a multiple of 128, above 0.
inline constexpr int32_t kFp8GemmSkinnyTokens = 8;
cudaError_t LaunchFp8GemmSkinny(const Fp8GemmKernelArgs& args, int32_t multiprocessors,
                                cudaStream_t stream);

// The same on sm_90.
cudaError_t LaunchFp8GemmRing(const Fp8GemmKernelArgs& args, int32_t multiprocessors,
                              cudaStream_t stream);

// Any shapes, strides and devices; one warp an output, slow.
cudaError_t LaunchFp8GemmGeneric(const Fp8GemmKernelArgs& args, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_H_
