#include "tests/stress/decode_loop.h"

#include "absl/strings/str_cat.h"
#include "distributed/worker/fake_model.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int32_t kPromptTokens = 5;

}  // namespace

RunnerConfig TestConfig() {
  return {.model_dir = "/no/such/model",
          .load_format = LoadFormat::kDummy,
          .page_tokens = 4,
          .max_num_seqs = 8,
          .max_num_batched_tokens = 64,
          .max_model_len = 200};
}

DecodeLoop::DecodeLoop(StepExecutor& executor, int32_t sequences, int32_t groups)
    : executor_(executor), per_group_(sequences), sequences_(sequences * groups) {
  for (int32_t s = 0; s < sequences_; ++s) {
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < kPromptTokens; ++i) prompt.push_back((s * 100 + i) % kTestVocab);
    tokens_.push_back(prompt);
  }
}

// Groups have the same slots and pages, so that one that runs another's sequences shows.
SequencePlan DecodeLoop::Next(int32_t s) const {
  const int32_t page_tokens = TestConfig().page_tokens;
  SequencePlan sequence;
  sequence.group = s / per_group_;
  sequence.slot = s % per_group_;
  sequence.sample = true;
  int32_t first_new = 0;  // position
  int32_t last_new = kPromptTokens - 1;
  if (launched_ == 0) {
    sequence.init = SlotInit{};
    sequence.tokens = tokens_[static_cast<size_t>(s)];
  } else {
    sequence.position = kPromptTokens + static_cast<int32_t>(launched_) - 1;
    first_new = last_new = sequence.position;
  }
  for (int32_t position = first_new; position <= last_new; ++position) {
    if (position % page_tokens != 0) continue;
    // Sequences take turns in the pages, each in the opposite order of a naive layout.
    sequence.new_pages.push_back(kTestPages - 1 - (position / page_tokens) * per_group_ -
                                 sequence.slot);
  }
  return sequence;
}

absl::Status DecodeLoop::Launch() {
  StepPlan plan = {.step = launched_ + 1, .sequences = {}};
  for (int32_t s = 0; s < sequences_; ++s) plan.sequences.push_back(Next(s));
  RETURN_IF_ERROR(executor_.Launch(plan));
  ++launched_;
  return absl::OkStatus();
}

absl::Status DecodeLoop::Collect() {
  ASSIGN_OR_RETURN(const StepResult result, executor_.Collect());
  ++collected_;
  if (result.step != collected_) {
    return absl::InternalError(absl::StrCat("step ", result.step, ", want ", collected_));
  }
  for (int32_t s = 0; s < sequences_; ++s) {
    std::vector<int32_t>& tokens = tokens_[static_cast<size_t>(s)];
    const int32_t want = FakeNextToken(tokens, kTestVocab);
    const int32_t got = result.sequences[static_cast<size_t>(s)].token;
    if (got != want) {
      return absl::InternalError(
          absl::StrCat("step ", result.step, ", sequence ", s, ": token ", got, ", want ", want));
    }
    tokens.push_back(got);
  }
  return absl::OkStatus();
}

absl::Status DecodeLoop::Run(int64_t steps) {
  const int64_t end = collected_ + steps;
  if (launched_ == collected_) RETURN_IF_ERROR(Launch());
  while (collected_ < end) {
    if (launched_ < end) RETURN_IF_ERROR(Launch());
    RETURN_IF_ERROR(Collect());
  }
  return absl::OkStatus();
}

}  // namespace millrace
