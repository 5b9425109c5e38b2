// The rows of Fp8GateUp's device table.
#ifndef KERNELS_FP8_GATE_UP_FP8_GATE_UP_IMPL_H_
#define KERNELS_FP8_GATE_UP_FP8_GATE_UP_IMPL_H_

#include "kernels/fp8_gate_up/fp8_gate_up.h"
#include "kernels/fp8_gemm/fp8_gemm.h"
#include "kernels/quantize/quantize.h"

namespace millrace {

// The compute capability whose tiles make codes.
inline constexpr int32_t kFp8GateUpCapability = 90;
// Up to so few tokens the product is bound by reading the weight, which Fp8Gemm's kernels for few
// tokens do faster than tiles.
inline constexpr int64_t kFp8GateUpFewTokens = 128;

absl::Status Fp8GateUpCuda(const OpContext& ctx, const Fp8GateUpArgs& args);

// By Fp8Gemm and SwigluQuantize, a few tokens at a time, on any device: the CPU's row, and what the
// GPU's kernel does not take.
absl::Status Fp8GateUpByParts(const OpContext& ctx, const Fp8GateUpArgs& args);

// The operands of the product, and of the quantisation.
inline Fp8GemmArgs ProductOf(const Fp8GateUpArgs& args, const TensorView& y) {
  return {.x = args.x,
          .x_scale = args.x_scale,
          .weight = args.weight,
          .weight_scale = args.weight_scale,
          .y = y,
          .flags = args.flags,
          .scales = args.scales};
}
inline QuantizeUnit UnitOf(const Fp8GateUpArgs& args) {
  return args.rounding == QuantizeScale::kGiven ? QuantizeUnit::kTensor : QuantizeUnit::kGroup;
}
inline QuantizeArgs CodesOf(const Fp8GateUpArgs& args) {
  return {.x = {},
          .codes = args.codes,
          .scale = args.scale,
          .unit = UnitOf(args),
          .rounding = args.rounding};
}

}  // namespace millrace

#endif  // KERNELS_FP8_GATE_UP_FP8_GATE_UP_IMPL_H_
