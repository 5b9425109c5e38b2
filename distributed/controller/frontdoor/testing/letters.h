// A model for tests whose answers can be foretold by reading: one token a byte, and each byte has
// one successor. "w" is followed by "xyz." and the end; digits count on without end; the two bytes
// of "é" follow each other; "!" is followed by a numeric fault.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_TESTING_LETTERS_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_TESTING_LETTERS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "distributed/controller/frontdoor/served_model.h"
#include "engine/runtime/step_executor.h"

namespace millrace {

inline constexpr int32_t kLettersVocab = 300;
inline constexpr int32_t kLettersEos = 256;
inline constexpr int32_t kLettersBos = 257;

// The token after `token`; -1 = a numeric fault.
int32_t NextLetter(int32_t token);
// What follows `prompt`, without the end token; at most `max_tokens` bytes.
std::string LettersAfter(const std::string& prompt, int32_t max_tokens);

// What a test does to a running executor, from any thread.
struct LettersControl {
  std::atomic<bool> paused{false};  // Collect() waits
  std::atomic<bool> broken{false};  // Launch() and Collect() fail with UNAVAILABLE, rank 1
  std::atomic<int64_t> step_micros{0};
};

class LettersExecutor final : public StepExecutor {
 public:
  LettersExecutor(int32_t max_num_seqs, std::shared_ptr<LettersControl> control);
  absl::Status Launch(const StepPlan& plan) override;
  absl::StatusOr<StepResult> Collect() override;

 private:
  struct Slot {
    int32_t last = -1;
    int32_t num_logprobs = -1;
    int32_t num_prompt_logprobs = -1;
  };
  absl::Status WaitWhilePaused() const;
  SequenceResult Run(const SequencePlan& plan);

  const std::shared_ptr<LettersControl> control_;
  std::vector<Slot> slots_;
  std::deque<StepResult> launched_;
};

// A folder with the tokenizer and the config of this model, under `parent`.
std::string WriteLettersFolder(const std::string& parent);

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_TESTING_LETTERS_H_
