#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/core/rows_aligned.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/moe_route/moe_route_impl.h"
#include "kernels/moe_route/moe_route_kernel.h"

namespace millrace {
namespace {

constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;

template <typename Args>
RouteKernelTokens TokensOf(const Args& args) {
  return {.logits = args.logits.template as<const float>(),
          .experts = args.experts.template as<int32_t>(),
          .weights = args.weights.template as<float>(),
          .logits_stride = args.logits.stride(0),
          .experts_stride = args.experts.stride(0),
          .weights_stride = args.weights.stride(0),
          .tokens = static_cast<int32_t>(args.logits.dim(0)),
          .num_experts = static_cast<int32_t>(args.logits.dim(1)),
          .chosen = static_cast<int32_t>(args.experts.dim(1)),
          .scaling = args.scaling};
}

}  // namespace

absl::Status MoeRouteByScoreCuda(const OpContext& ctx, const MoeRouteByScoreArgs& args) {
  if (args.logits.dim(1) > kMaxRoutedExperts) {
    return absl::UnimplementedError(absl::StrCat("MoeRouteByScore: ", args.logits.dim(1),
                                                 " experts, at most ", kMaxRoutedExperts,
                                                 " on cuda"));
  }
  if (args.logits.dim(0) > kMax) {
    return absl::UnimplementedError("MoeRouteByScore: more than 2^30 tokens on cuda");
  }
  const RouteByScoreKernelArgs kernel_args = {
      .tokens = TokensOf(args),
      .bias = args.bias.as<const float>(),
      .aligned = args.logits.dim(1) % 4 == 0 && RowsAligned(args.logits) && RowsAligned(args.bias)};
  return CudaStatus(LaunchRouteByScore(kernel_args, ToCuda(ctx.stream)), "MoeRouteByScore");
}

absl::Status MoeRouteByHashCuda(const OpContext& ctx, const MoeRouteByHashArgs& args) {
  const int64_t slots = args.last_tokens ? args.last_tokens->dim(0) : 0;
  if (args.logits.dim(0) > kMax || args.logits.dim(1) > kMax || args.experts.dim(1) > kMax ||
      args.table.dim(0) > kMax || slots > kMax) {
    return absl::UnimplementedError("MoeRouteByHash: a size of more than 2^30 on cuda");
  }
  const RouteByHashKernelArgs kernel_args = {
      .tokens = TokensOf(args),
      .ids = args.ids.as<const int32_t>(),
      .last_tokens = args.last_tokens ? args.last_tokens->as<const int32_t>() : nullptr,
      .table = args.table.as<const int32_t>(),
      .table_stride = args.table.stride(0),
      .slots = static_cast<int32_t>(slots),
      .table_rows = static_cast<int32_t>(args.table.dim(0))};
  return CudaStatus(LaunchRouteByHash(kernel_args, ToCuda(ctx.stream)), "MoeRouteByHash");
}

}  // namespace millrace
