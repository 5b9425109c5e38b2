// An NVIDIA GPU as a Device: memory, streams, copies. Built without CUDA, Create() answers
// UNIMPLEMENTED and CudaDeviceCount() is 0, so callers need no #if.
#ifndef KERNELS_CUDA_CUDA_DEVICE_H_
#define KERNELS_CUDA_CUDA_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/core/device.h"

namespace millrace {

// GPUs that this process can use; 0 without a driver.
int CudaDeviceCount();

// A device for GPU `ordinal`. Any thread; each call makes the GPU current for its thread.
// Memory comes from cudaMalloc (256-byte aligned, zero-filled). Errors name the CUDA call. After a
// sticky error (an illegal address, say) every later call fails with it: the worker must end.
// InvalidArgument when there is no such GPU, Unimplemented in a build without CUDA.
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(int ordinal);

// The GPU's address on its bus ("0000:1B:00.0"): the same for all processes of a host, whatever
// numbers they know it by. Errors as for CreateCudaDevice.
absl::StatusOr<std::string> CudaBusId(int ordinal);

}  // namespace millrace

#endif  // KERNELS_CUDA_CUDA_DEVICE_H_
