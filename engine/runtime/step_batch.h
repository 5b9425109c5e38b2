// One step's inputs, packed for the device.
#ifndef ENGINE_RUNTIME_STEP_BATCH_H_
#define ENGINE_RUNTIME_STEP_BATCH_H_

#include <cstdint>

#include "engine/layers/forward_context.h"
#include "engine/runtime/slot_table.h"
#include "engine/runtime/step_staging.h"
#include "kernels/core/device.h"

namespace millrace {

// What a batch is padded to. A captured graph has one shape for ever.
struct BatchShape {
  int64_t tokens = 0;
  int64_t sequences = 0;
  int64_t table_pages = 0;  // columns of the page table
};

// Without padding. REQUIRES: `plan` was applied to `slots`.
BatchShape ShapeOf(const StepPlan& plan, const SlotTable& slots);
// The largest that the limits allow.
BatchShape LargestShape(const PlanLimits& limits);

// Bytes that PackStep takes of the staging.
int64_t PackedBytes(const BatchShape& shape);

// Packs ids, positions, cache slots and page tables into blocks of `staging`, for the next Flush.
// On CUDA an id that was sampled in the slot's last step stays on the device: -1 - slot stands for
// it (EmbeddingArgs). Padding: sequences without queries and tokens without a cache slot.
// The host's spans are valid until the staging is used again. Leaves attention_plan_data and
// last_tokens empty. REQUIRES: `plan` was applied to `slots` and fits the shape.
ForwardBatch PackStep(const StepPlan& plan, const SlotTable& slots, const BatchShape& shape,
                      DeviceType device, StepStaging& staging);

// A decode step in which each sequence has one token, reads the first row of page 0 and writes
// none: for warming up and capturing.
ForwardBatch PackWarmUp(const BatchShape& shape, DeviceType device, StepStaging& staging);

}  // namespace millrace

#endif  // ENGINE_RUNTIME_STEP_BATCH_H_
