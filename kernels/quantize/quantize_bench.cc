// Quantize: tokens being decoded, and prefills.
//
//   bazel run -c opt //kernels/quantize:quantize_bench
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/quantize/quantize.h"
#include "kernels/quantize/quantize_cases.h"

namespace millrace {
namespace {

struct Unit {
  const char* name;
  QuantizeUnit unit;
};
constexpr Unit kUnits[] = {{"groups", QuantizeUnit::kGroup},
                           {"tokens", QuantizeUnit::kToken},
                           {"tensor", QuantizeUnit::kTensor}};

void Bench(BenchBed& bed, const QuantizeCase& c, const Unit& unit) {
  const int64_t groups = (c.size + kQuantizeGroup - 1) / kQuantizeGroup;
  const BenchOperand x = bed.Operand(bed.activations(), {c.tokens, c.size});
  const BenchOperand codes = bed.Operand(DType::kU8, {c.tokens, c.size});
  const bool of_groups = unit.unit == QuantizeUnit::kGroup;
  const BenchOperand scale =
      of_groups ? bed.Operand(DType::kF32, {groups, c.tokens})
                : bed.Operand(DType::kF32, {unit.unit == QuantizeUnit::kToken ? c.tokens : 1});
  const double count = static_cast<double>(c.tokens * c.size);
  const double bytes = count * static_cast<double>(DTypeBytes(bed.activations()) + 1);
  bed.Row(absl::StrCat(c.tokens, " x ", c.size, ", ", unit.name),
          {.bytes = bytes, .flops = 2 * count}, [&](int64_t i) {
            MR_CHECK(Quantize(bed.ctx(), {.x = x.At(i),
                                          .codes = codes.At(i),
                                          .scale = scale.At(i),
                                          .unit = unit.unit,
                                          .rounding = QuantizeScale::kF32})
                         .ok());
          });
}

void BenchAll(BenchBed& bed) {
  for (const Unit& unit : kUnits) {
    for (const QuantizeCase& c : kQuantizeServed) {
      if (c.tokens > 64 && !bed.on_cuda()) continue;
      Bench(bed, c, unit);
    }
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
