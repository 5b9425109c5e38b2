// RmsNormQuantize with the residual addition: tokens being decoded, and prefills.
//
//   bazel run -c opt //kernels/rms_norm_quantize:rms_norm_quantize_bench
#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/rms_norm_quantize/rms_norm_quantize.h"
#include "kernels/rms_norm_quantize/rms_norm_quantize_cases.h"

namespace millrace {
namespace {

struct Unit {
  const char* name;
  QuantizeUnit unit;
};
constexpr Unit kUnits[] = {{"groups", QuantizeUnit::kGroup}, {"tokens", QuantizeUnit::kToken}};

void Bench(BenchBed& bed, const RmsNormQuantizeServed& c, const Unit& unit) {
  const DType dtype = bed.activations();
  const BenchOperand x = bed.Operand(dtype, {c.tokens, c.size});
  const BenchOperand residual = bed.Operand(dtype, {c.tokens, c.size});
  const BenchOperand weight = bed.Operand(dtype, {c.size});
  const BenchOperand codes = bed.Operand(DType::kU8, {c.tokens, c.size});
  const BenchOperand scale = unit.unit == QuantizeUnit::kGroup
                                 ? bed.Operand(DType::kF32, {c.size / kQuantizeGroup, c.tokens})
                                 : bed.Operand(DType::kF32, {c.tokens});
  const double count = static_cast<double>(c.tokens * c.size);
  const double bytes = count * static_cast<double>(3 * DTypeBytes(dtype) + 1);
  bed.Row(absl::StrCat(c.tokens, " x ", c.size, ", ", unit.name),
          {.bytes = bytes, .flops = 7 * count}, [&](int64_t i) {
            MR_CHECK(RmsNormQuantize(bed.ctx(), {.x = x.At(i),
                                                 .residual = residual.At(i),
                                                 .weight = weight.At(0),
                                                 .eps = 1e-5f,
                                                 .codes = codes.At(i),
                                                 .scale = scale.At(i),
                                                 .unit = unit.unit})
                         .ok());
          });
}

void BenchAll(BenchBed& bed) {
  for (const Unit& unit : kUnits) {
    for (const RmsNormQuantizeServed& c : kRmsNormQuantizeServed) {
      if (c.tokens <= 64 || bed.on_cuda()) Bench(bed, c, unit);
    }
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
