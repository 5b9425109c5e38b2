// Drives an executor step by step, as the scheduler would with a full batch.
#ifndef TOOLS_STEP_BENCH_STEP_DRIVER_H_
#define TOOLS_STEP_BENCH_STEP_DRIVER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/runtime/step_executor.h"

namespace millrace {

class StepDriver final {
 public:
  StepDriver(StepExecutor& executor, int32_t page_tokens, int32_t vocab_size)
      : executor_(executor), page_tokens_(page_tokens), vocab_size_(vocab_size) {}

  // Puts `sequences` prompts of `tokens` made-up tokens each into slots 0, 1, ..., in steps of at
  // most `chunk` tokens, with pages for `room` tokens. Seconds it took.
  absl::StatusOr<double> Prefill(int32_t sequences, int32_t tokens, int32_t room, int32_t chunk);

  // `steps` decode steps of those sequences, each launched before the one ahead is collected, after
  // some to warm up. Seconds per step.
  absl::StatusOr<double> Decode(int32_t steps);

  static constexpr int32_t kWarmUpSteps = 8;

 private:
  absl::Status Collect();

  StepExecutor& executor_;
  const int32_t page_tokens_;
  const int32_t vocab_size_;
  int64_t step_ = 0;
  int32_t sequences_ = 0;
  int32_t position_ = 0;  // of the next token, the same in all sequences
};

}  // namespace millrace

#endif  // TOOLS_STEP_BENCH_STEP_DRIVER_H_
