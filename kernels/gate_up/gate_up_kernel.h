// What gate_up_kernel.cu and gate_up_cuda.cc both see.
#ifndef KERNELS_GATE_UP_GATE_UP_KERNEL_H_
#define KERNELS_GATE_UP_GATE_UP_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// As GateUpArgs. Strides in elements.
struct GateUpKernelArgs {
  const void* x = nullptr;
  const void* weight = nullptr;
  void* y = nullptr;
  int64_t x_stride = 0;
  int64_t weight_stride = 0;
  int64_t y_stride = 0;
  int32_t tokens = 0;
  int32_t inputs = 0;
  int32_t rows = 0;  // of weight
};
static_assert(std::is_trivially_copyable_v<GateUpKernelArgs>);

// `shape`: 0 or 1, index into kSkinnyShapes.
cudaError_t LaunchGateUp(int shape, const GateUpKernelArgs& args, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_GATE_UP_GATE_UP_KERNEL_H_
