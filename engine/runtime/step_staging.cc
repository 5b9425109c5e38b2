#include "engine/runtime/step_staging.h"

#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {

absl::StatusOr<StepStaging> StepStaging::Create(int64_t bytes, Device& device) {
  StepStaging staging;
  staging.device_ = &device;
  ASSIGN_OR_RETURN(staging.device_memory_, device.Allocate(bytes));
  if (device.type() != DeviceType::kCpu) {
    for (Buffer& host : staging.host_memory_) {
      ASSIGN_OR_RETURN(host, device.AllocateHost(bytes));
    }
  }
  return staging;
}

void StepStaging::Begin() {
  turn_ = (turn_ + 1) % kStepsInFlight;
  used_ = 0;
  last_ = 0;
}

StepStaging::Block StepStaging::Take(int64_t bytes) {
  MR_CHECK_LE(used_ + bytes, device_memory_.bytes());
  last_ = used_;
  used_ += Rounded(bytes);
  const Buffer& host = host_memory_[turn_];
  char* const device = static_cast<char*>(device_memory_.data()) + last_;
  return {.host = host.data() == nullptr ? device : static_cast<char*>(host.data()) + last_,
          .device = device};
}

absl::Status StepStaging::Flush(int64_t last_bytes, Stream stream) {
  const Buffer& host = host_memory_[turn_];
  if (host.data() == nullptr) return absl::OkStatus();
  return device_->Copy(device_memory_.data(), host.data(), last_ + last_bytes,
                       CopyKind::kHostToDevice, stream);
}

}  // namespace millrace
