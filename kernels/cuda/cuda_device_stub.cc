#include "kernels/cuda/cuda_device.h"

namespace millrace {

int CudaDeviceCount() { return 0; }

namespace {

absl::Status NoCuda() {
  return absl::UnimplementedError("this build has no CUDA: build where nvcc is, or use the CPU");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(int) { return NoCuda(); }

absl::StatusOr<std::string> CudaBusId(int) { return NoCuda(); }

}  // namespace millrace
