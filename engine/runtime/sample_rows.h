// The sampling parameters of a step's rows, where the device can read them.
#ifndef ENGINE_RUNTIME_SAMPLE_ROWS_H_
#define ENGINE_RUNTIME_SAMPLE_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/runtime/slot_table.h"
#include "engine/runtime/step_staging.h"
#include "engine/scheduler/step_plan.h"
#include "kernels/core/device.h"
#include "kernels/sample/sample.h"

namespace millrace {

// Worker thread. The device must outlive it.
class SampleRows final {
 public:
  explicit SampleRows(Device& device) : device_(device) {}

  // Fills the block's `padded` rows (padded * sizeof(SampleRow) bytes), for the next Flush: one for
  // each of `sequences`, which sample, then rows that are off. Their lists (penalties, biases,
  // bans) go to the device on `stream` in a copy of their own; on the CPU they stay in the slots.
  // InvalidArgument naming slot and field for parameters that the op does not take.
  absl::Status Fill(absl::Span<const SequencePlan* const> sequences, const SlotTable& slots,
                    int64_t padded, StepStaging::Block block, Stream stream);

 private:
  template <typename T>
  const T* Place(const T* list, int32_t count);
  absl::Status SendLists(Stream stream);

  Device& device_;
  std::vector<char> lists_;  // of this step, empty on the CPU
  // Where the lists of a step lie. They grow with the longest lists seen.
  Buffer host_lists_[kStepsInFlight];
  Buffer device_lists_[kStepsInFlight];
  int turn_ = 0;
};

}  // namespace millrace

#endif  // ENGINE_RUNTIME_SAMPLE_ROWS_H_
