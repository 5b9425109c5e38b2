// A device that ops run on: memory, streams, copies. The CUDA headers stay out of here; a stream
// is an opaque handle that only the device's own code (kernels/cpu, kernels/cuda) interprets.
#ifndef KERNELS_CORE_DEVICE_H_
#define KERNELS_CORE_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

class ThreadPool;

struct DeviceProperties {
  std::string name;                // "AMD EPYC ... (2 threads, avx2)" or "NVIDIA H200"
  int64_t total_bytes = 0;         // of device memory
  int64_t free_bytes = 0;          // when asked
  int32_t multiprocessors = 0;     // CUDA: SMs; CPU: threads of the pool
  int32_t compute_capability = 0;  // CUDA: 90 for sm_90; CPU: 0
};

// An ordered queue of work. CPU: null, work is done when the call returns.
struct Stream {
  void* handle = nullptr;
};

enum class CopyKind : uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice };

class Device;

// Owns one allocation of a device; freed on destruction. Movable. The device must outlive it.
class Buffer final {
 public:
  Buffer() = default;
  Buffer(Device* device, void* data, int64_t bytes) : device_(device), data_(data), bytes_(bytes) {}
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Any thread, unless a method says otherwise.
class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceType type() const = 0;
  virtual absl::StatusOr<DeviceProperties> Properties() const = 0;

  // 256-byte aligned (CPU: 64-byte at least), zero-filled. ResourceExhausted naming the bytes
  // asked for and available when the device has no room. bytes == 0 gives an empty buffer.
  virtual absl::StatusOr<Buffer> Allocate(int64_t bytes) = 0;

  virtual absl::StatusOr<Stream> CreateStream() = 0;
  virtual void DestroyStream(Stream stream) = 0;

  // Ordered on `stream`. Host memory of an asynchronous copy must live until Synchronize.
  virtual absl::Status Copy(void* dst, const void* src, int64_t bytes, CopyKind kind,
                            Stream stream) = 0;
  // Blocks until all work of `stream` is done; a failed kernel's error surfaces here at the latest.
  virtual absl::Status Synchronize(Stream stream) = 0;

  // The CPU device's threads; null on other devices.
  virtual ThreadPool* thread_pool() { return nullptr; }

 private:
  friend class Buffer;
  virtual void Free(void* data) = 0;
};

}  // namespace millrace

#endif  // KERNELS_CORE_DEVICE_H_
