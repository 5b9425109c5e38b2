#include "kernels/latent_rope/latent_rope.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/latent_cache/rotate_pairs_cpu.h"
#include "kernels/latent_rope/latent_rope_impl.h"

namespace millrace {
namespace {

constexpr OpTable<LatentRopeArgs> kLatentRope = {
    .op = "LatentRope", .cpu = LatentRopeCpu, .cuda = LatentRopeCuda};

}  // namespace

absl::Status LatentRope(const OpContext& ctx, const LatentRopeArgs& args) {
  int64_t tokens = kUnbound, heads = kUnbound, dim = kUnbound, pairs = kUnbound;
  RETURN_IF_ERROR(
      ShapeChecker("LatentRope", ctx.device.type())
          .Bind("x", args.x, {&tokens, &heads, &dim}, {DType::kF32, DType::kBF16})
          .Bind("positions", args.positions, {&tokens}, {DType::kI32})
          .Bind("inv_freq", args.inv_freq, {&pairs}, {DType::kF32})
          .Require(2 * pairs <= dim && pairs <= kMaxRotatedPairs,
                   "inv_freq must have at most half as many elements as a head, and 512")
          .Require(!args.norm_eps || *args.norm_eps > 0, "norm_eps must be positive")
          .status());
  if (args.x.empty()) return absl::OkStatus();
  return RunOnDevice(kLatentRope, ctx, args);
}

}  // namespace millrace
