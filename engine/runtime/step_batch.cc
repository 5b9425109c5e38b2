#include "engine/runtime/step_batch.h"

#include <algorithm>

#include "kernels/core/status.h"

namespace millrace {

StepBatch::Layout StepBatch::LayoutOf(const PlanLimits& limits) {
  constexpr int64_t kAlignment = 256;
  int64_t next = 0;
  const auto place = [&](int64_t bytes) {
    const int64_t offset = next;
    next += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  };
  const int64_t tokens = limits.max_num_batched_tokens;
  const int64_t sequences = limits.max_num_seqs;
  Layout layout;
  layout.cache_slots = place(tokens * 8);
  layout.token_ids = place(tokens * 4);
  layout.positions = place(tokens * 4);
  layout.q_start = place((sequences + 1) * 4);
  layout.kv_len = place(sequences * 4);
  layout.page_table = place(sequences * limits.max_pages_per_sequence() * 4);
  layout.total = next;
  return layout;
}

absl::StatusOr<StepBatch> StepBatch::Create(const PlanLimits& limits, Device& device) {
  StepBatch batch;
  batch.layout_ = LayoutOf(limits);
  batch.page_tokens_ = limits.page_tokens;
  batch.device_ = &device;
  batch.device_type_ = device.type();
  ASSIGN_OR_RETURN(batch.memory_, device.Allocate(batch.layout_.total));
  batch.host_ = static_cast<char*>(batch.memory_.data());
  if (device.type() != DeviceType::kCpu) {
    batch.staging_.resize(static_cast<size_t>(batch.layout_.total));
    batch.host_ = batch.staging_.data();
  }
  return batch;
}

TensorView StepBatch::View(int64_t offset, DType dtype,
                           std::initializer_list<int64_t> shape) const {
  return TensorView::Of(static_cast<char*>(memory_.data()) + offset, dtype, shape, device_type_);
}

void StepBatch::PackSequence(const SequencePlan& plan, const Slot& slot, int64_t sequence) {
  int32_t* q_start = Host<int32_t>(layout_.q_start);
  const int32_t first = q_start[sequence];
  const int32_t tokens = plan.num_tokens();
  q_start[sequence + 1] = first + tokens;
  Host<int32_t>(layout_.kv_len)[sequence] = plan.position + tokens;
  int32_t* table = Host<int32_t>(layout_.page_table) + sequence * table_pages_;
  std::fill(std::copy(slot.pages.begin(), slot.pages.end(), table), table + table_pages_, -1);
  for (int32_t i = 0; i < tokens; ++i) {
    // After a numeric fault there is no last token; any id does, since the result is dropped.
    const int32_t id =
        plan.tokens.empty() ? std::max(0, slot.last_token) : plan.tokens[static_cast<size_t>(i)];
    const int32_t position = plan.position + i;
    const int64_t page = slot.pages[static_cast<size_t>(position / page_tokens_)];
    Host<int32_t>(layout_.token_ids)[first + i] = id;
    Host<int32_t>(layout_.positions)[first + i] = position;
    Host<int64_t>(layout_.cache_slots)[first + i] = page * page_tokens_ + position % page_tokens_;
  }
}

absl::StatusOr<ForwardBatch> StepBatch::Pack(const StepPlan& plan, const SlotTable& slots,
                                             Stream stream) {
  table_pages_ = 0;
  for (const SequencePlan& s : plan.sequences) {
    const int64_t pages = static_cast<int64_t>(slots.slot(s.slot).pages.size());
    table_pages_ = std::max(table_pages_, pages);
  }
  Host<int32_t>(layout_.q_start)[0] = 0;
  const int64_t sequences = static_cast<int64_t>(plan.sequences.size());
  for (int64_t b = 0; b < sequences; ++b) {
    const SequencePlan& s = plan.sequences[static_cast<size_t>(b)];
    PackSequence(s, slots.slot(s.slot), b);
  }
  const int64_t used = layout_.page_table + sequences * table_pages_ * 4;
  if (!staging_.empty()) {
    RETURN_IF_ERROR(device_->Copy(memory_.data(), host_, used, CopyKind::kHostToDevice, stream));
  }
  const int64_t tokens = plan.num_tokens();
  ForwardBatch batch;
  batch.token_ids = View(layout_.token_ids, DType::kI32, {tokens});
  batch.positions = View(layout_.positions, DType::kI32, {tokens});
  batch.cache_slots = View(layout_.cache_slots, DType::kI64, {tokens});
  batch.page_table = View(layout_.page_table, DType::kI32, {sequences, table_pages_});
  batch.q_start = View(layout_.q_start, DType::kI32, {sequences + 1});
  batch.kv_len = View(layout_.kv_len, DType::kI32, {sequences});
  const size_t b = static_cast<size_t>(sequences);
  batch.host_q_start = absl::MakeConstSpan(Host<int32_t>(layout_.q_start), b + 1);
  batch.host_kv_len = absl::MakeConstSpan(Host<int32_t>(layout_.kv_len), b);
  return batch;
}

}  // namespace millrace
