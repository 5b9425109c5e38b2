// Routed experts that are spread over several batches' ranks: tokens travel to them and back.
#ifndef ENGINE_LAYERS_EXPERT_EXCHANGE_H_
#define ENGINE_LAYERS_EXPERT_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/stored_experts.h"
#include "engine/parallel/shard.h"

namespace millrace {

struct ExpertExchangeConfig {
  int64_t hidden_size = 0;
  int64_t num_experts = 0;
  int64_t chosen = 0;       // experts a token
  int32_t tensor_rank = 0;  // of the ranks that share the batch
  int32_t tensor_size = 1;
  int32_t world_size = 1;  // ranks that hold experts, as BalancedRange cuts them
};

// A step's tokens and what the router said of them.
struct RoutedTokens {
  TensorView x;        // [T, hidden]
  TensorView experts;  // [T, chosen] i32
  TensorView weights;  // [T, chosen] f32
};

// All ranks of all batches call it in the same layers of the same step, with tokens or without.
// Immutable.
class ExpertExchange final {
 public:
  explicit ExpertExchange(const ExpertExchangeConfig& config) : config_(config) {}

  // The ranks of a batch divide its tokens: each sends a part of them on its way.
  Range OwnTokens(int64_t tokens) const {
    return BalancedRange(tokens, config_.tensor_size, config_.tensor_rank);
  }

  // y = the routed experts' output for this rank's own tokens, [OwnTokens(T).size(), hidden] f32.
  // Waits for the device: how many tokens go where is known to nobody before.
  absl::Status Forward(ForwardContext& ctx, const RoutedTokens& tokens,
                       const StoredExperts& experts, const TensorView& y) const;

  // That Forward needs at most, `experts`' included.
  int64_t WorkspaceBytes(Device& device, const LargestStep& limits,
                         const StoredExperts& experts) const;

 private:
  // Rows that go to and come from each rank.
  struct Counts {
    std::vector<int64_t> send;
    std::vector<int64_t> receive;
  };

  int64_t MaxRows(int64_t own_tokens) const;
  absl::StatusOr<Counts> ExchangeCounts(ForwardContext& ctx, const TensorView& counts) const;

  ExpertExchangeConfig config_;
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_EXPERT_EXCHANGE_H_
