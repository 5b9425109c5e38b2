#include "engine/testing/fake_executor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {

int32_t FakeNextToken(absl::Span<const int32_t> ids, int32_t vocab) {
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (int32_t id : ids) {
    h ^= static_cast<uint64_t>(id) + 1;
    h *= 0xff51afd7ed558ccdu;
    h ^= h >> 29;
  }
  return static_cast<int32_t>(h % static_cast<uint64_t>(vocab));
}

FakeModel::FakeModel(const FakeModelOptions& options)
    : options_(options),
      slots_(static_cast<size_t>(options.max_num_seqs)),
      cache_(static_cast<size_t>(options.num_pages) * options.page_tokens, -1) {}

absl::StatusOr<StepResult> FakeModel::Step(const StepPlan& plan) {
  if (plan.step != last_step_ + 1) return absl::InternalError("steps have a gap");
  last_step_ = plan.step;
  if (plan.sequences.empty()) return absl::InternalError("empty plan");
  if (plan.num_tokens() > options_.max_num_batched_tokens) {
    return absl::InternalError("plan exceeds the token budget");
  }
  std::vector<bool> seen(slots_.size(), false);
  StepResult result{.step = plan.step};
  for (const SequencePlan& seq : plan.sequences) {
    RETURN_IF_ERROR(Check(seq));
    if (seen[seq.slot]) return absl::InternalError("a slot is planned twice in one step");
    seen[seq.slot] = true;
    ASSIGN_OR_RETURN(SequenceResult one, Run(seq));
    result.sequences.push_back(std::move(one));
  }
  return result;
}

absl::Status FakeModel::Check(const SequencePlan& seq) const {
  if (seq.slot < 0 || seq.slot >= options_.max_num_seqs) {
    return absl::InternalError(absl::StrCat("slot ", seq.slot, " out of range"));
  }
  if (!seq.init.has_value() && !slots_[seq.slot].in_use) {
    return absl::InternalError("a slot is used without init");
  }
  for (int32_t page : seq.new_pages) {
    if (page < 0 || page >= options_.num_pages) return absl::InternalError("page out of range");
  }
  return absl::OkStatus();
}

absl::StatusOr<SequenceResult> FakeModel::Run(const SequencePlan& seq) {
  Slot& slot = slots_[seq.slot];
  if (seq.init.has_value()) slot = Slot{.in_use = true};
  slot.pages.insert(slot.pages.end(), seq.new_pages.begin(), seq.new_pages.end());
  std::vector<int32_t> tokens = seq.tokens;
  if (tokens.empty()) tokens.push_back(slot.last_sampled);
  if (tokens[0] < 0) return absl::InternalError("a device token is used before one was sampled");
  const int32_t page_tokens = options_.page_tokens;
  const auto cell = [&](int32_t position) -> int32_t& {
    return cache_[static_cast<size_t>(slot.pages[position / page_tokens]) * page_tokens +
                  position % page_tokens];
  };
  const int32_t end = seq.position + static_cast<int32_t>(tokens.size());
  if (end > static_cast<int32_t>(slot.pages.size()) * page_tokens) {
    return absl::InternalError("tokens beyond the page table");
  }
  for (int32_t p = seq.position; p < end; ++p) cell(p) = tokens[p - seq.position];
  SequenceResult result{.slot = seq.slot};
  if (!seq.sample) return result;
  std::vector<int32_t> visible;
  for (int32_t p = 0; p < end; ++p) visible.push_back(cell(p));
  result.token = FakeNextToken(visible, options_.vocab);
  slot.last_sampled = result.token;
  return result;
}

absl::Status FakeExecutor::Launch(const StepPlan& plan) {
  RETURN_IF_ERROR(broken_);
  if (launched_.size() == 2) return absl::InternalError("more than two plans in flight");
  launched_.push_back(plan);
  return absl::OkStatus();
}

absl::StatusOr<StepResult> FakeExecutor::Collect() {
  RETURN_IF_ERROR(broken_);
  if (launched_.empty()) return absl::InternalError("nothing was launched");
  const StepPlan plan = std::move(launched_.front());
  launched_.pop_front();
  return model_.Step(plan);
}

}  // namespace millrace
