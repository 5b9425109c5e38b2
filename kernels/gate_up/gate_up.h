// The first half of LLaMA's MLP for few tokens: gate and up projection and the gated activation in
// one launch, so that the projections never reach memory.
#ifndef KERNELS_GATE_UP_GATE_UP_H_
#define KERNELS_GATE_UP_GATE_UP_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// Rows of gate and up alternate in blocks of this many.
inline constexpr int64_t kGateUpBlock = 8;

struct GateUpArgs {
  TensorView x;  // [T, K] bf16; rows may be padded
  // [2 I, K] bf16: kGateUpBlock rows of gate, the kGateUpBlock rows of up that go with them, and so
  // on; rows may be padded. I is a multiple of kGateUpBlock.
  TensorView weight;
  TensorView y;  // [T, I] bf16; rows may be padded; overlaps nothing else
};

// Whether the device has a kernel for the shape: CUDA, up to 8 tokens, inputs a multiple of 64.
// Elsewhere Linear and Swiglu with the same block do the same work.
bool GateUpCovers(DeviceType device, int64_t tokens, int64_t inputs, int64_t outputs);

// y[t, i] = silu(gate) * up with gate = x[t] . W[2 i - i % 8], up = x[t] . W[2 i - i % 8 + 8] and
// silu(g) = g / (1 + exp(-g)), sums and activation in f32, rounded once.
//
// InvalidArgument for operands that do not fit together; Unimplemented where !GateUpCovers() or
// rows do not start on 16 bytes. Worker thread.
absl::Status GateUp(const OpContext& ctx, const GateUpArgs& args);

}  // namespace millrace

#endif  // KERNELS_GATE_UP_GATE_UP_H_
