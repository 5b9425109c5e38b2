#include "distributed/controller/cluster/worker_group.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {

GroupSteps::GroupSteps(int32_t world, const StepLimits& limits, SendToRank send)
    : world_(world),
      group_size_(world / limits.data_parallel_size),
      limits_(limits),
      send_(std::move(send)) {}

absl::Status GroupSteps::Launch(const StepPlan& plan) {
  Pending pending;
  pending.step = plan.step;
  pending.begin = absl::Now();
  pending.answered.assign(static_cast<size_t>(world_), false);
  pending.result.step = plan.step;
  pending.result.sequences.resize(plan.sequences.size());
  for (const SequencePlan& sequence : plan.sequences) {
    const auto scored = [](int32_t target) { return target >= 0; };
    pending.expected.push_back(
        {.group = sequence.group,
         .slot = sequence.slot,
         .sample = sequence.sample,
         .scores = static_cast<int32_t>(
             std::count_if(sequence.score_targets.begin(), sequence.score_targets.end(), scored)),
         .logits = static_cast<int32_t>(sequence.logits_rows.size())});
  }
  worker::ControllerMessage message;
  *message.mutable_step() = ToProto(plan);
  const auto bytes = std::make_shared<const std::string>(message.SerializeAsString());
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (!lost_.ok()) return lost_;
    MR_CHECK_LT(pending_.size(), 2u);
    pending_.push_back(std::move(pending));
  }
  for (int32_t rank = 0; rank < world_; ++rank) send_(rank, bytes);
  return absl::OkStatus();
}

absl::StatusOr<StepResult> GroupSteps::Collect() {
  std::unique_lock<std::mutex> lock(mu_);
  MR_CHECK(!pending_.empty());
  changed_.wait(lock, [&] { return Done(pending_.front()) || !lost_.ok(); });
  if (!Done(pending_.front())) {
    pending_.pop_front();
    return lost_;
  }
  StepResult result = std::move(pending_.front().result);
  pending_.pop_front();
  if (!pending_.empty()) pending_.front().begin = absl::Now();
  return result;
}

bool GroupSteps::Done(const Pending& pending) {
  return std::find(pending.answered.begin(), pending.answered.end(), false) ==
         pending.answered.end();
}

absl::Status GroupSteps::OnStepDone(int32_t rank, const worker::StepDone& done) {
  // Only the first rank of a group brings results, and the others not even a list.
  const bool first = rank % group_size_ == 0;
  if (!first && done.sequences_size() > 0) {
    return absl::InvalidArgumentError("a result that only the first rank of a group may bring");
  }
  ASSIGN_OR_RETURN(StepResult result, FromProto(done, limits_));
  const std::lock_guard<std::mutex> lock(mu_);
  for (Pending& pending : pending_) {
    if (pending.answered[static_cast<size_t>(rank)]) continue;
    if (pending.step != done.step()) {
      return absl::InvalidArgumentError(
          absl::StrCat("an answer to step ", done.step(), " where step ", pending.step, " is due"));
    }
    if (first) RETURN_IF_ERROR(TakeAnswers(rank / group_size_, std::move(result), pending));
    pending.answered[static_cast<size_t>(rank)] = true;
    if (Done(pending)) changed_.notify_all();
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("an answer to step ", done.step(), ", which nobody waits for"));
}

absl::Status GroupSteps::TakeAnswers(int32_t group, StepResult result, Pending& pending) {
  std::vector<size_t> places;  // of the group's sequences in the plan
  for (size_t i = 0; i < pending.expected.size(); ++i) {
    if (pending.expected[i].group == group) places.push_back(i);
  }
  if (result.sequences.size() != places.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "step ", pending.step, ": ", result.sequences.size(), " results, want ", places.size()));
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const absl::Status status = CheckAnswer(pending.expected[places[i]], result.sequences[i]);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("step ", pending.step, ": result ", i, status.message()));
    }
    pending.result.sequences[places[i]] = std::move(result.sequences[i]);
  }
  return absl::OkStatus();
}

absl::Status GroupSteps::CheckAnswer(const Expected& want, const SequenceResult& got) {
  const bool sampled = got.token >= 0;
  if (got.slot != want.slot || (!got.numeric_fault && sampled != want.sample)) {
    return absl::InvalidArgumentError(
        absl::StrCat(" does not answer its plan: slot ", got.slot, ", token ", got.token));
  }
  if (got.numeric_fault) return absl::OkStatus();
  if (static_cast<int32_t>(got.prompt_logprobs.size()) != want.scores ||
      static_cast<int32_t>(got.logits.size()) != want.logits) {
    return absl::InvalidArgumentError(absl::StrCat(
        " has ", got.prompt_logprobs.size(), " prompt logprobs and ", got.logits.size(),
        " rows of logits, want ", want.scores, " and ", want.logits));
  }
  return absl::OkStatus();
}

void GroupSteps::MarkLost(const absl::Status& reason) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (lost_.ok()) lost_ = reason;
  changed_.notify_all();
}

std::optional<GroupSteps::Overdue> GroupSteps::CheckOverdue(absl::Time now,
                                                            absl::Duration limit) const {
  const std::lock_guard<std::mutex> lock(mu_);
  for (const Pending& pending : pending_) {
    if (Done(pending)) continue;
    if (!lost_.ok() || now - pending.begin < limit) return std::nullopt;
    Overdue overdue = {.step = pending.step, .ranks = {}};
    for (int32_t rank = 0; rank < world_; ++rank) {
      if (!pending.answered[static_cast<size_t>(rank)]) overdue.ranks.push_back(rank);
    }
    return overdue;
  }
  return std::nullopt;
}

}  // namespace millrace
