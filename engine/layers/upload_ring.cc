#include "engine/layers/upload_ring.h"

#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {

UploadRing::~UploadRing() {
  if (!open_) return;
  (void)Finish();  // an error was or will be seen elsewhere; the halves must not go before
  device_.DestroyStream(stream_);
}

absl::Status UploadRing::Open() {
  if (open_) return absl::OkStatus();
  ASSIGN_OR_RETURN(stream_, device_.CreateStream());
  open_ = true;
  for (Half& half : halves_) {
    ASSIGN_OR_RETURN(half.memory, device_.AllocateHost(kPieceBytes));
    ASSIGN_OR_RETURN(half.copied, device_.CreateEvent());
  }
  return absl::OkStatus();
}

absl::Status UploadRing::Put(void* to, int64_t bytes,
                             const std::function<absl::Status(char* host)>& fill) {
  if (device_.type() == DeviceType::kCpu) return fill(static_cast<char*>(to));
  MR_CHECK_LE(bytes, kPieceBytes);
  RETURN_IF_ERROR(Open());
  const Half& half = halves_[next_];
  next_ = 1 - next_;
  RETURN_IF_ERROR(device_.Wait(half.copied));
  RETURN_IF_ERROR(fill(static_cast<char*>(half.memory.data())));
  RETURN_IF_ERROR(device_.Copy(to, half.memory.data(), bytes, CopyKind::kHostToDevice, stream_));
  return device_.Record(half.copied, stream_);
}

absl::Status UploadRing::Finish() {
  if (!open_) return absl::OkStatus();
  return device_.Synchronize(stream_);
}

}  // namespace millrace
