#include "kernels/moe_route/moe_route.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/moe_route/moe_route_impl.h"

namespace millrace {
namespace {

constexpr OpTable<MoeRouteByScoreArgs> kByScore = {
    .op = "MoeRouteByScore", .cpu = MoeRouteByScoreCpu, .cuda = MoeRouteByScoreCuda};
constexpr OpTable<MoeRouteByHashArgs> kByHash = {
    .op = "MoeRouteByHash", .cpu = MoeRouteByHashCpu, .cuda = MoeRouteByHashCuda};

struct RouteSizes {
  int64_t tokens = kUnbound;
  int64_t experts = kUnbound;
  int64_t chosen = kUnbound;
};

// The parts that both routers share.
template <typename Args>
void BindRoute(ShapeChecker& checker, const Args& args, RouteSizes& sizes) {
  checker.Bind("logits", args.logits, {&sizes.tokens, &sizes.experts}, {DType::kF32})
      .Bind("experts", args.experts, {&sizes.tokens, &sizes.chosen}, {DType::kI32})
      .Bind("weights", args.weights, {&sizes.tokens, &sizes.chosen}, {DType::kF32})
      .Require(args.scaling > 0, "scaling must be positive");
}

}  // namespace

absl::Status MoeRouteByScore(const OpContext& ctx, const MoeRouteByScoreArgs& args) {
  RouteSizes sizes;
  ShapeChecker checker("MoeRouteByScore", ctx.device.type());
  BindRoute(checker, args, sizes);
  checker.Bind("bias", args.bias, {&sizes.experts}, {DType::kF32})
      .Require(sizes.chosen >= 1 && sizes.chosen <= sizes.experts,
               "a token must go to at least one and at most all experts");
  RETURN_IF_ERROR(checker.status());
  if (args.experts.empty()) return absl::OkStatus();
  return RunOnDevice(kByScore, ctx, args);
}

absl::Status MoeRouteByHash(const OpContext& ctx, const MoeRouteByHashArgs& args) {
  RouteSizes sizes;
  int64_t ids = kUnbound, slots = kUnbound;
  ShapeChecker checker("MoeRouteByHash", ctx.device.type());
  BindRoute(checker, args, sizes);
  checker.Bind("ids", args.ids, {&sizes.tokens}, {DType::kI32});
  if (args.last_tokens) checker.Bind("last_tokens", *args.last_tokens, {&slots}, {DType::kI32});
  checker.Bind("table", args.table, {&ids, &sizes.chosen}, {DType::kI32});
  RETURN_IF_ERROR(checker.status());
  if (args.experts.empty()) return absl::OkStatus();
  return RunOnDevice(kByHash, ctx, args);
}

}  // namespace millrace
