#include "engine/runtime/sample_rows.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

// With lists in host memory. REQUIRES: `plan` was applied to the slot and samples.
SampleRow SampleRowOf(const Slot& slot, const SequencePlan& plan) {
  const SamplingParams& p = slot.sampling;
  SampleRow row = {.temperature = p.temperature,
                   .top_k = p.top_k,
                   .top_p = p.top_p,
                   .min_p = p.min_p,
                   .repetition_penalty = p.repetition_penalty,
                   .frequency_penalty = p.frequency_penalty,
                   .presence_penalty = p.presence_penalty,
                   .num_top_logprobs = p.num_logprobs,
                   .seed = p.seed,
                   .position = int64_t{plan.position} + plan.num_tokens()};
  if (p.has_penalties()) {
    row.penalty_ids = slot.counts.ids().data();
    row.penalty_counts = slot.counts.output_counts().data();
    row.num_penalties = static_cast<int32_t>(slot.counts.ids().size());
  }
  row.bias_ids = slot.bias_ids.data();
  row.bias_values = slot.bias_values.data();
  row.num_biases = static_cast<int32_t>(slot.bias_ids.size());
  if (slot.output_tokens - 1 < p.min_tokens) {  // this step's is counted already
    row.banned_ids = slot.stop_ids.data();
    row.num_banned = static_cast<int32_t>(slot.stop_ids.size());
  }
  row.slot = plan.slot;
  return row;
}

}  // namespace

// Lists hold elements of four bytes each. Until all are known, an offset stands for the address.
template <typename T>
const T* SampleRows::Place(const T* list, int32_t count) {
  const size_t offset = lists_.size();
  lists_.resize(offset + static_cast<size_t>(count) * sizeof(T));
  if (count > 0) std::memcpy(lists_.data() + offset, list, static_cast<size_t>(count) * sizeof(T));
  return reinterpret_cast<const T*>(offset);
}

absl::Status SampleRows::Fill(absl::Span<const SequencePlan* const> sequences,
                              const SlotTable& slots, int64_t padded, StepStaging::Block block,
                              Stream stream) {
  SampleRow* const rows = reinterpret_cast<SampleRow*>(block.host);
  const bool on_cpu = device_.type() == DeviceType::kCpu;
  lists_.clear();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequencePlan& s = *sequences[i];
    SampleRow row = SampleRowOf(slots.slot(s.slot), s);
    if (absl::Status status = CheckSampleRow(row, slots.limits().vocab_size); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("slot ", s.slot, ": ", status.message()));
    }
    if (!on_cpu) {
      row.penalty_ids = Place(row.penalty_ids, row.num_penalties);
      row.penalty_counts = Place(row.penalty_counts, row.num_penalties);
      row.bias_ids = Place(row.bias_ids, row.num_biases);
      row.bias_values = Place(row.bias_values, row.num_biases);
      row.banned_ids = Place(row.banned_ids, row.num_banned);
    }
    rows[i] = row;
  }
  for (int64_t i = static_cast<int64_t>(sequences.size()); i < padded; ++i) {
    rows[i] = SampleRow{.off = 1};
  }
  if (lists_.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(SendLists(stream));
  const char* const base = static_cast<const char*>(device_lists_[turn_].data());
  const auto relocate = [base](auto*& list) {
    using T = std::remove_reference_t<decltype(list)>;
    list = reinterpret_cast<T>(base + reinterpret_cast<uintptr_t>(list));
  };
  for (size_t i = 0; i < sequences.size(); ++i) {
    relocate(rows[i].penalty_ids);
    relocate(rows[i].penalty_counts);
    relocate(rows[i].bias_ids);
    relocate(rows[i].bias_values);
    relocate(rows[i].banned_ids);
  }
  return absl::OkStatus();
}

absl::Status SampleRows::SendLists(Stream stream) {
  turn_ = (turn_ + 1) % kStepsInFlight;
  const int64_t bytes = static_cast<int64_t>(lists_.size());
  if (host_lists_[turn_].bytes() < bytes) {
    constexpr int64_t kFewest = int64_t{64} << 10;
    // The step that used these lists last is over: at most kStepsInFlight are outstanding.
    const int64_t room = std::max(kFewest, 2 * bytes);
    ASSIGN_OR_RETURN(host_lists_[turn_], device_.AllocateHost(room));
    ASSIGN_OR_RETURN(device_lists_[turn_], device_.Allocate(room));
  }
  std::memcpy(host_lists_[turn_].data(), lists_.data(), lists_.size());
  return device_.Copy(device_lists_[turn_].data(), host_lists_[turn_].data(), bytes,
                      CopyKind::kHostToDevice, stream);
}

}  // namespace millrace
