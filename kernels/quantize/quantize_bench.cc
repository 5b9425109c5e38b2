// Quantize: tokens being decoded, and prefills; and the turned codes of a weight.
//
//   bazel run -c opt //kernels/quantize:quantize_bench
#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/quantize/quantize.h"
#include "kernels/quantize/quantize_cases.h"

namespace millrace {
namespace {

struct Form {
  const char* name;
  QuantizeUnit unit;
  QuantizeScale rounding = QuantizeScale::kF32;
  bool transposed = false;
};
constexpr Form kForms[] = {{"groups", QuantizeUnit::kGroup},
                           {"tokens", QuantizeUnit::kToken},
                           {"tensor", QuantizeUnit::kTensor},
                           {"given", QuantizeUnit::kTensor, QuantizeScale::kGiven},
                           {"channels", QuantizeUnit::kChannel},
                           {"groups turned", QuantizeUnit::kGroup, QuantizeScale::kF32, true},
                           {"channels turned", QuantizeUnit::kChannel, QuantizeScale::kF32, true}};

void Bench(BenchBed& bed, const QuantizeCase& c, const Form& form) {
  const int64_t rows = form.transposed ? c.size : c.tokens;
  const int64_t cols = form.transposed ? c.tokens : c.size;
  const int64_t groups = (cols + kQuantizeGroup - 1) / kQuantizeGroup;
  const int64_t units = form.unit == QuantizeUnit::kTensor    ? 1
                        : form.unit == QuantizeUnit::kChannel ? c.size
                                                              : c.tokens;
  const BenchOperand x = bed.Operand(bed.activations(), {c.tokens, c.size});
  const BenchOperand codes = bed.Operand(DType::kU8, {rows, cols});
  const BenchOperand scale = form.unit == QuantizeUnit::kGroup
                                 ? bed.Operand(DType::kF32, {groups, rows})
                                 : bed.Operand(DType::kF32, {units});
  const double count = static_cast<double>(c.tokens * c.size);
  const double bytes = count * static_cast<double>(DTypeBytes(bed.activations()) + 1);
  bed.Row(absl::StrCat(c.tokens, " x ", c.size, ", ", form.name),
          {.bytes = bytes, .flops = 2 * count}, [&](int64_t i) {
            MR_CHECK(Quantize(bed.ctx(), {.x = x.At(i),
                                          .codes = codes.At(i),
                                          .scale = scale.At(i),
                                          .unit = form.unit,
                                          .rounding = form.rounding,
                                          .transposed = form.transposed})
                         .ok());
          });
}

void BenchAll(BenchBed& bed) {
  for (const Form& form : kForms) {
    for (const QuantizeCase& c : kQuantizeServed) {
      if (c.tokens > 64 && !bed.on_cuda()) continue;
      Bench(bed, c, form);
    }
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
