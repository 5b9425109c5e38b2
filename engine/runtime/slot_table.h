// The slots of one rank: what it remembers of each sequence between steps, and the check of a plan
// against that memory. Knows no tensors.
#ifndef ENGINE_RUNTIME_SLOT_TABLE_H_
#define ENGINE_RUNTIME_SLOT_TABLE_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/scheduler/step_plan.h"

namespace millrace {

// What a plan may ask of a rank.
struct PlanLimits {
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  int32_t max_model_len = 0;
  int32_t page_tokens = 0;
  int32_t num_pages = 0;
  int32_t vocab_size = 0;
  bool may_idle = false;  // a step may have no sequences here: those of other groups run

  int32_t max_pages_per_sequence() const { return (max_model_len + page_tokens - 1) / page_tokens; }
};

// How often each id occurred in a sequence, for penalties. Parallel arrays, one entry per distinct
// id, in the order of first occurrence.
class TokenCounts final {
 public:
  void AddPrompt(int32_t id) { Entry(id); }
  void AddOutput(int32_t id) { ++output_counts_[Entry(id)]; }

  const std::vector<int32_t>& ids() const { return ids_; }
  const std::vector<int32_t>& output_counts() const { return output_counts_; }

 private:
  size_t Entry(int32_t id);

  std::vector<int32_t> ids_;            // prompt and output
  std::vector<int32_t> output_counts_;  // 0: in the prompt only
  absl::flat_hash_map<int32_t, size_t> index_;
};

struct Slot {
  bool occupied = false;
  uint32_t sequence = 0;  // counts the sequences that were put here
  SamplingParams sampling;
  std::vector<int32_t> pages;
  int32_t cached_tokens = 0;  // whose rows are in the cache, the latest applied plan included
  int32_t output_tokens = 0;  // sampled so far, the latest applied plan included
  bool has_sample = false;    // something was sampled in this slot
  int32_t unrecorded = 0;     // samples of applied plans that are not known here yet
  int32_t last_token = -1;    // known last; -1 after a numeric fault
  TokenCounts counts;         // kept only where the sampling params have penalties
  // Of the sampling params, as the sampling op takes them.
  std::vector<int32_t> bias_ids;
  std::vector<float> bias_values;
  std::vector<int32_t> stop_ids;  // those inside the vocabulary
};

// Worker thread.
class SlotTable final {
 public:
  explicit SlotTable(const PlanLimits& limits);

  const PlanLimits& limits() const { return limits_; }

  // InvalidArgument naming step, slot and reason unless every number in the plan is in range and
  // fits what the slots hold. Changes nothing. Plans come over a network: past this check, no id,
  // page or position can reach outside the rank's memory.
  absl::Status Validate(const StepPlan& plan) const;

  // Takes the plan's inits and pages over, advances cached_tokens and counts what will be sampled.
  // REQUIRES: Validate(plan).ok().
  void Apply(const StepPlan& plan);

  // Remembers what was sampled, -1 for a numeric fault; nothing when the slot has gone to another
  // sequence than Slot::sequence said after Apply.
  void RecordSample(int32_t slot, uint32_t sequence, int32_t token);

  // REQUIRES: 0 <= index < max_num_seqs.
  const Slot& slot(int32_t index) const { return slots_[static_cast<size_t>(index)]; }

 private:
  PlanLimits limits_;
  std::vector<Slot> slots_;
  int64_t last_step_ = -1;  // -1: none yet
};

}  // namespace millrace

#endif  // ENGINE_RUNTIME_SLOT_TABLE_H_
