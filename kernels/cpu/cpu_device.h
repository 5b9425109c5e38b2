// The CPU as a device: memory of the process, work done when a call returns, a thread pool.
#ifndef KERNELS_CPU_CPU_DEVICE_H_
#define KERNELS_CPU_CPU_DEVICE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/device.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"

namespace millrace {

// Any thread, but ops (which use the pool) run on one thread at a time.
class CpuDevice final : public Device {
 public:
  // InvalidArgument unless 1 <= threads <= ThreadPool::kMaxThreads and the machine has `isa`;
  // Unavailable when the machine does not say how much memory it has.
  static absl::StatusOr<std::unique_ptr<CpuDevice>> Create(int threads, CpuIsa isa = DetectIsa());
  ~CpuDevice() override;  // REQUIRES: every Buffer of it is gone

  DeviceType type() const override { return DeviceType::kCpu; }
  absl::StatusOr<DeviceProperties> Properties() const override;

  // 256-byte aligned; from kHugeBytes on, 2 MiB aligned and backed by huge pages where the kernel
  // grants them. Zero-filled on first touch, yet counted at once: what was handed out and not yet
  // touched is not promised a second time.
  absl::StatusOr<Buffer> Allocate(int64_t bytes) override;

  absl::StatusOr<Stream> CreateStream() override { return Stream{}; }
  void DestroyStream(Stream) override {}
  // Copies before it returns. InvalidArgument for negative bytes.
  absl::Status Copy(void* dst, const void* src, int64_t bytes, CopyKind kind,
                    Stream stream) override;
  absl::Status Synchronize(Stream) override { return absl::OkStatus(); }

  ThreadPool* thread_pool() override { return &pool_; }

  static constexpr int64_t kHugeBytes = int64_t{1} << 21;

 private:
  CpuDevice(int threads, CpuIsa isa, int64_t budget_bytes);
  void Free(void* data, MemoryKind kind) override;
  // Bytes that Allocate may still hand out.
  absl::StatusOr<int64_t> Available() const;

  ThreadPool pool_;
  const int64_t budget_bytes_;  // free when the device was made

  mutable std::mutex mu_;
  std::unordered_map<void*, int64_t> allocations_;  // guarded by mu_: data -> bytes
  int64_t allocated_bytes_ = 0;                     // guarded by mu_
};

}  // namespace millrace

#endif  // KERNELS_CPU_CPU_DEVICE_H_
