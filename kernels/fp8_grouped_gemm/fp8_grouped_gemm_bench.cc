// Fp8GroupedGemm at widths of experts: decode, masked, about 20 rows a group; prefill, contiguous.
//
//   bazel run -c opt //kernels/fp8_grouped_gemm:fp8_grouped_gemm_bench
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/fp8_gemm/fp8_gemm.h"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm.h"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_cases.h"

namespace millrace {
namespace {

struct Groups {
  Fp8GroupedRows form;
  int64_t count;
  int64_t places;  // of a group, in memory
  int64_t rows;    // that a group has
};

// u8 operands hold any bits, NaNs too, which cost the tensor cores what numbers do.
void Bench(BenchBed& bed, const Groups& groups, const Fp8GroupedServed& s) {
  const bool masked = groups.form == Fp8GroupedRows::kMasked;
  const int64_t tokens = groups.count * groups.places, depth = s.inputs / kFp8GemmBlock;
  const BenchOperand x = bed.Operand(DType::kU8, {tokens, s.inputs});
  const BenchOperand x_scale = bed.Operand(DType::kF32, {depth, tokens});
  const BenchOperand weight = bed.Operand(DType::kU8, {groups.count, s.outputs, s.inputs});
  const BenchOperand weight_scale =
      bed.Operand(DType::kF32, {groups.count, s.outputs / kFp8GemmBlock, depth});
  const BenchOperand y = bed.Operand(bed.activations(), {tokens, s.outputs});
  std::vector<int64_t> numbers;
  for (int64_t g = 0; g < groups.count; ++g) {
    numbers.push_back(masked ? groups.rows : g * groups.places);
  }
  if (!masked) numbers.push_back(tokens);
  const BenchOperand rows = bed.Integers(DType::kI32, numbers);
  const auto weights = static_cast<double>(groups.count * s.outputs * s.inputs);
  const auto others = static_cast<double>(groups.count * groups.rows *
                                          (s.inputs + s.outputs * DTypeBytes(bed.activations())));
  bed.Row(absl::StrCat(masked ? "masked " : "contiguous ", groups.count, " x ", groups.rows, " x ",
                       s.inputs, " -> ", s.outputs),
          {.bytes = weights + others, .flops = 2 * weights * static_cast<double>(groups.rows)},
          [&](int64_t i) {
            MR_CHECK(Fp8GroupedGemm(bed.ctx(), {.x = x.At(i),
                                                .x_scale = x_scale.At(i),
                                                .weight = weight.At(i),
                                                .weight_scale = weight_scale.At(i),
                                                .rows = rows.At(i),
                                                .y = y.At(i),
                                                .form = groups.form,
                                                .expected_rows = groups.rows})
                         .ok());
          });
}

void BenchAll(BenchBed& bed) {
  if (!bed.on_cuda()) {
    Bench(bed, {Fp8GroupedRows::kMasked, 2, 4, 2}, {512, 1024});
    return;
  }
  for (int64_t count : {8, 16, 32}) {
    for (const Fp8GroupedServed& s : kFp8GroupedServed) {
      Bench(bed, {Fp8GroupedRows::kMasked, count, 256, 20}, s);
    }
  }
  for (const Fp8GroupedServed& s : kFp8GroupedServed) {
    Bench(bed, {Fp8GroupedRows::kContiguous, 4, 8192, 8192}, s);
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
