// Fp8GateUp, and beside it the two ops that do the same through memory.
//
//   bazel run -c opt //kernels/fp8_gate_up:fp8_gate_up_bench
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/fp8_gate_up/fp8_gate_up.h"
#include "kernels/fp8_gate_up/fp8_gate_up_cases.h"
#include "kernels/swiglu_quantize/swiglu_quantize.h"

namespace millrace {
namespace {

struct Operands {
  BenchOperand x, x_scale, weight, weight_scale, gate_up, codes, scale, flags;
};

Operands OperandsOf(BenchBed& bed, int64_t tokens, const Fp8GateUpServed& s) {
  const auto flags = Fp8GemmFlags(bed.device());
  MR_CHECK(flags.ok());
  return {bed.Operand(DType::kU8, {tokens, s.inputs}),
          bed.Operand(DType::kF32, {s.inputs / 128, tokens}),
          bed.Operand(DType::kU8, {2 * s.outputs, s.inputs}),
          bed.Operand(DType::kF32, {2 * s.outputs / 128, s.inputs / 128}),
          bed.Operand(bed.activations(), {tokens, 2 * s.outputs}),
          bed.Operand(DType::kU8, {tokens, s.outputs}),
          bed.Operand(DType::kF32, {s.outputs / 128, tokens}),
          bed.Integers(DType::kI32,
                       std::vector<int64_t>(static_cast<size_t>(std::max<int64_t>(1, *flags)), 0))};
}

void Bench(BenchBed& bed, int64_t tokens, const Fp8GateUpServed& s) {
  const Operands o = OperandsOf(bed, tokens, s);
  const double weights = static_cast<double>(2 * s.outputs * s.inputs);
  const BenchWork work = {.bytes = weights + static_cast<double>(tokens * (s.inputs + s.outputs)),
                          .flops = 2 * weights * static_cast<double>(tokens)};
  const auto shape = absl::StrCat(tokens, " x ", s.inputs, " -> ", s.outputs);
  bed.Row(absl::StrCat(shape, ", one op"), work, [&](int64_t i) {
    MR_CHECK(Fp8GateUp(bed.ctx(), {.x = o.x.At(i),
                                   .x_scale = o.x_scale.At(i),
                                   .weight = o.weight.At(i),
                                   .weight_scale = o.weight_scale.At(i),
                                   .codes = o.codes.At(i),
                                   .scale = o.scale.At(i),
                                   .flags = o.flags.At(i)})
                 .ok());
  });
  bed.Row(absl::StrCat(shape, ", two"), work, [&](int64_t i) {
    MR_CHECK(Fp8Gemm(bed.ctx(), {.x = o.x.At(i),
                                 .x_scale = o.x_scale.At(i),
                                 .weight = o.weight.At(i),
                                 .weight_scale = o.weight_scale.At(i),
                                 .y = o.gate_up.At(i),
                                 .flags = o.flags.At(i)})
                 .ok());
    MR_CHECK(SwigluQuantize(bed.ctx(),
                            {.x = o.gate_up.At(i), .codes = o.codes.At(i), .scale = o.scale.At(i)})
                 .ok());
  });
}

void BenchAll(BenchBed& bed) {
  for (int64_t tokens : {8, 64, 512, 4096}) {
    if (tokens > 8 && !bed.on_cuda()) continue;
    for (const Fp8GateUpServed& s : kFp8GateUpServed) Bench(bed, tokens, s);
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
