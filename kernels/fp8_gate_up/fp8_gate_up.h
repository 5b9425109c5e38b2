// The first half of a gated MLP in FP8: gate and up projection, the activation, and its codes for
// the next product, so that for many tokens none of what lies between reaches memory.
#ifndef KERNELS_FP8_GATE_UP_FP8_GATE_UP_H_
#define KERNELS_FP8_GATE_UP_FP8_GATE_UP_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"
#include "kernels/fp8_gemm/fp8_gemm.h"
#include "kernels/quantize/quantize.h"

namespace millrace {

// T tokens, K inputs, I outputs. Codes are E4M3; rows may be padded.
struct Fp8GateUpArgs {
  TensorView x;             // [T, K] u8
  TensorView x_scale;       // as Fp8GemmArgs has it
  TensorView weight;        // [2 I, K] u8: the rows of gate, then those of up; I a multiple of 128
  TensorView weight_scale;  // as Fp8GemmArgs has it, in the order of the rows
  TensorView codes;         // [T, I] u8, overwritten; overlaps nothing else
  // f32. [I / 128, T], overwritten: of groups, as Quantize writes it. kGiven: [1], only read. (A
  // token's scale is of its whole row, of which a tile has 128 outputs.)
  TensorView scale;
  TensorView flags;  // as Fp8GemmArgs has it
  Fp8GemmScales scales = Fp8GemmScales::kBlocks;
  QuantizeScale rounding = QuantizeScale::kF32;
};

// The fewest tokens of such weights that are faster here than by Fp8Gemm and SwigluQuantize: on
// sm_90 and inputs a multiple of 16, as many as give every multiprocessor a tile. Without such a
// number the largest int64_t: then this op is those two, by way of memory. For load: it asks the
// device.
absl::StatusOr<int64_t> Fp8GateUpLeastTokens(Device& device, int64_t inputs, int64_t outputs);

// What Quantize() makes, by groups or with a given scale, of silu(gate) * up, silu(g) = g / (1 +
// exp(-g)), gate and up as Fp8Gemm() has them, all in f32. Which kernels run depends on shapes and
// alignment, and so do the last bits; the same call gives the same bits. InvalidArgument: operands
// that do not fit together. ResourceExhausted: workspace below Fp8GateUpWorkspaceBytes.
// Unimplemented: no kernel for the device.
absl::Status Fp8GateUp(const OpContext& ctx, const Fp8GateUpArgs& args);

// Workspace that calls with at most so many inputs and outputs (I) need on this device.
absl::StatusOr<int64_t> Fp8GateUpWorkspaceBytes(Device& device, int64_t max_inputs,
                                                int64_t max_outputs);

}  // namespace millrace

#endif  // KERNELS_FP8_GATE_UP_FP8_GATE_UP_H_
