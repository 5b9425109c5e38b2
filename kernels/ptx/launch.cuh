// How every kernel is launched.
#ifndef KERNELS_PTX_LAUNCH_CUH_
#define KERNELS_PTX_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <cstddef>

namespace millrace {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // dynamic
  int cluster = 1;          // blocks along x that form a cluster
};

// Enqueues the kernel so that it may start before the one ahead of it ends (README.md, the PDL
// rule). An empty grid is the caller's to avoid.
template <typename... Params, typename... Args>
cudaError_t Launch(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream,
                   Args&&... args) {
  // A kernel may have 48 KiB without asking, what it declares itself included: up to 16 KiB.
  constexpr size_t kNeverTooMuch = 32 * 1024;
  if (shape.shared_bytes > kNeverTooMuch) {
    const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  if (shape.cluster > 8) {
    const cudaError_t error = cudaFuncSetAttribute(
        reinterpret_cast<const void*>(kernel), cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(shape.cluster);
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Args&&>(args)...);
}

}  // namespace millrace

#endif  // KERNELS_PTX_LAUNCH_CUH_
