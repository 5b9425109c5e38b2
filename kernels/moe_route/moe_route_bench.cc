// Both routers on the logits of tokens being decoded and of a prefill.
//
//   bazel run -c opt //kernels/moe_route:moe_route_bench
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/moe_route/moe_route.h"
#include "kernels/moe_route/moe_route_cases.h"

namespace millrace {
namespace {

constexpr int64_t kIds = 129280;

// An integer matrix with these values, the same for every call.
BenchOperand Matrix(BenchBed& bed, int64_t rows, int64_t columns, int64_t below) {
  std::vector<int64_t> values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<int64_t>(i) * 40503 % below;
  }
  return bed.Integers(DType::kI32, values);
}

TensorView Shaped(const TensorView& flat, int64_t rows, int64_t columns) {
  return TensorView::Of(flat.data, flat.dtype, {rows, columns}, flat.device);
}

void Bench(BenchBed& bed, const MoeRouteServed& c) {
  const BenchOperand logits = bed.Operand(DType::kF32, {c.tokens, c.experts});
  const BenchOperand bias = bed.Operand(DType::kF32, {c.experts});
  const BenchOperand experts = Matrix(bed, c.tokens, c.chosen, c.experts);
  const BenchOperand weights = bed.Operand(DType::kF32, {c.tokens, c.chosen});
  const BenchOperand ids = Matrix(bed, c.tokens, 1, kIds);
  const BenchOperand table = Matrix(bed, kIds, c.chosen, c.experts);
  const TensorView chosen = Shaped(experts.At(0), c.tokens, c.chosen);
  const std::string name = absl::StrCat(c.tokens, " x ", c.experts, ", ", c.chosen, " of them");
  const double out = 8.0 * static_cast<double>(c.tokens * c.chosen);
  bed.Row(absl::StrCat(name, ", by score"),
          {.bytes = out + 4.0 * static_cast<double>(c.tokens * c.experts)}, [&](int64_t i) {
            MR_CHECK(MoeRouteByScore(bed.ctx(), {.logits = logits.At(i),
                                                 .bias = bias.At(0),
                                                 .experts = chosen,
                                                 .weights = weights.At(i),
                                                 .scaling = 1.5f})
                         .ok());
          });
  bed.Row(absl::StrCat(name, ", by hash"), {.bytes = 2 * out + 4.0 * static_cast<double>(c.tokens)},
          [&](int64_t i) {
            MR_CHECK(MoeRouteByHash(bed.ctx(), {.logits = logits.At(i),
                                                .ids = ids.At(0),
                                                .table = Shaped(table.At(0), kIds, c.chosen),
                                                .experts = chosen,
                                                .weights = weights.At(i),
                                                .scaling = 1.5f})
                         .ok());
          });
}

void BenchAll(BenchBed& bed) {
  for (const MoeRouteServed& c : kMoeRouteServed) Bench(bed, c);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
