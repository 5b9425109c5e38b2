#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/core/rows_aligned.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/hyper_connection/hyper_connection_impl.h"
#include "kernels/hyper_connection/hyper_connection_kernel.h"

namespace millrace {
namespace {

// Up to here the product is divided into pieces: enough blocks, but more sums to write and read.
constexpr int64_t kFewTokens = 1024;
// Tokens of one pass, so that the sums of a long prefill stay small.
constexpr int64_t kPassTokens = 4096;

int64_t Parts(int64_t size, int64_t part) { return (size + part - 1) / part; }

// Every token's rows, also of a call of one token: what a token gets must not depend on the rest.
bool StreamsTakeVectors(const TensorView& streams) {
  return streams.dtype == DType::kBF16 && streams.dim(2) % 8 == 0 &&
         reinterpret_cast<uintptr_t>(streams.data) % 16 == 0 && streams.stride(0) % 8 == 0 &&
         streams.stride(1) % 8 == 0;
}

HyperStreams StreamsOf(const TensorView& streams) {
  return {.data = streams.data,
          .token_stride = streams.stride(0),
          .stride = streams.stride(1),
          .tokens = static_cast<int32_t>(streams.dim(0)),
          .count = static_cast<int32_t>(streams.dim(1)),
          .width = static_cast<int32_t>(streams.dim(2))};
}

// `row`: the operand of [T, D] beside the streams.
HyperElements ElementsOf(const TensorView& streams, const TensorView& row) {
  if (streams.dtype == DType::kF32) return HyperElements::kF32;
  return StreamsTakeVectors(streams) && RowsAligned(row) ? HyperElements::kBf16Vector
                                                         : HyperElements::kBf16;
}

absl::Status CheckSizes(const char* op, const TensorView& streams) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;
  if (streams.dim(0) > kMax || streams.dim(1) * streams.dim(2) > kMax) {
    return absl::UnimplementedError(
        absl::StrCat(op, ": more than 2^30 tokens or elements a token on cuda"));
  }
  return absl::OkStatus();
}

// How the product of a token's streams with fn is divided.
struct MixPlan {
  HyperMixVariant variant;
  int32_t parts;
  int32_t group_parts;
};

MixPlan PlanMix(const TensorView& streams, const TensorView& fn, int64_t pass_tokens) {
  const int64_t size = fn.dim(1);
  const bool fits = StreamsTakeVectors(streams) && streams.dim(2) % kHyperPiece == 0 &&
                    fn.dim(0) <= kHyperTensorRows && RowsAligned(fn);
  if (fits && pass_tokens <= kFewTokens) {
    return {.variant = HyperMixVariant::kPieces,
            .parts = static_cast<int32_t>(size / kHyperPiece),
            .group_parts = kHyperGroupPieces};
  }
  const HyperMixVariant any =
      streams.dtype == DType::kF32 ? HyperMixVariant::kF32 : HyperMixVariant::kBf16;
  return {.variant = fits ? HyperMixVariant::kGroups : any,
          .parts = static_cast<int32_t>(Parts(size, kHyperGroup)),
          .group_parts = 1};
}

// What In and Head share: `collapse` has what does not follow from these operands, for all tokens.
template <typename Args>
absl::Status MixAndCollapse(const OpContext& ctx, const char* op, const Args& args,
                            const TensorView& y, HyperCollapseKernelArgs collapse) {
  RETURN_IF_ERROR(CheckSizes(op, args.streams));
  const int64_t tokens = args.streams.dim(0), rows = args.fn.dim(0), size = args.fn.dim(1);
  WorkspaceScope scope(ctx.workspace);
  ASSIGN_OR_RETURN(void* const sums,
                   scope.Take(HyperConnectionCudaWorkspaceBytes(tokens, rows, size)));
  HyperMixKernelArgs mix = {.fn = args.fn.template as<float>(),
                            .fn_stride = args.fn.stride(0),
                            .rows = static_cast<int32_t>(rows),
                            .sums = static_cast<float*>(sums)};
  collapse.sums = mix.sums;
  collapse.rows = mix.rows;
  collapse.base = args.base.template as<float>();
  collapse.scale = args.scale.template as<float>();
  collapse.y_stride = y.stride(0);
  collapse.norm_eps = args.norm_eps;
  collapse.hc_eps = args.hc_eps;
  for (int64_t begin = 0; begin < tokens; begin += kPassTokens) {
    const int64_t end = std::min(tokens, begin + kPassTokens);
    const MixPlan plan = PlanMix(args.streams, args.fn, end - begin);
    mix.streams = collapse.streams = StreamsOf(args.streams.Rows(begin, end));
    collapse.parts = plan.parts;
    collapse.group_parts = plan.group_parts;
    collapse.y = y.Rows(begin, end).data;
    RETURN_IF_ERROR(CudaStatus(LaunchHyperMix(plan.variant, mix, ToCuda(ctx.stream)), op));
    RETURN_IF_ERROR(CudaStatus(
        LaunchHyperCollapse(ElementsOf(args.streams, y), collapse, ToCuda(ctx.stream)), op));
    if (collapse.post == nullptr) continue;
    collapse.post += (end - begin) * collapse.post_stride;
    collapse.comb += (end - begin) * collapse.comb_token_stride;
  }
  return absl::OkStatus();
}

}  // namespace

int64_t HyperConnectionCudaWorkspaceBytes(int64_t max_tokens, int64_t rows, int64_t size) {
  const int64_t pieces = std::min(max_tokens, kFewTokens) * Parts(size, kHyperPiece);
  const int64_t groups = std::min(max_tokens, kPassTokens) * Parts(size, kHyperGroup);
  const int64_t bytes = std::max(pieces, groups) * (rows + 1) * static_cast<int64_t>(sizeof(float));
  return (bytes + 255) / 256 * 256;  // what a workspace gives at once
}

absl::Status HyperConnectionBeginCuda(const OpContext& ctx, const HyperConnectionBeginArgs& args) {
  RETURN_IF_ERROR(CheckSizes("HyperConnectionBegin", args.streams));
  const HyperBeginKernelArgs kernel_args = {
      .x = args.x.data, .x_stride = args.x.stride(0), .streams = StreamsOf(args.streams)};
  return CudaStatus(
      LaunchHyperBegin(ElementsOf(args.streams, args.x), kernel_args, ToCuda(ctx.stream)),
      "HyperConnectionBegin");
}

absl::Status HyperConnectionInCuda(const OpContext& ctx, const HyperConnectionInArgs& args) {
  return MixAndCollapse(ctx, "HyperConnectionIn", args, args.x,
                        {.post = args.post.as<float>(),
                         .post_stride = args.post.stride(0),
                         .comb = args.comb.as<float>(),
                         .comb_token_stride = args.comb.stride(0),
                         .comb_stride = args.comb.stride(1),
                         .sinkhorn_iters = args.sinkhorn_iters});
}

absl::Status HyperConnectionOutCuda(const OpContext& ctx, const HyperConnectionOutArgs& args) {
  RETURN_IF_ERROR(CheckSizes("HyperConnectionOut", args.streams));
  const HyperOutKernelArgs kernel_args = {.out = args.out.data,
                                          .out_stride = args.out.stride(0),
                                          .post = args.post.as<float>(),
                                          .post_stride = args.post.stride(0),
                                          .comb = args.comb.as<float>(),
                                          .comb_token_stride = args.comb.stride(0),
                                          .comb_stride = args.comb.stride(1),
                                          .streams = StreamsOf(args.streams)};
  return CudaStatus(
      LaunchHyperOut(ElementsOf(args.streams, args.out), kernel_args, ToCuda(ctx.stream)),
      "HyperConnectionOut");
}

absl::Status HyperConnectionHeadCuda(const OpContext& ctx, const HyperConnectionHeadArgs& args) {
  return MixAndCollapse(ctx, "HyperConnectionHead", args, args.y, {});
}

}  // namespace millrace
