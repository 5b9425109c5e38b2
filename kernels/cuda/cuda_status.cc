#include "kernels/cuda/cuda_status.h"

#include "absl/strings/str_cat.h"

namespace millrace {

absl::Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(std::string(what), ": ", cudaGetErrorName(error), ": ",
                                        cudaGetErrorString(error));
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(text);
  return absl::InternalError(text);
}

}  // namespace millrace
