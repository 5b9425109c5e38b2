#include "engine/runtime/step_batch.h"

#include <algorithm>
#include <initializer_list>

namespace millrace {
namespace {

// One array of the batch on both sides.
template <typename T>
struct Column {
  T* host = nullptr;
  TensorView view;
};

template <typename T>
Column<T> TakeColumn(StepStaging& staging, DType dtype, std::initializer_list<int64_t> shape,
                     DeviceType device) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  const StepStaging::Block block = staging.Take(count * DTypeBytes(dtype));
  return {.host = reinterpret_cast<T*>(block.host),
          .view = TensorView::Of(block.device, dtype, shape, device)};
}

class Packer final {
 public:
  Packer(const BatchShape& shape, DeviceType device, StepStaging& staging)
      : shape_(shape), device_(device) {
    cache_slots_ = TakeColumn<int64_t>(staging, DType::kI64, {shape.tokens}, device);
    token_ids_ = TakeColumn<int32_t>(staging, DType::kI32, {shape.tokens}, device);
    positions_ = TakeColumn<int32_t>(staging, DType::kI32, {shape.tokens}, device);
    q_start_ = TakeColumn<int32_t>(staging, DType::kI32, {shape.sequences + 1}, device);
    kv_len_ = TakeColumn<int32_t>(staging, DType::kI32, {shape.sequences}, device);
    state_slots_ = TakeColumn<int32_t>(staging, DType::kI32, {shape.sequences}, device);
    page_table_ =
        TakeColumn<int32_t>(staging, DType::kI32, {shape.sequences, shape.table_pages}, device);
    q_start_.host[0] = 0;
  }

  void AddSequence(const SequencePlan& plan, const SlotTable& slots) {
    const Slot& slot = slots.slot(plan.slot);
    const int32_t tokens = plan.num_tokens();
    EndSequence({tokens, plan.position + tokens, plan.slot}, slot.pages);
    const int32_t page_tokens = slots.limits().page_tokens;
    for (int32_t i = 0; i < tokens; ++i) {
      const int32_t position = plan.position + i;
      const int64_t page = slot.pages[static_cast<size_t>(position / page_tokens)];
      AddToken(
          plan.tokens.empty() ? LastToken(plan.slot, slot) : plan.tokens[static_cast<size_t>(i)],
          position, page * page_tokens + position % page_tokens);
    }
  }

  void AddWarmUp() {
    EndSequence({1, 1, -1}, {0});
    AddToken(0, 0, -1);
  }

  ForwardBatch Finish() {
    while (sequences_ < shape_.sequences) EndSequence({0, 0, -1}, {});
    while (tokens_ < shape_.tokens) AddToken(0, 0, -1);
    ForwardBatch batch;
    batch.token_ids = token_ids_.view;
    batch.positions = positions_.view;
    batch.cache_slots = cache_slots_.view;
    batch.page_table = page_table_.view;
    batch.q_start = q_start_.view;
    batch.kv_len = kv_len_.view;
    batch.state_slots = state_slots_.view;
    const size_t b = static_cast<size_t>(shape_.sequences);
    batch.host_q_start = absl::MakeConstSpan(q_start_.host, b + 1);
    batch.host_kv_len = absl::MakeConstSpan(kv_len_.host, b);
    return batch;
  }

 private:
  int32_t LastToken(int32_t index, const Slot& slot) const {
    if (device_ != DeviceType::kCpu) return -1 - index;
    // After a numeric fault there is no last token; any id does, since the result is dropped.
    return std::max(0, slot.last_token);
  }

  struct SequenceRow {
    int32_t tokens = 0;
    int32_t kv_len = 0;
    int32_t state_slot = -1;
  };

  void EndSequence(const SequenceRow& row, const std::vector<int32_t>& pages) {
    q_start_.host[sequences_ + 1] = q_start_.host[sequences_] + row.tokens;
    kv_len_.host[sequences_] = row.kv_len;
    state_slots_.host[sequences_] = row.state_slot;
    int32_t* table = page_table_.host + sequences_ * shape_.table_pages;
    std::fill(std::copy(pages.begin(), pages.end(), table), table + shape_.table_pages, -1);
    ++sequences_;
  }

  void AddToken(int32_t id, int32_t position, int64_t cache_slot) {
    token_ids_.host[tokens_] = id;
    positions_.host[tokens_] = position;
    cache_slots_.host[tokens_] = cache_slot;
    ++tokens_;
  }

  const BatchShape& shape_;
  const DeviceType device_;
  Column<int64_t> cache_slots_;
  Column<int32_t> token_ids_, positions_, q_start_, kv_len_, state_slots_, page_table_;
  int64_t sequences_ = 0;  // so far
  int64_t tokens_ = 0;
};

}  // namespace

BatchShape ShapeOf(const StepPlan& plan, const SlotTable& slots) {
  BatchShape shape = {.tokens = plan.num_tokens(),
                      .sequences = static_cast<int64_t>(plan.sequences.size()),
                      .table_pages = 0};
  for (const SequencePlan& s : plan.sequences) {
    const int64_t pages = static_cast<int64_t>(slots.slot(s.slot).pages.size());
    shape.table_pages = std::max(shape.table_pages, pages);
  }
  return shape;
}

BatchShape LargestShape(const PlanLimits& limits) {
  return {.tokens = limits.max_num_batched_tokens,
          .sequences = limits.max_num_seqs,
          .table_pages = limits.max_pages_per_sequence()};
}

int64_t PackedBytes(const BatchShape& s) {
  int64_t bytes = 0;
  for (const int64_t column : {s.tokens * 8, s.tokens * 4, s.tokens * 4, (s.sequences + 1) * 4,
                               s.sequences * 4, s.sequences * 4, s.sequences * s.table_pages * 4}) {
    bytes += StepStaging::Rounded(column);
  }
  return bytes;
}

ForwardBatch PackStep(const StepPlan& plan, const SlotTable& slots, const BatchShape& shape,
                      DeviceType device, StepStaging& staging) {
  Packer packer(shape, device, staging);
  for (const SequencePlan& s : plan.sequences) packer.AddSequence(s, slots);
  return packer.Finish();
}

ForwardBatch PackWarmUp(const BatchShape& shape, DeviceType device, StepStaging& staging) {
  Packer packer(shape, device, staging);
  for (int64_t i = 0; i < shape.sequences; ++i) packer.AddWarmUp();
  return packer.Finish();
}

}  // namespace millrace
