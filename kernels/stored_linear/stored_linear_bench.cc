// StoredLinear, for tokens being decoded and a prefill: in each format, and on a GPU, where
// activations are bf16 and rounded for quantised matrices, those of DeepSeek-V4-Flash.
//
//   bazel run -c opt //kernels/stored_linear:stored_linear_bench
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/stored_linear/stored_linear.h"
#include "kernels/stored_linear/stored_linear_cases.h"

namespace millrace {
namespace {

// Scales of any bits would make some numbers subnormal, which no checkpoint does and a CPU is slow
// with.
BenchOperand Scales(BenchBed& bed, std::initializer_list<int64_t> shape) {
  constexpr uint8_t kOne = 127;
  BenchOperand scales = bed.Operand(DType::kU8, shape);
  if (bed.on_cuda()) return scales;
  const TensorView view = scales.At(0);
  std::fill_n(view.as<uint8_t>(), view.size(), kOne);
  return scales;
}

void Bench(BenchBed& bed, StoredFormat format, const StoredLinearCase& c) {
  const int64_t n = c.outputs, k = c.inputs, unit = StoredColumnUnit(format);
  const bool plain = !IsQuantised(format), fp4 = unit > 1;
  const DType dtype = format == StoredFormat::kF32 ? DType::kF32 : DType::kBF16;
  const BenchOperand values = bed.Operand(plain ? dtype : DType::kU8, {1, n, fp4 ? k / 2 : k});
  const BenchOperand scales =
      fp4 ? Scales(bed, {1, n, k / unit}) : Scales(bed, {1, (n + 127) / 128, (k + 127) / 128});
  const BenchOperand factors = bed.Floats({1});
  const BenchOperand x = bed.Operand(bed.activations(), {c.tokens, k});
  const BenchOperand y = bed.Operand(DType::kF32, {c.tokens, n});
  const auto weight = [&](int64_t i) {
    StoredMatrix m = {.format = format, .rows = n, .cols = k, .values = values.At(i)};
    if (!plain) m.scales = scales.At(i);
    m.factors = factors.At(i);
    return m;
  };
  const int64_t x_bytes = x.At(0).size() * DTypeBytes(bed.activations());
  const auto bytes = static_cast<double>(weight(0).bytes() + x_bytes + y.At(0).size() * 4);
  bed.Row(absl::StrCat(std::string(StoredFormatName(format)), " ", c.tokens, " x ", k, " to ", n),
          {.bytes = bytes, .flops = 2.0 * static_cast<double>(c.tokens * n * k)}, [&](int64_t i) {
            StoredLinearArgs args = {.x = x.At(i), .weight = weight(i), .y = y.At(i)};
            if (bed.on_cuda() && !plain) args.rounding = ActivationRounding::kFp8Per128;
            MR_CHECK(StoredLinear(bed.ctx(), args).ok());
          });
}

void BenchAll(BenchBed& bed) {
  if (bed.on_cuda()) {
    for (const StoredLinearCase& c : kStoredLinearServedFlash) Bench(bed, StoredFormat::kFp8, c);
  }
  for (const StoredFormat format : {StoredFormat::kFp8, StoredFormat::kBF16, StoredFormat::kF32,
                                    StoredFormat::kMxFp4, StoredFormat::kNvFp4}) {
    for (const StoredLinearCase& c : kStoredLinearServed) Bench(bed, format, c);
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
