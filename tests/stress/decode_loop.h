// Sequences decoded on an executor of fake models, two steps in flight, every token checked.
#ifndef TESTS_STRESS_DECODE_LOOP_H_
#define TESTS_STRESS_DECODE_LOOP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/runtime/runner_config.h"
#include "engine/runtime/step_executor.h"

namespace millrace {

// What the tests' groups run.
RunnerConfig TestConfig();
inline constexpr int32_t kTestVocab = 1000;
inline constexpr int32_t kTestPages = 512;

class DecodeLoop final {
 public:
  // `sequences` <= TestConfig().max_num_seqs.
  DecodeLoop(StepExecutor& executor, int32_t sequences);
  // Launches and collects `steps` decode steps (the first of all is the prefill). An executor's
  // error, or INTERNAL for a wrong token.
  absl::Status Run(int64_t steps);
  int64_t steps_done() const { return collected_; }

 private:
  absl::Status Launch();
  absl::Status Collect();

  StepExecutor& executor_;
  const int32_t sequences_;
  int64_t launched_ = 0;
  int64_t collected_ = 0;
  std::vector<std::vector<int32_t>> tokens_;  // by sequence
};

}  // namespace millrace

#endif  // TESTS_STRESS_DECODE_LOOP_H_
