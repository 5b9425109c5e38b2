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

// Where a buffer lies. kHost: memory of the host that the device copies to and from directly
// (CUDA: page-locked), so that such copies overlap with work.
enum class MemoryKind : uint8_t { kDevice, kHost };

class Device;

// Owns one allocation of a device; freed on destruction. Movable. The device must outlive it.
class Buffer final {
 public:
  Buffer() = default;
  Buffer(Device* device, void* data, int64_t bytes, MemoryKind kind = MemoryKind::kDevice)
      : device_(device), data_(data), bytes_(bytes), kind_(kind) {}
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
  MemoryKind kind_ = MemoryKind::kDevice;
};

// A point in a stream's work that the host can wait for. Movable. The device must outlive it.
class Event final {
 public:
  Event() = default;
  Event(Device* device, void* handle) : device_(device), handle_(handle) {}
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void* handle() const { return handle_; }

 private:
  Device* device_ = nullptr;
  void* handle_ = nullptr;
};

// Work captured from a stream, ready to be launched again and again: the same kernels with the same
// arguments, so what is to vary must lie in memory. Movable. The device must outlive it.
class Graph final {
 public:
  Graph() = default;
  Graph(Device* device, void* handle) : device_(device), handle_(handle) {}
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void* handle() const { return handle_; }

 private:
  Device* device_ = nullptr;
  void* handle_ = nullptr;
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
  // Host memory for copies (MemoryKind::kHost), zero-filled; errors as for Allocate, which it is
  // where device memory is the host's.
  virtual absl::StatusOr<Buffer> AllocateHost(int64_t bytes) { return Allocate(bytes); }

  virtual absl::StatusOr<Stream> CreateStream() = 0;
  virtual void DestroyStream(Stream stream) = 0;

  // Ordered on `stream`. Host memory of an asynchronous copy must live until Synchronize.
  virtual absl::Status Copy(void* dst, const void* src, int64_t bytes, CopyKind kind,
                            Stream stream) = 0;
  // Blocks until all work of `stream` is done; a failed kernel's error surfaces here at the latest.
  virtual absl::Status Synchronize(Stream stream) = 0;

  // After an error: whether the device can go on. Some errors of a GPU (an illegal address, say)
  // stay for the life of the process, which then has to end.
  virtual absl::Status Check() { return absl::OkStatus(); }

  // Events. The defaults are those of a device whose work is done when a call returns.
  virtual absl::StatusOr<Event> CreateEvent() { return Event(); }
  // The event stands for all work put into `stream` so far.
  virtual absl::Status Record(const Event&, Stream) { return absl::OkStatus(); }
  // Blocks until the recorded work is done; errors as for Synchronize.
  virtual absl::Status Wait(const Event&) { return absl::OkStatus(); }
  // Whether it is done, without waiting; errors as for Synchronize.
  virtual absl::StatusOr<bool> IsDone(const Event&) { return true; }
  // Work put into `stream` later starts after the event's.
  virtual absl::Status StreamWait(Stream, const Event&) { return absl::OkStatus(); }

  // Whether Capture works.
  virtual bool has_graphs() const { return false; }
  // Between the two, work put into `stream` by this thread is recorded instead of done.
  // Unimplemented on devices without graphs. EndCapture fails with the first thing that could not
  // be captured, and leaves the stream usable.
  virtual absl::Status BeginCapture(Stream stream);
  virtual absl::StatusOr<Graph> EndCapture(Stream stream);
  virtual absl::Status Launch(const Graph& graph, Stream stream);

  // The CPU device's threads; null on other devices.
  virtual ThreadPool* thread_pool() { return nullptr; }

 private:
  friend class Buffer;
  friend class Event;
  friend class Graph;
  virtual void Free(void* data, MemoryKind kind) = 0;
  virtual void DestroyEvent(void* handle) {}
  virtual void DestroyGraph(void* handle) {}
};

}  // namespace millrace

#endif  // KERNELS_CORE_DEVICE_H_
