// Fills device memory in pieces, the next of which is read while the last is copied.
#ifndef ENGINE_LAYERS_UPLOAD_RING_H_
#define ENGINE_LAYERS_UPLOAD_RING_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "kernels/core/device.h"

namespace millrace {

// One thread. The device must outlive it. Where device memory is the host's, pieces are written in
// place.
class UploadRing final {
 public:
  // A piece has at most this many bytes.
  static constexpr int64_t kPieceBytes = int64_t{16} << 20;

  explicit UploadRing(Device& device) : device_(device) {}
  ~UploadRing();
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  // Writes `bytes` at `to` in device memory from what `fill` writes to the host memory that it is
  // given. Returns before the copy is over.
  absl::Status Put(void* to, int64_t bytes, const std::function<absl::Status(char* host)>& fill);
  // Waits for all copies.
  absl::Status Finish();

 private:
  struct Half {
    Buffer memory;
    Event copied;
  };
  absl::Status Open();

  Device& device_;
  bool open_ = false;
  Stream stream_;
  Half halves_[2];
  int next_ = 0;
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_UPLOAD_RING_H_
