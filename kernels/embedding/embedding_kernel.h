// What embedding_kernel.cu and embedding_cuda.cc both see.
#ifndef KERNELS_EMBEDDING_EMBEDDING_KERNEL_H_
#define KERNELS_EMBEDDING_EMBEDDING_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// As EmbeddingArgs. Strides in elements.
struct EmbeddingKernelArgs {
  const int32_t* ids = nullptr;
  const int32_t* last_tokens = nullptr;  // or null
  const void* table = nullptr;
  void* y = nullptr;
  int64_t table_stride = 0;
  int64_t y_stride = 0;
  int32_t tokens = 0;
  int32_t slots = 0;  // of last_tokens
  int32_t first_id = 0;
  int32_t rows = 0;
  int32_t width = 0;
};
static_assert(std::is_trivially_copyable_v<EmbeddingKernelArgs>);

enum class EmbeddingVariant : uint8_t {
  kF32,         // table and y f32
  kF32Bf16,     // table f32, y bf16
  kBf16F32,     // table bf16, y f32
  kBf16,        // table and y bf16
  kBf16Vector,  // the same, eight elements a load: rows 16-byte aligned, width % 8 == 0
};

cudaError_t LaunchEmbedding(EmbeddingVariant variant, const EmbeddingKernelArgs& args,
                            cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_EMBEDDING_EMBEDDING_KERNEL_H_
