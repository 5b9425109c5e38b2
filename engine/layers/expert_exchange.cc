#include "engine/layers/expert_exchange.h"

#include <algorithm>
#include <numeric>

#include "kernels/core/status.h"
#include "kernels/moe_exchange/moe_exchange.h"

namespace millrace {
namespace {

int64_t Sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

std::vector<int64_t> Times(std::vector<int64_t> counts, int64_t width) {
  for (int64_t& count : counts) count *= width;
  return counts;
}

}  // namespace

int64_t ExpertExchange::MaxRows(int64_t own_tokens) const {
  return own_tokens * std::min<int64_t>(config_.chosen, config_.world_size);
}

absl::StatusOr<ExpertExchange::Counts> ExpertExchange::ExchangeCounts(
    ForwardContext& ctx, const TensorView& counts) const {
  const auto world = static_cast<size_t>(config_.world_size);
  WorkspaceScope scope(ctx.op.workspace);
  ASSIGN_OR_RETURN(const TensorView all, TakeActivation(scope, ctx.op, DType::kI32,
                                                        config_.world_size, config_.world_size));
  const std::vector<int64_t> each(world, config_.world_size);
  RETURN_IF_ERROR(ctx.world->AllGather(counts, each.data(), all, ctx.op.stream));
  std::vector<int32_t> host(world * world);
  RETURN_IF_ERROR(ctx.op.device.Copy(host.data(), all.data,
                                     static_cast<int64_t>(host.size() * sizeof(int32_t)),
                                     CopyKind::kDeviceToHost, ctx.op.stream));
  RETURN_IF_ERROR(ctx.op.device.Synchronize(ctx.op.stream));
  const auto me = static_cast<size_t>(ctx.world->rank());
  Counts result;
  for (size_t r = 0; r < world; ++r) {
    result.send.push_back(host[me * world + r]);
    result.receive.push_back(host[r * world + me]);
  }
  return result;
}

absl::Status ExpertExchange::Forward(ForwardContext& ctx, const RoutedTokens& tokens,
                                     const StoredExperts& experts, const TensorView& y) const {
  const OpContext& op = ctx.op;
  WorkspaceScope scope(op.workspace);
  const Range own = OwnTokens(tokens.x.dim(0));
  const int64_t width = MoeMessageWidth(config_.hidden_size, config_.chosen);
  const int64_t room = MaxRows(own.size());
  ASSIGN_OR_RETURN(const TensorView rows, TakeActivation(scope, op, DType::kF32, room, width));
  ASSIGN_OR_RETURN(const TensorView source, TakeActivation(scope, op, DType::kI32, 1, room));
  ASSIGN_OR_RETURN(const TensorView counts,
                   TakeActivation(scope, op, DType::kI32, 1, config_.world_size));
  const auto flat = [&op](const TensorView& row) {
    return TensorView::Of(row.data, row.dtype, {row.dim(1)}, op.device.type());
  };
  RETURN_IF_ERROR(MoeDispatch(op, {.x = tokens.x.Rows(own.begin, own.end),
                                   .experts = tokens.experts.Rows(own.begin, own.end),
                                   .weights = tokens.weights.Rows(own.begin, own.end),
                                   .num_experts = config_.num_experts,
                                   .rows = rows,
                                   .source = flat(source),
                                   .counts = flat(counts)}));
  ASSIGN_OR_RETURN(const Counts moved, ExchangeCounts(ctx, flat(counts)));
  const int64_t sent = Sum(moved.send);
  const int64_t received = Sum(moved.receive);

  ASSIGN_OR_RETURN(const TensorView guests,
                   TakeActivation(scope, op, DType::kF32, received, width));
  ASSIGN_OR_RETURN(const TensorView results,
                   TakeActivation(scope, op, DType::kF32, received, config_.hidden_size));
  ASSIGN_OR_RETURN(const TensorView back,
                   TakeActivation(scope, op, DType::kF32, sent, config_.hidden_size));
  RETURN_IF_ERROR(ctx.world->AllToAll(rows.Rows(0, sent), Times(moved.send, width).data(), guests,
                                      Times(moved.receive, width).data(), op.stream));
  RETURN_IF_ERROR(experts.Forward(op, MoeMessageChannels(guests, config_.chosen),
                                  MoeMessageExperts(guests, config_.chosen),
                                  MoeMessageWeights(guests, config_.chosen), results));
  RETURN_IF_ERROR(ctx.world->AllToAll(results, Times(moved.receive, config_.hidden_size).data(),
                                      back, Times(moved.send, config_.hidden_size).data(),
                                      op.stream));
  return MoeCombine(op, {.rows = back, .source = flat(source).Rows(0, sent), .y = y});
}

int64_t ExpertExchange::WorkspaceBytes(Device& device, const LargestStep& limits,
                                       const StoredExperts& experts) const {
  const int64_t groups = config_.world_size / config_.tensor_size;
  const int64_t own = (limits.tokens + config_.tensor_size - 1) / config_.tensor_size;
  const int64_t room = MaxRows(own);
  const int64_t guests = limits.tokens * groups;
  const int64_t width = MoeMessageWidth(config_.hidden_size, config_.chosen);
  const int64_t counts = ActivationBytes(DType::kI32, config_.world_size, config_.world_size);
  return ActivationBytes(DType::kF32, room, width) + ActivationBytes(DType::kI32, 1, room) +
         2 * counts + ActivationBytes(DType::kF32, guests, width) +
         ActivationBytes(DType::kF32, guests, config_.hidden_size) +
         ActivationBytes(DType::kF32, room, config_.hidden_size) + experts.WorkspaceBytes(device);
}

}  // namespace millrace
