#include "engine/layers/stored_experts.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/moe_experts/moe_experts.h"

namespace millrace {

absl::StatusOr<StoredExperts> StoredExperts::Load(const StoredExpertsConfig& config,
                                                  const std::string& prefix, LoadContext& ctx) {
  const Range all = {0, config.hidden_size};
  std::vector<StoredPart> gate, up, down;
  for (int64_t e = 0; e < config.num_experts; ++e) {
    const std::string expert = absl::StrCat(prefix, ".", e);
    const StoredPart w1 = {expert + ".w1", config.width, config.hidden_size, config.part, all};
    const StoredPart w3 = {expert + ".w3", config.width, config.hidden_size, config.part, all};
    const StoredPart w2 = {expert + ".w2", config.hidden_size, config.width, all, config.part};
    if (e >= config.experts.begin && e < config.experts.end) {
      gate.push_back(w1);
      up.push_back(w3);
      down.push_back(w2);
      continue;
    }
    for (const StoredPart* part : {&w1, &w3, &w2}) {
      RETURN_IF_ERROR(SkipStored(*part, ctx.weights));
    }
  }
  StoredExperts layer;
  layer.config_ = config;
  ASSIGN_OR_RETURN(layer.gate_, LoadStored(gate, ctx.weights));
  ASSIGN_OR_RETURN(layer.up_, LoadStored(up, ctx.weights));
  ASSIGN_OR_RETURN(layer.down_, LoadStored(down, ctx.weights));
  layer.rounding_ = ctx.rounding;
  return layer;
}

absl::Status StoredExperts::Forward(const OpContext& op, const TensorView& x,
                                    const TensorView& experts, const TensorView& weights,
                                    const TensorView& out) const {
  return MoeExperts(op, {.x = x,
                         .experts = experts,
                         .weights = weights,
                         .gate = gate_.matrix,
                         .up = up_.matrix,
                         .down = down_.matrix,
                         .first_expert = static_cast<int32_t>(config_.experts.begin),
                         .limit = config_.limit,
                         .rounding = rounding_,
                         .y = out});
}

int64_t StoredExperts::WorkspaceBytes(Device& device) const {
  return MoeExpertsWorkspaceBytes(device, {.hidden = config_.hidden_size,
                                           .width = config_.part.size(),
                                           .experts = config_.experts.size(),
                                           .chosen = config_.chosen});
}

}  // namespace millrace
