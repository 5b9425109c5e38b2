// A model without weights, for tests of everything around models. It keeps token ids in its pages
// as a real one keeps keys and values, and the next token is a hash of all tokens that a sequence's
// page table leads to: a page that is shared wrongly, freed too early or filled twice gives wrong
// tokens.
#ifndef DISTRIBUTED_WORKER_FAKE_MODEL_H_
#define DISTRIBUTED_WORKER_FAKE_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "distributed/worker/rank_model.h"

namespace millrace {

struct FakeModelOptions {
  int32_t vocab_size = 1000;
  absl::Duration step_time;  // slept in every step
  absl::Duration load_time;  // slept in ten pieces, with progress
  std::string fingerprint;   // of every folder
  int64_t fail_step = 0;     // > 0: this step fails
  int32_t fail_rank = 0;     // on this rank
  absl::Status load_error;   // of that rank
  int64_t available_bytes = 1 << 30;
};

// The token that follows `tokens`, in [0, vocab_size). Ids of the model's own stop list are as
// likely as any.
int32_t FakeNextToken(absl::Span<const int32_t> tokens, int32_t vocab_size);

class FakeModelFactory final : public RankModelFactory {
 public:
  explicit FakeModelFactory(FakeModelOptions options) : options_(std::move(options)) {}
  absl::StatusOr<std::string> Fingerprint(const std::string& dir) override {
    return options_.fingerprint;
  }
  // Every step joins the ranks in an all-reduce, as a real one would.
  absl::StatusOr<std::unique_ptr<RankModel>> Load(const RunnerConfig& config, Device& device,
                                                  const RankGroups& groups,
                                                  const Progress& progress) override;

 private:
  const FakeModelOptions options_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_WORKER_FAKE_MODEL_H_
