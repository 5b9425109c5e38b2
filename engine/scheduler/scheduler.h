// Decides what runs in each step: continuous batching, chunked prefill, prefix reuse, preemption by
// recompute. Engine thread only; knows page numbers but no tensors, no clocks, no threads, so
// random schedules can be replayed in a test.
//
// Next() may be called for step n+1 before Commit() of step n: a sequence that sampled in step n
// then feeds its token on the device (SequencePlan::tokens is empty), and if step n turns out to
// have ended it, the surplus token of step n+1 is dropped by Commit().
#ifndef ENGINE_SCHEDULER_SCHEDULER_H_
#define ENGINE_SCHEDULER_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/cache/page_pool.h"
#include "engine/cache/prefix_index.h"
#include "engine/request/request.h"
#include "engine/scheduler/sequence.h"
#include "engine/scheduler/step_plan.h"

namespace millrace {

struct SchedulerConfig {
  int32_t num_pages = 0;
  int32_t page_tokens = 16;
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 2048;  // of one step
  int32_t max_chunk_tokens = 0;           // of one sequence in one step; 0 = no limit of its own
  int32_t max_model_len = 2048;           // prompt + output
  int32_t max_waiting = 4096;
  int32_t data_parallel_size = 1;  // groups of ranks, each with all of the above
  bool enable_prefix_caching = true;

  // INVALID_ARGUMENT naming the field; one sequence of max_model_len must fit into the pages.
  absl::Status Validate() const;
};

using SchedulerEvent = std::variant<TokenEvent, FinishEvent>;

struct SchedulerStats {
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t pages_total = 0;
  int32_t pages_free = 0;
  int32_t pages_used = 0;
  int32_t pages_cached = 0;
  int64_t waiting_tokens = 0;  // prompt tokens not yet computed, of waiting sequences
  int64_t prompt_tokens = 0;   // counters from here on
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  int64_t prefix_queries = 0;  // tokens looked up
  int64_t prefix_hits = 0;     // tokens found
  int64_t numeric_faults = 0;
};

class Scheduler final {
 public:
  // REQUIRES: config.Validate() is OK.
  explicit Scheduler(const SchedulerConfig& config);

  // Takes a sequence in, first come first served. INVALID_ARGUMENT when it can never run,
  // ALREADY_EXISTS for a live id, RESOURCE_EXHAUSTED when too many wait.
  absl::Status Admit(Request request);

  // Ends a live sequence now: its slot and pages are free for the next plan. Unknown or finished
  // ids are ignored. The FinishEvent comes with the next TakeEvents().
  void Finish(SequenceId id, FinishReason reason, absl::Status status = absl::OkStatus());
  // Finish(kAbort, DEADLINE_EXCEEDED) for every sequence whose deadline is before `now`.
  void FinishExpired(absl::Time now);

  // Of the pages of the request's prompt that a sequence could find in a cache; the same in every
  // scheduler of these settings.
  std::vector<PageKey> PromptKeys(const Request& request) const;
  // Tokens of a prompt with these keys that a sequence would find in the cache now.
  int32_t CachedTokens(absl::Span<const PageKey> prompt_keys) const;

  // The next step, or nothing when no sequence can advance before a Commit or an Admit.
  std::optional<StepPlan> Next();
  // The result of the oldest plan not yet committed. REQUIRES: result.step is its step, and the
  // results are in the plan's order.
  void Commit(const StepResult& result);
  // The executor is gone with every launched plan and the cache's content: all live sequences end
  // with `status`, every published page is forgotten.
  void FailAll(const absl::Status& status);

  // Events since the last call, in order.
  std::vector<SchedulerEvent> TakeEvents();

  // Forgets every published page. Running sequences go on.
  void FlushPrefixCache();

  bool idle() const { return sequences_.empty() && launched_.empty(); }
  int32_t num_live() const { return static_cast<int32_t>(sequences_.size()); }
  SchedulerStats stats() const;
  // INTERNAL naming what is wrong when pages, slots and sequences do not add up.
  absl::Status CheckIntegrity() const;

 private:
  struct LaunchedSequence {
    SequenceId id = 0;
    int32_t epoch = 0;     // Sequence::epoch when launched
    int32_t position = 0;  // of the first token
    int32_t num_tokens = 0;
    bool sampled = false;
  };
  struct LaunchedStep {
    int64_t step = 0;
    std::vector<LaunchedSequence> sequences;
  };

  void ScheduleRunning(StepPlan& plan, int32_t& budget);
  void ScheduleWaiting(StepPlan& plan, int32_t& budget);
  // Plans a running sequence's next tokens. False: pages ran out, nothing changed.
  bool PlanSequence(Sequence& seq, StepPlan& plan, int32_t& budget);
  void FillPlan(Sequence& seq, int32_t num_tokens, SequencePlan& out);
  // Gives a waiting sequence a slot and the cached pages of its prefix. False: not enough pages
  // for the rest of its known tokens, nothing changed.
  bool Start(Sequence& seq);
  bool WantsPendingPage(Sequence& seq);
  // `keys` has those of the first pages of `tokens`, and gets them up to `num_pages`.
  void ExtendKeys(const std::string& salt, absl::Span<const int32_t> tokens, int32_t num_pages,
                  std::vector<PageKey>& keys) const;
  void ExtendKeys(Sequence& seq, int32_t num_pages) const {
    ExtendKeys(seq.request.cache_salt, seq.tokens, num_pages, seq.keys);
  }
  void Preempt(Sequence& seq);
  void ReleaseResources(Sequence& seq);
  void CommitSequence(const LaunchedSequence& launched, const SequenceResult& result);
  void StorePromptRows(Sequence& seq, const LaunchedSequence& launched,
                       const SequenceResult& result);
  void PublishPages(Sequence& seq, int32_t computed_tokens);
  void AddPending(const Sequence& seq, int32_t delta);
  Sequence* Find(SequenceId id);

  SchedulerConfig config_;
  PrefixIndex index_;
  PagePool pool_;
  int64_t next_step_ = 1;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  std::deque<Sequence*> waiting_;   // by arrival
  std::vector<Sequence*> running_;  // by arrival
  std::vector<int32_t> free_slots_;
  std::deque<LaunchedStep> launched_;
  // Keys of full prompt pages that running sequences are about to publish. A waiting sequence that
  // wants such a page waits for it instead of computing it again.
  absl::flat_hash_map<PageKey, int32_t> pending_keys_;
  std::vector<SchedulerEvent> events_;
  SchedulerStats counters_;
  uint64_t next_arrival_ = 0;
};

}  // namespace millrace

#endif  // ENGINE_SCHEDULER_SCHEDULER_H_
