// Sequences decoded on an executor of fake models, two steps in flight, every token checked.
#ifndef TESTS_STRESS_DECODE_LOOP_H_
#define TESTS_STRESS_DECODE_LOOP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/runtime/runner_config.h"
#include "engine/runtime/step_executor.h"
#include "engine/scheduler/step_plan.h"

namespace millrace {

// What the tests' groups run.
RunnerConfig TestConfig();
inline constexpr int32_t kTestVocab = 1000;
inline constexpr int32_t kTestPages = 512;

class DecodeLoop final {
 public:
  // So many sequences in each of the first `groups` groups; at most TestConfig().max_num_seqs.
  DecodeLoop(StepExecutor& executor, int32_t sequences, int32_t groups = 1);
  // Launches and collects `steps` decode steps (the first of all is the prefill). An executor's
  // error, or INTERNAL for a wrong token.
  absl::Status Run(int64_t steps);
  int64_t steps_done() const { return collected_; }

 private:
  absl::Status Launch();
  SequencePlan Next(int32_t sequence) const;
  absl::Status Collect();

  StepExecutor& executor_;
  const int32_t per_group_;
  const int32_t sequences_;  // of all groups
  int64_t launched_ = 0;
  int64_t collected_ = 0;
  std::vector<std::vector<int32_t>> tokens_;  // by sequence, group after group
};

}  // namespace millrace

#endif  // TESTS_STRESS_DECODE_LOOP_H_
