// What kv_append_kernel.cu and kv_append_cuda.cc both see.
#ifndef KERNELS_KV_APPEND_KV_APPEND_KERNEL_H_
#define KERNELS_KV_APPEND_KV_APPEND_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// One of the two tensors and its cache. Strides in elements.
struct KvAppendRows {
  const void* from = nullptr;
  void* cache = nullptr;
  const float* scale = nullptr;  // of each head, where the cache holds codes
  int64_t token_stride = 0;
  int64_t head_stride = 0;
  int64_t page_stride = 0;
  int64_t cache_head_stride = 0;
  int64_t slot_stride = 0;  // from a token of a page to the next
};

// As KvAppendArgs.
struct KvAppendKernelArgs {
  KvAppendRows k;
  KvAppendRows v;
  const int64_t* slots = nullptr;
  int64_t slot_limit = 0;  // slots from here on are left out
  int32_t tokens = 0;
  int32_t heads = 0;
  int32_t dim = 0;
  int32_t page_tokens = 0;
};
static_assert(std::is_trivially_copyable_v<KvAppendKernelArgs>);

enum class KvAppendVariant : uint8_t {
  kF32,
  kF32Bf16,  // keys and values f32, cache bf16
  kBf16F32,
  kBf16,
  kBf16Vector,  // the same, eight elements a load: every row 16-byte aligned, dim % 8 == 0
  kF32E4M3,     // cache E4M3
  kBf16E4M3,
  kBf16E4M3Vector,  // eight elements a load: rows of codes 8-byte, others 16-byte aligned
};

cudaError_t LaunchKvAppend(KvAppendVariant variant, const KvAppendKernelArgs& args,
                           cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_KV_APPEND_KV_APPEND_KERNEL_H_
