// What the scheduler knows about one live sequence. Engine thread only.
#ifndef ENGINE_SCHEDULER_SEQUENCE_H_
#define ENGINE_SCHEDULER_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "engine/cache/page_pool.h"
#include "engine/cache/prefix_index.h"
#include "engine/request/request.h"

namespace millrace {

struct Sequence {
  Request request;
  uint64_t arrival = 0;         // order of admission; kept over preemptions
  std::vector<int32_t> tokens;  // prompt, then every committed output token
  int32_t slot = -1;            // -1: waiting
  int32_t epoch = 0;      // grows with each start, so results of an earlier life are told apart
  bool fresh = false;     // started, but its SlotInit has not been sent
  int32_t scheduled = 0;  // tokens whose cache rows are computed or launched
  int32_t pending_samples = 0;  // sampled by launched steps that are not committed
  std::vector<PageId> pages;
  std::vector<PageKey> keys;    // of the full pages of `tokens`, as far as needed so far
  int32_t published_pages = 0;  // leading pages that are published or found in the index
  int32_t pending_end = 0;      // keys[published_pages, pending_end) are promised to others
  int64_t planned_step = 0;     // the last step this sequence has a part in
  int32_t cached_tokens = 0;    // of the prompt, by the first start
  std::vector<ScoredToken> prompt_scores;         // prompt[1..], filled by position
  std::vector<std::vector<float>> prompt_logits;  // by request.logits_positions

  int32_t prompt_size() const { return static_cast<int32_t>(request.prompt.size()); }
  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  int32_t output_size() const { return size() - prompt_size(); }
  // Launched samples included.
  int32_t expected_output() const { return output_size() + pending_samples; }
  // Tokens that could be computed now: known ones, and one on the device.
  int32_t schedulable() const {
    const int32_t length = size() + pending_samples;
    return expected_output() >= request.sampling.max_tokens ? 0 : length - scheduled;
  }
  // Cached tokens have no logits, so these must be computed.
  bool needs_prompt_logits() const { return output_size() == 0 && request.wants_prompt_logits(); }
};

}  // namespace millrace

#endif  // ENGINE_SCHEDULER_SEQUENCE_H_
