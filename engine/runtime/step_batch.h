// One step's inputs, packed for the device.
#ifndef ENGINE_RUNTIME_STEP_BATCH_H_
#define ENGINE_RUNTIME_STEP_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/layers/forward_context.h"
#include "engine/runtime/slot_table.h"
#include "kernels/core/device.h"

namespace millrace {

// Buffers for the largest step that the limits allow, made once; their addresses never change.
// Worker thread. The device must outlive it.
class StepBatch final {
 public:
  static absl::StatusOr<StepBatch> Create(const PlanLimits& limits, Device& device);

  // Packs ids, positions, cache slots and page tables and copies them to the device. The returned
  // views are valid until the next call. REQUIRES: `plan` was applied to `slots`.
  absl::StatusOr<ForwardBatch> Pack(const StepPlan& plan, const SlotTable& slots, Stream stream);

  int64_t bytes() const { return memory_.bytes(); }

 private:
  // Offsets of the parts of the one buffer.
  struct Layout {
    int64_t cache_slots, token_ids, positions, q_start, kv_len, page_table, total;
  };
  static Layout LayoutOf(const PlanLimits& limits);

  StepBatch() = default;
  template <typename T>
  T* Host(int64_t offset) {
    return reinterpret_cast<T*>(host_ + offset);
  }
  TensorView View(int64_t offset, DType dtype, std::initializer_list<int64_t> shape) const;
  void PackSequence(const SequencePlan& plan, const Slot& slot, int64_t sequence);

  Layout layout_ = {};
  int32_t page_tokens_ = 0;
  int64_t table_pages_ = 0;  // columns of the page table in this step
  DeviceType device_type_ = DeviceType::kCpu;
  Device* device_ = nullptr;
  Buffer memory_;
  std::vector<char> staging_;  // empty on the CPU, which is packed in place
  char* host_ = nullptr;
};

}  // namespace millrace

#endif  // ENGINE_RUNTIME_STEP_BATCH_H_
