#include "kernels/hyper_connection/hyper_connection.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/hyper_connection/hyper_connection_impl.h"

namespace millrace {
namespace {

constexpr OpTable<HyperConnectionBeginArgs> kBegin = {
    .op = "HyperConnectionBegin", .cpu = HyperConnectionBeginCpu, .cuda = HyperConnectionBeginCuda};
constexpr OpTable<HyperConnectionInArgs> kIn = {
    .op = "HyperConnectionIn", .cpu = HyperConnectionInCpu, .cuda = HyperConnectionInCuda};
constexpr OpTable<HyperConnectionOutArgs> kOut = {
    .op = "HyperConnectionOut", .cpu = HyperConnectionOutCpu, .cuda = HyperConnectionOutCuda};
constexpr OpTable<HyperConnectionHeadArgs> kHead = {
    .op = "HyperConnectionHead", .cpu = HyperConnectionHeadCpu, .cuda = HyperConnectionHeadCuda};

// Sizes of the streams, bound by BindStreams.
struct StreamSizes {
  int64_t tokens = kUnbound;
  int64_t streams = kUnbound;
  int64_t width = kUnbound;
};

void BindStreams(ShapeChecker& checker, const TensorView& streams, StreamSizes& sizes) {
  checker
      .Bind("streams", streams, {&sizes.tokens, &sizes.streams, &sizes.width},
            {DType::kF32, DType::kBF16})
      .Require(sizes.streams >= 1 && sizes.streams <= kMaxHyperStreams,
               "streams must be from 1 to 8");
}

// The parts that In and Head share.
template <typename Args>
void BindMix(ShapeChecker& checker, const Args& args, const StreamSizes& sizes, int64_t rows,
             int64_t scales) {
  int64_t inputs = sizes.streams * sizes.width;
  checker.Bind("fn", args.fn, {&rows, &inputs}, {DType::kF32})
      .Bind("base", args.base, {&rows}, {DType::kF32})
      .Bind("scale", args.scale, {&scales}, {DType::kF32})
      .Require(args.norm_eps > 0, "norm_eps must be positive")
      .Require(args.hc_eps >= 0, "hc_eps must not be negative");
}

}  // namespace

int64_t HyperConnectionWorkspaceBytes(Device& device, int64_t max_tokens, int64_t streams,
                                      int64_t width) {
  if (device.type() == DeviceType::kCpu) return 0;
  return HyperConnectionCudaWorkspaceBytes(max_tokens, (2 + streams) * streams, streams * width);
}

absl::Status HyperConnectionBegin(const OpContext& ctx, const HyperConnectionBeginArgs& args) {
  StreamSizes sizes;
  ShapeChecker checker("HyperConnectionBegin", ctx.device.type());
  BindStreams(checker, args.streams, sizes);
  RETURN_IF_ERROR(checker.status());
  checker.Bind("x", args.x, {&sizes.tokens, &sizes.width}, {args.streams.dtype});
  RETURN_IF_ERROR(checker.status());
  if (args.streams.empty()) return absl::OkStatus();
  return RunOnDevice(kBegin, ctx, args);
}

absl::Status HyperConnectionIn(const OpContext& ctx, const HyperConnectionInArgs& args) {
  StreamSizes sizes;
  ShapeChecker checker("HyperConnectionIn", ctx.device.type());
  BindStreams(checker, args.streams, sizes);
  RETURN_IF_ERROR(checker.status());
  BindMix(checker, args, sizes, (2 + sizes.streams) * sizes.streams, 3);
  checker.Bind("x", args.x, {&sizes.tokens, &sizes.width}, {args.streams.dtype})
      .Bind("post", args.post, {&sizes.tokens, &sizes.streams}, {DType::kF32})
      .Bind("comb", args.comb, {&sizes.tokens, &sizes.streams, &sizes.streams}, {DType::kF32})
      .Require(args.sinkhorn_iters >= 1, "sinkhorn_iters must be at least 1");
  RETURN_IF_ERROR(checker.status());
  if (args.streams.empty()) return absl::OkStatus();
  return RunOnDevice(kIn, ctx, args);
}

absl::Status HyperConnectionOut(const OpContext& ctx, const HyperConnectionOutArgs& args) {
  StreamSizes sizes;
  ShapeChecker checker("HyperConnectionOut", ctx.device.type());
  BindStreams(checker, args.streams, sizes);
  RETURN_IF_ERROR(checker.status());
  checker.Bind("out", args.out, {&sizes.tokens, &sizes.width}, {args.streams.dtype})
      .Bind("post", args.post, {&sizes.tokens, &sizes.streams}, {DType::kF32})
      .Bind("comb", args.comb, {&sizes.tokens, &sizes.streams, &sizes.streams}, {DType::kF32});
  RETURN_IF_ERROR(checker.status());
  if (args.streams.empty()) return absl::OkStatus();
  return RunOnDevice(kOut, ctx, args);
}

absl::Status HyperConnectionHead(const OpContext& ctx, const HyperConnectionHeadArgs& args) {
  StreamSizes sizes;
  ShapeChecker checker("HyperConnectionHead", ctx.device.type());
  BindStreams(checker, args.streams, sizes);
  RETURN_IF_ERROR(checker.status());
  BindMix(checker, args, sizes, sizes.streams, 1);
  checker.Bind("y", args.y, {&sizes.tokens, &sizes.width}, {args.streams.dtype});
  RETURN_IF_ERROR(checker.status());
  if (args.streams.empty()) return absl::OkStatus();
  return RunOnDevice(kHead, ctx, args);
}

}  // namespace millrace
