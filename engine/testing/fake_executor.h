// A StepExecutor without a model, for tests: checks every plan as a worker would, keeps the cache
// as token ids instead of tensors, and answers each sample with a hash of all ids the sequence can
// see through its page table. A wrong page, a stale page or another sequence's page changes the
// answer.
#ifndef ENGINE_TESTING_FAKE_EXECUTOR_H_
#define ENGINE_TESTING_FAKE_EXECUTOR_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "engine/runtime/step_executor.h"

namespace millrace {

// The token that follows `ids`, in [0, vocab).
int32_t FakeNextToken(absl::Span<const int32_t> ids, int32_t vocab);

struct FakeModelOptions {
  int32_t num_pages = 64;
  int32_t page_tokens = 4;
  int32_t max_num_seqs = 8;
  int32_t max_num_batched_tokens = 64;
  int32_t vocab = 1000;
};

// Executes plans at once. Every violation of the plan's contract is an INTERNAL error.
class FakeModel final {
 public:
  explicit FakeModel(const FakeModelOptions& options);
  absl::StatusOr<StepResult> Step(const StepPlan& plan);

 private:
  struct Slot {
    std::vector<int32_t> pages;
    int32_t last_sampled = -1;
    bool in_use = false;
  };

  absl::Status Check(const SequencePlan& seq) const;
  absl::StatusOr<SequenceResult> Run(const SequencePlan& seq);

  FakeModelOptions options_;
  int64_t last_step_ = 0;
  std::vector<Slot> slots_;
  std::vector<int32_t> cache_;  // [num_pages * page_tokens] token ids, -1 never written
};

class FakeExecutor final : public StepExecutor {
 public:
  explicit FakeExecutor(const FakeModelOptions& options) : model_(options) {}
  absl::Status Launch(const StepPlan& plan) override;
  absl::StatusOr<StepResult> Collect() override;

  // From now on every call fails with `status`.
  void Break(absl::Status status) { broken_ = std::move(status); }

 private:
  FakeModel model_;
  std::deque<StepPlan> launched_;
  absl::Status broken_;
};

}  // namespace millrace

#endif  // ENGINE_TESTING_FAKE_EXECUTOR_H_
