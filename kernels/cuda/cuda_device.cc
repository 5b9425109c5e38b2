#include "kernels/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"

namespace millrace {
namespace {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int ordinal) : ordinal_(ordinal) {}

  DeviceType type() const override { return DeviceType::kCuda; }

  absl::StatusOr<DeviceProperties> Properties() const override {
    RETURN_IF_ERROR(MakeCurrent());
    cudaDeviceProp prop = {};
    RETURN_IF_ERROR(
        CudaStatus(cudaGetDeviceProperties(&prop, ordinal_), "cudaGetDeviceProperties"));
    size_t free = 0;
    size_t total = 0;
    RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
    return DeviceProperties{.name = prop.name,
                            .total_bytes = static_cast<int64_t>(total),
                            .free_bytes = static_cast<int64_t>(free),
                            .multiprocessors = prop.multiProcessorCount,
                            .compute_capability = prop.major * 10 + prop.minor};
  }

  absl::StatusOr<Buffer> Allocate(int64_t bytes) override {
    if (bytes < 0) return absl::InvalidArgumentError("CudaDevice: negative size");
    if (bytes == 0) return Buffer();
    RETURN_IF_ERROR(MakeCurrent());
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
    if (error != cudaSuccess) return AllocationError(error, bytes);
    Buffer buffer(this, data, bytes);
    RETURN_IF_ERROR(CudaStatus(cudaMemset(data, 0, static_cast<size_t>(bytes)), "cudaMemset"));
    return buffer;
  }

  absl::StatusOr<Stream> CreateStream() override {
    RETURN_IF_ERROR(MakeCurrent());
    cudaStream_t stream = nullptr;
    RETURN_IF_ERROR(
        CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"));
    return Stream{stream};
  }

  // The stream's work is done or lost; nothing can be done about an error here.
  void DestroyStream(Stream stream) override { (void)cudaStreamDestroy(ToCuda(stream)); }

  absl::Status Copy(void* dst, const void* src, int64_t bytes, CopyKind kind,
                    Stream stream) override {
    if (bytes < 0) return absl::InvalidArgumentError("CudaDevice: copy of negative size");
    RETURN_IF_ERROR(MakeCurrent());
    const cudaMemcpyKind kinds[] = {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
                                    cudaMemcpyDeviceToDevice};
    return CudaStatus(cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes),
                                      kinds[static_cast<int>(kind)], ToCuda(stream)),
                      "cudaMemcpyAsync");
  }

  absl::Status Synchronize(Stream stream) override {
    RETURN_IF_ERROR(MakeCurrent());
    return CudaStatus(cudaStreamSynchronize(ToCuda(stream)), "cudaStreamSynchronize");
  }

 private:
  absl::Status MakeCurrent() const { return CudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice"); }

  static absl::Status AllocationError(cudaError_t error, int64_t bytes) {
    (void)cudaGetLastError();  // a failed allocation is not sticky: forget it
    size_t free = 0;
    size_t total = 0;
    (void)cudaMemGetInfo(&free, &total);
    return CudaStatus(
        error, absl::StrCat("cudaMalloc of ", bytes, " bytes, ", free, " of ", total, " are free"));
  }

  void Free(void* data) override { (void)cudaFree(data); }

  const int ordinal_;
};

}  // namespace

int CudaDeviceCount() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();  // no driver, or no GPU: not an error for the caller
    return 0;
  }
  return count;
}

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(int ordinal) {
  const int count = CudaDeviceCount();
  if (ordinal < 0 || ordinal >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no GPU ", ordinal, ": this machine has ", count));
  }
  return std::make_unique<CudaDevice>(ordinal);
}

}  // namespace millrace
