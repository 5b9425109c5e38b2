// The CUDA device as ops of its own row see it. Only code built with CUDA includes this.
#ifndef KERNELS_CUDA_CUDA_DEVICE_IMPL_H_
#define KERNELS_CUDA_CUDA_DEVICE_IMPL_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/device.h"
#include "kernels/cuda/cublas_lt.h"

namespace millrace {

class CudaDevice final : public Device {
 public:
  static absl::StatusOr<std::unique_ptr<Device>> Create(int ordinal);
  ~CudaDevice() override = default;

  // REQUIRES: device.type() == DeviceType::kCuda.
  static CudaDevice& Of(Device& device) { return static_cast<CudaDevice&>(device); }

  DeviceType type() const override { return DeviceType::kCuda; }
  absl::StatusOr<DeviceProperties> Properties() const override;
  // What ops choose their schedules by; asked once.
  int32_t multiprocessors() const { return multiprocessors_; }
  int32_t compute_capability() const { return compute_capability_; }
  CublasLt& cublas() { return *cublas_; }

  absl::StatusOr<Buffer> Allocate(int64_t bytes) override;
  absl::StatusOr<Buffer> AllocateHost(int64_t bytes) override;
  absl::StatusOr<Stream> CreateStream() override;
  void DestroyStream(Stream stream) override;
  absl::Status Copy(void* dst, const void* src, int64_t bytes, CopyKind kind,
                    Stream stream) override;
  absl::Status Synchronize(Stream stream) override;
  absl::Status Check() override;

  absl::StatusOr<Event> CreateEvent() override;
  absl::Status Record(const Event& event, Stream stream) override;
  absl::Status Wait(const Event& event) override;
  absl::StatusOr<bool> IsDone(const Event& event) override;
  absl::Status StreamWait(Stream stream, const Event& event) override;

  bool has_graphs() const override { return true; }
  absl::Status BeginCapture(Stream stream) override;
  absl::StatusOr<Graph> EndCapture(Stream stream) override;
  absl::Status Launch(const Graph& graph, Stream stream) override;

 private:
  explicit CudaDevice(int ordinal) : ordinal_(ordinal) {}
  absl::Status MakeCurrent() const;
  void Free(void* data, MemoryKind kind) override;
  void DestroyEvent(void* handle) override;
  void DestroyGraph(void* handle) override;

  const int ordinal_;
  int32_t multiprocessors_ = 0;
  int32_t compute_capability_ = 0;
  std::unique_ptr<CublasLt> cublas_;
};

}  // namespace millrace

#endif  // KERNELS_CUDA_CUDA_DEVICE_IMPL_H_
