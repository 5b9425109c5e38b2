#include "engine/scheduler/data_parallel_scheduler.h"

#include <iterator>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {

DataParallelScheduler::DataParallelScheduler(const SchedulerConfig& config) : config_(config) {
  for (int32_t g = 0; g < config.data_parallel_size; ++g) {
    groups_.push_back(std::make_unique<Scheduler>(config));
  }
}

size_t DataParallelScheduler::GroupFor(const Request& request) const {
  if (groups_.size() == 1) return 0;
  // Larger is better. Behind a full group a prefix saves less than the wait costs, and by the time
  // that a slot is free the other groups may have it too.
  const std::vector<PageKey> keys = groups_.front()->PromptKeys(request);
  const auto rank = [&](const std::unique_ptr<Scheduler>& group) {
    const bool has_slot = group->num_live() < config_.max_num_seqs;
    return std::make_tuple(has_slot, has_slot ? group->CachedTokens(keys) : 0, -group->num_live());
  };
  std::vector<std::tuple<bool, int32_t, int32_t>> ranks;
  absl::c_transform(groups_, std::back_inserter(ranks), rank);
  return absl::c_max_element(ranks) - ranks.begin();
}

absl::Status DataParallelScheduler::Admit(Request request) {
  const SequenceId id = request.id;
  if (group_of_.contains(id)) {
    return absl::AlreadyExistsError(absl::StrCat("sequence ", id, " is live"));
  }
  const size_t group = GroupFor(request);
  RETURN_IF_ERROR(groups_[group]->Admit(std::move(request)));
  group_of_.emplace(id, group);
  return absl::OkStatus();
}

void DataParallelScheduler::Finish(SequenceId id, FinishReason reason, absl::Status status) {
  const auto it = group_of_.find(id);
  if (it != group_of_.end()) groups_[it->second]->Finish(id, reason, std::move(status));
}

void DataParallelScheduler::FinishExpired(absl::Time now) {
  for (const auto& group : groups_) group->FinishExpired(now);
}

std::optional<StepPlan> DataParallelScheduler::Next() {
  StepPlan all;
  Launched launched;
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::optional<StepPlan> plan = groups_[g]->Next();
    if (!plan.has_value()) continue;
    launched.parts.push_back({g, plan->step, plan->sequences.size()});
    for (SequencePlan& sequence : plan->sequences) {
      sequence.group = static_cast<int32_t>(g);
      all.sequences.push_back(std::move(sequence));
    }
  }
  if (launched.parts.empty()) return std::nullopt;
  all.step = next_step_++;
  launched.step = all.step;
  launched_.push_back(std::move(launched));
  return all;
}

void DataParallelScheduler::Commit(const StepResult& result) {
  MR_CHECK(!launched_.empty());
  const Launched launched = std::move(launched_.front());
  launched_.pop_front();
  MR_CHECK_EQ(launched.step, result.step);
  auto next = result.sequences.begin();
  for (const Part& part : launched.parts) {
    MR_CHECK_LE(part.sequences, static_cast<size_t>(result.sequences.end() - next));
    const auto end = next + static_cast<std::ptrdiff_t>(part.sequences);
    groups_[part.group]->Commit({.step = part.step, .sequences = {next, end}});
    next = end;
  }
  MR_CHECK(next == result.sequences.end());
}

void DataParallelScheduler::FailAll(const absl::Status& status) {
  launched_.clear();
  for (const auto& group : groups_) group->FailAll(status);
}

std::vector<SchedulerEvent> DataParallelScheduler::TakeEvents() {
  std::vector<SchedulerEvent> events;
  for (const auto& group : groups_) {
    for (SchedulerEvent& event : group->TakeEvents()) {
      if (const auto* finish = std::get_if<FinishEvent>(&event)) group_of_.erase(finish->id);
      events.push_back(std::move(event));
    }
  }
  return events;
}

void DataParallelScheduler::FlushPrefixCache() {
  for (const auto& group : groups_) group->FlushPrefixCache();
}

SchedulerStats DataParallelScheduler::stats() const {
  SchedulerStats sum;
  for (const auto& group : groups_) {
    const SchedulerStats s = group->stats();
    sum.running += s.running;
    sum.waiting += s.waiting;
    sum.pages_total += s.pages_total;
    sum.pages_free += s.pages_free;
    sum.pages_used += s.pages_used;
    sum.pages_cached += s.pages_cached;
    sum.waiting_tokens += s.waiting_tokens;
    sum.prompt_tokens += s.prompt_tokens;
    sum.generated_tokens += s.generated_tokens;
    sum.preemptions += s.preemptions;
    sum.prefix_queries += s.prefix_queries;
    sum.prefix_hits += s.prefix_hits;
    sum.numeric_faults += s.numeric_faults;
  }
  return sum;
}

absl::Status DataParallelScheduler::CheckIntegrity() const {
  for (const auto& group : groups_) RETURN_IF_ERROR(group->CheckIntegrity());
  return absl::OkStatus();
}

}  // namespace millrace
