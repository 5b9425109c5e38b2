// CUDA's errors as Status. Only code built with CUDA includes this.
#ifndef KERNELS_CUDA_CUDA_STATUS_H_
#define KERNELS_CUDA_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"
#include "kernels/core/device.h"

namespace millrace {

// OK, or ResourceExhausted for a failed allocation and Internal for the rest, as
// "WHAT: cudaErrorName: its text".
absl::Status CudaStatus(cudaError_t error, std::string_view what);

inline cudaStream_t ToCuda(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace millrace

#endif  // KERNELS_CUDA_CUDA_STATUS_H_
