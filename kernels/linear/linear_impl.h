// The rows of Linear's device table, and what the CPU row's instruction sets share.
#ifndef KERNELS_LINEAR_LINEAR_IMPL_H_
#define KERNELS_LINEAR_LINEAR_IMPL_H_

#include <cstdint>

#include "kernels/cpu/isa.h"
#include "kernels/linear/linear.h"

namespace millrace {

absl::Status LinearCpu(const OpContext& ctx, const LinearArgs& args);
int64_t LinearCpuWorkspaceBytes(int threads, int64_t max_inputs, int64_t max_outputs);

absl::Status LinearCuda(const OpContext& ctx, const LinearArgs& args);
int64_t LinearCudaWorkspaceBytes();
// By cuBLASLt whatever the table says: the peer of the benchmark.
absl::Status LinearCublas(const OpContext& ctx, const LinearArgs& args);

// What computes a product on the GPU (README.md has the table).
enum class LinearCudaKernel : uint8_t { kSkinny, kCublas, kGeneric };
struct LinearCudaPath {
  LinearCudaKernel kernel = LinearCudaKernel::kGeneric;
  int shape = 0;  // of kSkinny: index into kSkinnyShapes
};
LinearCudaPath ChooseLinearCuda(const LinearArgs& args, int32_t multiprocessors);

// Rows of weights that the blocked kernel widens at once.
inline constexpr int kLinearBlockRows = 8;
// Inputs are padded to a multiple of this in the prepared copy of x (two of the widest vectors).
inline constexpr int kLinearPadding = 32;

// Inputs of a prepared token; one padding at least, so that a sum over no inputs is a plain 0.
[[gnu::always_inline]] constexpr int64_t LinearPaddedInputs(int64_t inputs) {
  return inputs == 0 ? kLinearPadding
                     : (inputs + kLinearPadding - 1) / kLinearPadding * kLinearPadding;
}

// Floats between two widened rows: rows a power of two apart would share too few sets of L1.
inline constexpr int kLinearRowGap = 16;

// How the blocked kernel cuts a product: token blocks whose inputs stay in L2 while all weights
// pass, and ranges of the inputs short enough for the widened weights to stay in L1.
struct LinearBlocks {
  int64_t token_blocks = 0;
  int64_t tokens = 0;  // of a block; the last may have fewer
  int64_t input_blocks = 0;
  int64_t inputs = 0;  // of a block, a multiple of kLinearPadding; the last may have fewer
};
LinearBlocks PlanLinearBlocks(int64_t tokens, int64_t padded_inputs);

// Most tokens that the streaming kernel takes; from there on the blocked one is faster.
int64_t LinearMaxStreamedTokens(CpuIsa isa);

// One product as the kernels see it. Strides in elements.
struct LinearOperands {
  const float* x = nullptr;  // prepared: [input_blocks][tokens][inputs of the block]
  int64_t tokens = 0;
  int64_t inputs = 0;
  const void* weight = nullptr;  // [outputs, inputs]
  int64_t weight_stride = 0;
  int64_t outputs = 0;
  const float* bias = nullptr;  // [outputs] or null
  void* y = nullptr;            // [tokens, outputs]
  int64_t y_stride = 0;
  bool y_bf16 = false;
};

// Both kernels sum a token's products in the same order, so which one ran cannot be seen.
struct LinearKernels {
  // Copies `inputs` inputs of a token as f32, padded with zeros to `padded` (a multiple of
  // kLinearPadding), in the order in which the kernels meet the weights.
  void (*prepare_f32)(const float* x, int64_t inputs, int64_t padded, float* prepared);
  void (*prepare_bf16)(const BFloat16* x, int64_t inputs, int64_t padded, float* prepared);
  // Few tokens: outputs [begin, end), every weight read once from memory. x is one input block.
  void (*stream)(const LinearOperands&, int64_t begin, int64_t end);
  // Many tokens: one block of tokens times block `block` of kLinearBlockRows outputs. `scratch`
  // holds LinearScratchFloats(padded inputs) floats.
  void (*block)(const LinearOperands&, const LinearBlocks&, int64_t token_block, int64_t block,
                float* scratch);
};

// A thread's scratch for the blocked kernel, whatever the number of tokens.
int64_t LinearScratchFloats(int64_t padded_inputs);

// [weight is bf16]
extern const LinearKernels kLinearScalar[2];
extern const LinearKernels kLinearAvx2[2];
extern const LinearKernels kLinearAvx512[2];

}  // namespace millrace

#endif  // KERNELS_LINEAR_LINEAR_IMPL_H_
