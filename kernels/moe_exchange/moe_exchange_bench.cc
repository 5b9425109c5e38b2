// MoeDispatch and MoeCombine of tokens being decoded and of a prefill, one rank's part.
//
//   bazel run -c opt //kernels/moe_exchange:moe_exchange_bench
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/moe_exchange/moe_exchange.h"
#include "kernels/moe_exchange/moe_exchange_cases.h"

namespace millrace {
namespace {

// Scattered choices, the same for every call, and the tokens of the rows that they give.
struct Choices {
  std::vector<int64_t> experts;
  std::vector<int64_t> source;
};

Choices Scattered(const MoeExchangeServed& c) {
  Choices choices;
  uint32_t state = 1;
  for (int64_t i = 0; i < c.tokens * c.chosen; ++i) {
    state = state * 1664525u + 1013904223u;
    choices.experts.push_back((state >> 8) % c.experts);
  }
  const int64_t each = c.experts / c.ranks;  // the ranks of every case divide its experts
  for (int64_t rank = 0; rank < c.ranks; ++rank) {
    for (int64_t t = 0; t < c.tokens; ++t) {
      const auto first = choices.experts.begin() + t * c.chosen;
      if (std::any_of(first, first + c.chosen, [&](int64_t e) { return e / each == rank; })) {
        choices.source.push_back(t);
      }
    }
  }
  return choices;
}

TensorView Shaped(const TensorView& flat, int64_t rows, int64_t columns) {
  return TensorView::Of(flat.data, flat.dtype, {rows, columns}, flat.device);
}

void Bench(BenchBed& bed, const MoeExchangeServed& c) {
  const Choices choices = Scattered(c);
  const auto sent = static_cast<int64_t>(choices.source.size());
  const int64_t room = c.tokens * std::min(c.chosen, c.ranks);
  const int64_t width = MoeMessageWidth(c.hidden, c.chosen);
  const DType dtype = bed.activations();
  const std::string name = absl::StrCat(c.tokens, " x ", c.hidden, ", ", c.chosen, " of ",
                                        c.experts, ", ", c.ranks, " ranks (", sent, " rows)");
  const BenchOperand experts = bed.Integers(DType::kI32, choices.experts);
  const BenchOperand source = bed.Integers(DType::kI32, choices.source);
  {
    const BenchOperand x = bed.Operand(dtype, {c.tokens, c.hidden});
    const BenchOperand weights = bed.Operand(DType::kF32, {c.tokens, c.chosen});
    const BenchOperand rows = bed.Operand(DType::kF32, {room, width});
    const BenchOperand from =
        bed.Integers(DType::kI32, std::vector<int64_t>(static_cast<size_t>(room)));
    const BenchOperand counts =
        bed.Integers(DType::kI32, std::vector<int64_t>(static_cast<size_t>(c.ranks)));
    const int64_t read = c.tokens * (c.hidden * DTypeBytes(dtype) + 8 * c.chosen);
    bed.Row(absl::StrCat("dispatch ", name),
            {.bytes = static_cast<double>(read + sent * (4 * width + 4))}, [&](int64_t i) {
              MR_CHECK(MoeDispatch(bed.ctx(), {.x = x.At(i),
                                               .experts = Shaped(experts.At(0), c.tokens, c.chosen),
                                               .weights = weights.At(i),
                                               .num_experts = c.experts,
                                               .rows = rows.At(i),
                                               .source = from.At(0),
                                               .counts = counts.At(0)})
                           .ok());
            });
  }
  const BenchOperand back = bed.Operand(DType::kF32, {sent, c.hidden});
  const BenchOperand y = bed.Operand(DType::kF32, {c.tokens, c.hidden});
  bed.Row(
      absl::StrCat("combine ", name),
      {.bytes = 4.0 * static_cast<double>((sent + c.tokens) * c.hidden + sent)}, [&](int64_t i) {
        MR_CHECK(
            MoeCombine(bed.ctx(), {.rows = back.At(i), .source = source.At(0), .y = y.At(i)}).ok());
      });
}

void BenchAll(BenchBed& bed) {
  for (const MoeExchangeServed& c : kMoeExchangeServed) {
    if (!c.large || bed.on_cuda()) Bench(bed, c);
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
