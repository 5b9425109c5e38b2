#include "engine/runtime/slot_table.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr float kMaxTemperature = 1e9f;  // of the sampling op

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckIds(const char* what, const std::vector<int32_t>& ids, int32_t first,
                      int32_t end) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < first || ids[i] >= end) {
      return Bad(what, "[", i, "] = ", ids[i], ", want ", first, " to ", end - 1);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSampling(const SamplingParams& s, int32_t vocab) {
  if (!(s.temperature >= 0 && s.temperature <= kMaxTemperature)) {
    return Bad("temperature = ", s.temperature);
  }
  if (s.top_k < 0) return Bad("top_k = ", s.top_k);
  if (!(s.top_p > 0 && s.top_p <= 1)) return Bad("top_p = ", s.top_p);
  if (!(s.min_p >= 0 && s.min_p <= 1)) return Bad("min_p = ", s.min_p);
  if (!(s.repetition_penalty > 0) || !std::isfinite(s.repetition_penalty)) {
    return Bad("repetition_penalty = ", s.repetition_penalty);
  }
  if (!std::isfinite(s.frequency_penalty) || !std::isfinite(s.presence_penalty)) {
    return Bad("frequency_penalty = ", s.frequency_penalty,
               ", presence_penalty = ", s.presence_penalty);
  }
  for (const int32_t k : {s.num_logprobs, s.num_prompt_logprobs}) {
    if (k < -1 || k > kMaxTopLogprobs) return Bad(k, " logprobs, want at most ", kMaxTopLogprobs);
  }
  for (const auto& [id, bias] : s.logit_bias) {
    if (id < 0 || id >= vocab || !std::isfinite(bias)) return Bad("logit_bias[", id, "] = ", bias);
  }
  return absl::OkStatus();
}

absl::Status CheckInit(const SlotInit& init, const PlanLimits& limits) {
  RETURN_IF_ERROR(CheckSampling(init.sampling, limits.vocab_size));
  if (init.history.size() > static_cast<size_t>(limits.max_model_len)) {
    return Bad("a history of ", init.history.size(), ", want at most ", limits.max_model_len);
  }
  RETURN_IF_ERROR(CheckIds("history", init.history, 0, limits.vocab_size));
  if (init.prompt_tokens < 0 || init.output_tokens < 0 ||
      (!init.history.empty() && static_cast<size_t>(init.prompt_tokens) > init.history.size())) {
    return Bad("prompt_tokens = ", init.prompt_tokens, " and output_tokens = ", init.output_tokens,
               " do not fit a history of ", init.history.size());
  }
  return absl::OkStatus();
}

absl::Status CheckPages(const SequencePlan& s, const std::vector<int32_t>& kept,
                        const PlanLimits& limits) {
  RETURN_IF_ERROR(CheckIds("new_pages", s.new_pages, 0, limits.num_pages));
  const int64_t pages = static_cast<int64_t>(kept.size() + s.new_pages.size());
  if (pages > limits.max_pages_per_sequence()) {
    return Bad(pages, " pages, want at most ", limits.max_pages_per_sequence());
  }
  absl::flat_hash_set<int32_t> seen;
  if (!s.new_pages.empty()) seen.insert(kept.begin(), kept.end());
  for (const int32_t page : s.new_pages) {
    if (!seen.insert(page).second) return Bad("page ", page, " is given twice");
  }
  const int64_t end = int64_t{s.position} + s.num_tokens();
  if (s.position < 0 || end > limits.max_model_len) {
    return Bad("position ", s.position, " with ", s.num_tokens(), " tokens, want at most ",
               limits.max_model_len);
  }
  if (end > pages * limits.page_tokens) {
    return Bad(end, " tokens do not fit into ", pages, " pages of ", limits.page_tokens);
  }
  return absl::OkStatus();
}

absl::Status CheckOutputs(const SequencePlan& s, int32_t vocab) {
  const size_t scored = s.prompt_logprobs ? static_cast<size_t>(s.num_tokens()) : 0;
  if (s.score_targets.size() != scored) {
    return Bad(s.score_targets.size(), " score targets, want ", scored);
  }
  RETURN_IF_ERROR(CheckIds("score_targets", s.score_targets, -1, vocab));
  RETURN_IF_ERROR(CheckIds("logits_rows", s.logits_rows, 0, s.num_tokens()));
  if (std::adjacent_find(s.logits_rows.begin(), s.logits_rows.end(),
                         std::greater_equal<int32_t>()) != s.logits_rows.end()) {
    return Bad("logits_rows do not ascend");
  }
  return absl::OkStatus();
}

absl::Status CheckSequence(const SequencePlan& s, const Slot& slot, const PlanLimits& limits) {
  const std::vector<int32_t> none;
  if (s.init.has_value()) {
    RETURN_IF_ERROR(CheckInit(*s.init, limits));
    if (s.tokens.empty()) return Bad("a first step without tokens");
  } else {
    if (!slot.occupied) return Bad("no sequence was put into this slot");
    if (s.position != slot.cached_tokens) {
      return Bad("position ", s.position, ", but ", slot.cached_tokens, " tokens are cached");
    }
    if (s.tokens.empty() && !slot.has_sample) return Bad("no tokens, and none was sampled before");
  }
  RETURN_IF_ERROR(CheckIds("tokens", s.tokens, 0, limits.vocab_size));
  RETURN_IF_ERROR(CheckPages(s, s.init.has_value() ? none : slot.pages, limits));
  return CheckOutputs(s, limits.vocab_size);
}

Slot MakeSlot(const SlotInit& init, int32_t vocab) {
  Slot slot;
  slot.occupied = true;
  slot.sampling = init.sampling;
  slot.output_tokens = init.output_tokens;
  for (size_t i = 0; i < init.history.size(); ++i) {
    if (i < static_cast<size_t>(init.prompt_tokens)) {
      slot.counts.AddPrompt(init.history[i]);
    } else {
      slot.counts.AddOutput(init.history[i]);
    }
  }
  for (const auto& [id, bias] : init.sampling.logit_bias) {
    slot.bias_ids.push_back(id);
    slot.bias_values.push_back(bias);
  }
  for (const int32_t id : init.sampling.stop_token_ids) {
    if (id >= 0 && id < vocab) slot.stop_ids.push_back(id);
  }
  return slot;
}

}  // namespace

size_t TokenCounts::Entry(int32_t id) {
  const auto [it, inserted] = index_.try_emplace(id, ids_.size());
  if (inserted) {
    ids_.push_back(id);
    output_counts_.push_back(0);
  }
  return it->second;
}

SlotTable::SlotTable(const PlanLimits& limits)
    : limits_(limits), slots_(static_cast<size_t>(limits.max_num_seqs)) {
  MR_CHECK(limits.max_num_seqs > 0 && limits.page_tokens > 0 && limits.vocab_size > 0);
}

absl::Status SlotTable::Validate(const StepPlan& plan) const {
  const auto in_step = [&](const auto&... parts) {
    return Bad("step ", plan.step, ": ", parts...);
  };
  if (last_step_ >= 0 && plan.step != last_step_ + 1) return in_step("follows step ", last_step_);
  if (plan.step < 0) return in_step("want a step >= 0");
  if (plan.sequences.empty() && !limits_.may_idle) return in_step("no sequences");
  if (plan.sequences.size() > slots_.size()) {
    return in_step(plan.sequences.size(), " sequences, want at most ", slots_.size());
  }
  int64_t tokens = 0;
  std::vector<bool> seen(slots_.size());
  for (const SequencePlan& s : plan.sequences) {
    if (s.slot < 0 || s.slot >= limits_.max_num_seqs) {
      return in_step("slot ", s.slot, ", want 0 to ", limits_.max_num_seqs - 1);
    }
    if (seen[static_cast<size_t>(s.slot)]) return in_step("slot ", s.slot, " is given twice");
    seen[static_cast<size_t>(s.slot)] = true;
    tokens += std::max<int64_t>(1, static_cast<int64_t>(s.tokens.size()));
    if (tokens > limits_.max_num_batched_tokens) {
      return in_step("more than ", limits_.max_num_batched_tokens, " tokens");
    }
    if (absl::Status status = CheckSequence(s, slot(s.slot), limits_); !status.ok()) {
      return in_step("slot ", s.slot, ": ", status.message());
    }
  }
  return absl::OkStatus();
}

void SlotTable::Apply(const StepPlan& plan) {
  last_step_ = plan.step;
  for (const SequencePlan& s : plan.sequences) {
    Slot& slot = slots_[static_cast<size_t>(s.slot)];
    if (s.init.has_value()) {
      const uint32_t sequence = slot.sequence + 1;
      slot = MakeSlot(*s.init, limits_.vocab_size);
      slot.sequence = sequence;
    }
    slot.pages.insert(slot.pages.end(), s.new_pages.begin(), s.new_pages.end());
    slot.cached_tokens = s.position + s.num_tokens();
    if (!s.sample) continue;
    slot.has_sample = true;
    ++slot.unrecorded;
    ++slot.output_tokens;
  }
}

void SlotTable::RecordSample(int32_t index, uint32_t sequence, int32_t token) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  if (slot.sequence != sequence) return;
  --slot.unrecorded;
  slot.last_token = token;
  if (token >= 0 && slot.sampling.has_penalties()) slot.counts.AddOutput(token);
}

}  // namespace millrace
