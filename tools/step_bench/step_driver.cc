#include "tools/step_bench/step_driver.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

absl::Status StepDriver::Collect() {
  ASSIGN_OR_RETURN(const StepResult result, executor_.Collect());
  for (const SequenceResult& s : result.sequences) {
    if (s.numeric_fault) {
      return absl::InternalError(
          absl::StrCat("step ", result.step, ", slot ", s.slot, ": NaN or Inf among the logits"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<double> StepDriver::Prefill(int32_t sequences, int32_t tokens, int32_t room,
                                           int32_t chunk) {
  const int32_t pages = (room + page_tokens_ - 1) / page_tokens_;
  const Clock::time_point start = Clock::now();
  for (int32_t slot = 0; slot < sequences; ++slot) {
    for (int32_t begin = 0; begin < tokens; begin += chunk) {
      SequencePlan s;
      s.slot = slot;
      s.position = begin;
      if (begin == 0) {
        s.init = SlotInit();
        s.init->sampling.temperature = 0;
        for (int32_t p = 0; p < pages; ++p) s.new_pages.push_back(slot * pages + p);
      }
      const int32_t end = std::min(tokens, begin + chunk);
      for (int32_t i = begin; i < end; ++i) {
        s.tokens.push_back(
            static_cast<int32_t>((int64_t{slot} * 7919 + int64_t{i} * 104729) % vocab_size_));
      }
      s.sample = end == tokens;
      StepPlan plan;
      plan.step = ++step_;
      plan.sequences.push_back(std::move(s));
      RETURN_IF_ERROR(executor_.Launch(plan));
      RETURN_IF_ERROR(Collect());
    }
  }
  sequences_ = sequences;
  position_ = tokens;
  return Since(start);
}

absl::StatusOr<double> StepDriver::Decode(int32_t steps) {
  Clock::time_point start;
  for (int32_t i = 0; i < kWarmUpSteps + steps; ++i) {
    StepPlan plan;
    plan.step = ++step_;
    for (int32_t slot = 0; slot < sequences_; ++slot) {
      SequencePlan s;
      s.slot = slot;
      s.position = position_;
      s.sample = true;
      plan.sequences.push_back(std::move(s));
    }
    ++position_;
    RETURN_IF_ERROR(executor_.Launch(plan));
    if (i > 0) RETURN_IF_ERROR(Collect());
    if (i == kWarmUpSteps) start = Clock::now();  // the step before is collected
  }
  // One step is out: steps - 1 were collected since.
  const double seconds = Since(start);
  RETURN_IF_ERROR(Collect());
  return seconds / std::max(1, steps - 1);
}

}  // namespace millrace
