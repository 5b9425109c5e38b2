// What add_kernel.cu and add_cuda.cc both see.
#ifndef KERNELS_ADD_ADD_KERNEL_H_
#define KERNELS_ADD_ADD_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// Rows on `stride` elements, of f32 or bf16.
struct AddRows {
  void* data = nullptr;
  int64_t stride = 0;
  bool bf16 = false;
};

struct AddKernelArgs {
  AddRows a, b, y;
  int32_t tokens = 0;
  int32_t width = 0;
};
static_assert(std::is_trivially_copyable_v<AddKernelArgs>);

// Elements that a thread takes: 1, or kAddVector where every row starts on 16 bytes and the width
// is a multiple of it.
inline constexpr int kAddVector = 8;

// Widest row there is a grid for.
inline constexpr int64_t kAddMaxWidth = int64_t{65535} * 256;

cudaError_t LaunchAdd(const AddKernelArgs& args, bool vectors, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_ADD_ADD_KERNEL_H_
