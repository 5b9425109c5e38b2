// The one copy of a step's inputs: the host writes blocks, the device gets all of them at once.
#ifndef ENGINE_RUNTIME_STEP_STAGING_H_
#define ENGINE_RUNTIME_STEP_STAGING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/device.h"

namespace millrace {

// Steps whose results may be outstanding at once.
inline constexpr int kStepsInFlight = 2;

// Worker thread. The device must outlive it. Steps that take the same sizes in the same order get
// the same device addresses, so captured graphs stay valid. The host side has one buffer for each
// step in flight; on the CPU there is only one buffer, the device's.
class StepStaging final {
 public:
  struct Block {
    char* host = nullptr;
    char* device = nullptr;  // what the same bytes will be there
  };

  // `bytes`: what one step takes at most, each block rounded up to kAlignment.
  static absl::StatusOr<StepStaging> Create(int64_t bytes, Device& device);

  // Forgets the blocks of the step before. REQUIRES: the copy of the step kStepsInFlight before
  // this one is over.
  void Begin();
  // REQUIRES: room for it.
  Block Take(int64_t bytes);
  // Copies all blocks. `last_bytes`: of the last block, where less of it was written than taken.
  absl::Status Flush(int64_t last_bytes, Stream stream);

  int64_t bytes() const { return device_memory_.bytes(); }

  static constexpr int64_t kAlignment = 256;
  static int64_t Rounded(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

 private:
  Device* device_ = nullptr;
  Buffer device_memory_;
  Buffer host_memory_[kStepsInFlight];  // empty on the CPU
  int turn_ = 0;
  int64_t used_ = 0;
  int64_t last_ = 0;  // where the last block begins
};

}  // namespace millrace

#endif  // ENGINE_RUNTIME_STEP_STAGING_H_
