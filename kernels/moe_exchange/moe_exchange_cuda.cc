#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/core/rows_aligned.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_device_impl.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/moe_exchange/moe_exchange_impl.h"
#include "kernels/moe_exchange/moe_exchange_kernel.h"

namespace millrace {
namespace {

constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;

constexpr int64_t DivideUp(int64_t x, int64_t by) { return (x + by - 1) / by; }

// Runs of tokens for `blocks` blocks on each multiprocessor. Where these are too few, pieces of the
// channels of each for one: a grid that fills no multiprocessor leaves room for the next one to
// come into place.
constexpr ExchangePlan Plan(int64_t tokens, int64_t pieces, int64_t multiprocessors,
                            int64_t blocks) {
  const int64_t run = std::max<int64_t>(DivideUp(tokens, multiprocessors * blocks), 1);
  const int64_t runs = std::max<int64_t>(DivideUp(tokens, run), 1);
  const int64_t parts = std::max<int64_t>(std::min(pieces, multiprocessors / runs), 1);
  return {.blocks = static_cast<int32_t>(runs),
          .block_tokens = static_cast<int32_t>(run),
          .parts = static_cast<int32_t>(parts)};
}
static_assert(Plan(0, 8, 132, 2).blocks == 1 && Plan(1, 8, 132, 2).parts == 8);
static_assert(Plan(64, 8, 132, 1).blocks == 64 && Plan(64, 8, 132, 1).parts == 2);
static_assert(Plan(8192, 8, 132, 2).blocks == 256 && Plan(8192, 8, 132, 2).block_tokens == 32);
static_assert(Plan(8192, 8, 132, 1).parts == 1 && Plan(5, 0, 132, 1).parts == 1);

RankOfExpert RankOf(int64_t num_experts, int64_t ranks) {
  const auto each = static_cast<int32_t>(num_experts / ranks);
  const auto long_ranks = static_cast<int32_t>(num_experts % ranks);
  return {.num_experts = static_cast<int32_t>(num_experts),
          .long_ranks = long_ranks,
          .long_experts = long_ranks * (each + 1),
          .long_inverse = ExchangeInverse(each + 1),
          .short_inverse = ExchangeInverse(each)};
}

bool TakesBulk(const CudaDevice& device, const MoeDispatchArgs& args) {
  return device.compute_capability() >= 90 && args.x.dim(1) % 4 == 0 && args.rows.dim(1) % 4 == 0 &&
         RowsAligned(args.rows) && RowsAligned(args.x, 4 * DTypeBytes(args.x.dtype));
}

DispatchVariant ChooseVariant(DType dtype, bool bulk) {
  if (dtype == DType::kF32) return bulk ? DispatchVariant::kF32Bulk : DispatchVariant::kF32;
  return bulk ? DispatchVariant::kBf16Bulk : DispatchVariant::kBf16;
}

}  // namespace

absl::Status MoeDispatchCuda(const OpContext& ctx, const MoeDispatchArgs& args) {
  const int64_t ranks = args.counts.dim(0);
  if (ranks > kMaxExchangeRanks || args.num_experts > kMaxExchangeExperts) {
    return absl::UnimplementedError(absl::StrCat("MoeDispatch: ", args.num_experts, " experts on ",
                                                 ranks, " ranks, at most ", kMaxExchangeExperts,
                                                 " on ", kMaxExchangeRanks, " on cuda"));
  }
  if (args.rows.dim(0) > kMax || args.rows.dim(1) > kMax) {
    return absl::UnimplementedError("MoeDispatch: more than 2^30 rows or words a row on cuda");
  }
  const CudaDevice& device = CudaDevice::Of(ctx.device);
  const bool bulk = TakesBulk(device, args);
  const int64_t piece = int64_t{kDispatchWords} * 32 * (bulk ? 4 : 1);
  const DispatchKernelArgs kernel_args = {
      .x = args.x.data,
      .experts = args.experts.as<const int32_t>(),
      .weights = args.weights.as<const float>(),
      .rows = args.rows.as<float>(),
      .source = args.source.as<int32_t>(),
      .counts = args.counts.as<int32_t>(),
      .x_stride = args.x.stride(0),
      .experts_stride = args.experts.stride(0),
      .weights_stride = args.weights.stride(0),
      .width = static_cast<int32_t>(args.rows.dim(1)),
      .tokens = static_cast<int32_t>(args.x.dim(0)),
      .hidden = static_cast<int32_t>(args.x.dim(1)),
      .chosen = static_cast<int32_t>(args.experts.dim(1)),
      .ranks = static_cast<int32_t>(ranks),
      .rank_of = RankOf(args.num_experts, ranks),
      .plan = Plan(args.x.dim(0), DivideUp(args.x.dim(1), piece), device.multiprocessors(),
                   kDispatchBlocks)};
  return CudaStatus(
      LaunchDispatch(ChooseVariant(args.x.dtype, bulk), kernel_args, ToCuda(ctx.stream)),
      "MoeDispatch");
}

absl::Status MoeCombineCuda(const OpContext& ctx, const MoeCombineArgs& args) {
  if (args.rows.dim(0) > kMax || args.y.dim(0) > kMax || args.y.dim(1) > kMax) {
    return absl::UnimplementedError("MoeCombine: more than 2^30 rows, tokens or channels on cuda");
  }
  const bool aligned = args.y.dim(1) % 4 == 0 && RowsAligned(args.rows) && RowsAligned(args.y);
  const int64_t piece = int64_t{kCombineWords} * 32 * (aligned ? 4 : 1);
  const CombineKernelArgs kernel_args = {
      .rows = args.rows.as<const float>(),
      .source = args.source.as<const int32_t>(),
      .y = args.y.as<float>(),
      .rows_stride = args.rows.stride(0),
      .y_stride = args.y.stride(0),
      .num_rows = static_cast<int32_t>(args.rows.dim(0)),
      .tokens = static_cast<int32_t>(args.y.dim(0)),
      .hidden = static_cast<int32_t>(args.y.dim(1)),
      .plan = Plan(args.y.dim(0), DivideUp(args.y.dim(1), piece),
                   CudaDevice::Of(ctx.device).multiprocessors(), kCombineBlocks)};
  return CudaStatus(LaunchCombine(aligned, kernel_args, ToCuda(ctx.stream)), "MoeCombine");
}

}  // namespace millrace
