// The one message between deciding (Scheduler) and doing (StepExecutor, ModelRunner).
//
// A sequence lives in a slot of every rank from its first step until it is replaced: the slot keeps
// its page table, its sampling state and its last sampled token, so a decode step says almost
// nothing. Plans are executed in order; a slot or a page that a plan takes over is no longer needed
// by any plan before it.
#ifndef ENGINE_SCHEDULER_STEP_PLAN_H_
#define ENGINE_SCHEDULER_STEP_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/request/request.h"

namespace millrace {

// Puts a sequence into its slot; whatever was there is forgotten.
struct SlotInit {
  SamplingParams sampling;
  // All ids known so far, prompt then output; sent only when penalties need them.
  std::vector<int32_t> history;
  int32_t prompt_tokens = 0;  // of `history`; later ids count as output
  int32_t output_tokens = 0;  // sampled before (> 0 after a preemption)
};

struct SequencePlan {
  int32_t group = 0;               // [0, data_parallel_size): whose ranks run it
  int32_t slot = 0;                // of that group, [0, max_num_seqs)
  std::optional<SlotInit> init;    // on the sequence's first step in this slot
  std::vector<int32_t> new_pages;  // appended to the slot's page table (emptied by init)
  int32_t position = 0;            // of the first token here = tokens already in the cache
  // Input ids. Empty: one token, the one sampled last in this slot (it may not have left the
  // device yet).
  std::vector<int32_t> tokens;
  bool sample = false;                 // sample from the logits of the last token
  bool prompt_logprobs = false;        // score the tokens after each token here
  std::vector<int32_t> score_targets;  // with prompt_logprobs: target of each input token, -1 none
  std::vector<int32_t> logits_rows;    // offsets into `tokens` whose raw logits are returned

  int32_t num_tokens() const { return tokens.empty() ? 1 : static_cast<int32_t>(tokens.size()); }
};

struct StepPlan {
  int64_t step = 0;  // counts from 1 without gaps
  std::vector<SequencePlan> sequences;

  int32_t num_tokens() const {
    int32_t n = 0;
    for (const SequencePlan& s : sequences) n += s.num_tokens();
    return n;
  }
};

struct SequenceResult {
  int32_t slot = 0;
  int32_t token = -1;          // sampled id, -1 when the plan asked for none
  bool numeric_fault = false;  // NaN or Inf in the logits: nothing was sampled
  std::optional<ScoredToken> logprobs;
  std::vector<ScoredToken> prompt_logprobs;  // one per score target >= 0
  std::vector<std::vector<float>> logits;    // one per logits row
};

struct StepResult {
  int64_t step = 0;
  std::vector<SequenceResult> sequences;  // same order as the plan
};

}  // namespace millrace

#endif  // ENGINE_SCHEDULER_STEP_PLAN_H_
