#include "kernels/moe_exchange/moe_exchange.h"

#include <algorithm>

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/moe_exchange/moe_exchange_impl.h"

namespace millrace {
namespace {

constexpr OpTable<MoeDispatchArgs> kDispatch = {
    .op = "MoeDispatch", .cpu = MoeDispatchCpu, .cuda = MoeDispatchCuda};
constexpr OpTable<MoeCombineArgs> kCombine = {
    .op = "MoeCombine", .cpu = MoeCombineCpu, .cuda = MoeCombineCuda};

}  // namespace

TensorView MoeMessageChannels(const TensorView& rows, int64_t chosen) {
  return rows.Cols(0, rows.dim(1) - 2 * chosen);
}

TensorView MoeMessageWeights(const TensorView& rows, int64_t chosen) {
  return rows.Cols(rows.dim(1) - 2 * chosen, rows.dim(1) - chosen);
}

TensorView MoeMessageExperts(const TensorView& rows, int64_t chosen) {
  TensorView view = rows.Cols(rows.dim(1) - chosen, rows.dim(1));
  view.dtype = DType::kI32;
  return view;
}

absl::Status MoeDispatch(const OpContext& ctx, const MoeDispatchArgs& args) {
  int64_t tokens = kUnbound, hidden = kUnbound, chosen = kUnbound;
  int64_t ranks = kUnbound, rows = kUnbound;
  ShapeChecker checker("MoeDispatch", ctx.device.type());
  checker.Bind("x", args.x, {&tokens, &hidden}, {DType::kF32, DType::kBF16})
      .Bind("experts", args.experts, {&tokens, &chosen}, {DType::kI32})
      .Bind("weights", args.weights, {&tokens, &chosen}, {DType::kF32})
      .Bind("counts", args.counts, {&ranks}, {DType::kI32});
  RETURN_IF_ERROR(checker.status());
  int64_t width = MoeMessageWidth(hidden, chosen);
  checker
      .Require(ranks >= 1 && args.num_experts >= ranks,
               "counts must have an entry for each rank, and each rank an expert")
      .Bind("rows", args.rows, {&rows, &width}, {DType::kF32})
      .Bind("source", args.source, {&rows}, {DType::kI32})
      .Require(args.rows.contiguous(), "rows must be dense")
      .Require(rows >= tokens * std::min(chosen, ranks),
               "rows must have room for a row of every token on min(K, W) ranks");
  RETURN_IF_ERROR(checker.status());
  return RunOnDevice(kDispatch, ctx, args);
}

absl::Status MoeCombine(const OpContext& ctx, const MoeCombineArgs& args) {
  int64_t rows = kUnbound, hidden = kUnbound, tokens = kUnbound;
  ShapeChecker checker("MoeCombine", ctx.device.type());
  checker.Bind("rows", args.rows, {&rows, &hidden}, {DType::kF32})
      .Bind("source", args.source, {&rows}, {DType::kI32})
      .Bind("y", args.y, {&tokens, &hidden}, {DType::kF32});
  RETURN_IF_ERROR(checker.status());
  if (args.y.empty()) return absl::OkStatus();
  return RunOnDevice(kCombine, ctx, args);
}

}  // namespace millrace
