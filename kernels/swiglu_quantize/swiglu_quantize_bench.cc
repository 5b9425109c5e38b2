// SwigluQuantize: tokens being decoded, and prefills.
//
//   bazel run -c opt //kernels/swiglu_quantize:swiglu_quantize_bench
#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/swiglu_quantize/swiglu_quantize.h"
#include "kernels/swiglu_quantize/swiglu_quantize_cases.h"

namespace millrace {
namespace {

struct Unit {
  const char* name;
  QuantizeUnit unit;
};
constexpr Unit kUnits[] = {{"groups", QuantizeUnit::kGroup}, {"tokens", QuantizeUnit::kToken}};

void Bench(BenchBed& bed, const SwigluQuantizeServed& c, const Unit& unit) {
  const DType dtype = bed.activations();
  const BenchOperand x = bed.Operand(dtype, {c.tokens, 2 * c.size});
  const BenchOperand codes = bed.Operand(DType::kU8, {c.tokens, c.size});
  const BenchOperand scale = unit.unit == QuantizeUnit::kGroup
                                 ? bed.Operand(DType::kF32, {c.size / kQuantizeGroup, c.tokens})
                                 : bed.Operand(DType::kF32, {c.tokens});
  const double count = static_cast<double>(c.tokens * c.size);
  bed.Row(absl::StrCat(c.tokens, " x ", c.size, ", ", unit.name,
                       c.block > 0 ? absl::StrCat(", blocks of ", c.block) : ""),
          {.bytes = count * static_cast<double>(2 * DTypeBytes(dtype) + 1), .flops = 7 * count},
          [&](int64_t i) {
            MR_CHECK(SwigluQuantize(bed.ctx(), {.x = x.At(i),
                                                .block = c.block,
                                                .codes = codes.At(i),
                                                .scale = scale.At(i),
                                                .unit = unit.unit})
                         .ok());
          });
}

void BenchAll(BenchBed& bed) {
  for (const Unit& unit : kUnits) {
    for (const SwigluQuantizeServed& c : kSwigluQuantizeServed) {
      if (c.tokens <= 64 || bed.on_cuda()) Bench(bed, c, unit);
    }
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
