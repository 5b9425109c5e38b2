// Host side of copies by tensor map (tma.cuh): what encodes the maps.
#ifndef KERNELS_PTX_TENSOR_MAP_CUH_
#define KERNELS_PTX_TENSOR_MAP_CUH_

#include <cuda.h>
#include <cuda_runtime.h>

namespace millrace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// The driver's encoder, found without linking against the driver.
inline cudaError_t FindEncoder(EncodeTiled& encode) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                             12000, cudaEnableDefault, &result);
  if (error != cudaSuccess) return error;
  if (result != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
  encode = reinterpret_cast<EncodeTiled>(found);
  return cudaSuccess;
}

}  // namespace millrace

#endif  // KERNELS_PTX_TENSOR_MAP_CUH_
