// Host side of prefill for Hopper: tensor maps and the launch.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_LAUNCH_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_LAUNCH_CUH_

#include <algorithm>

#include "kernels/paged_attention/paged_attention_kernel_prefill.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/tensor_map.cuh"

namespace millrace::prefill {

// A tensor of `rank` dimensions, innermost first and dense; strides in elements from the second on.
// bf16 with swizzled boxes, or codes without.
struct Tensor {
  const void* data;
  bool codes;
  int rank;
  cuuint64_t size[4];
  int64_t stride[3];
  cuuint32_t box[4];
};

inline cudaError_t MakeMap(EncodeTiled encode, const Tensor& t, CUtensorMap& map) {
  cuuint64_t bytes[3] = {};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  for (int i = 0; i + 1 < t.rank; ++i) {
    bytes[i] = static_cast<cuuint64_t>(t.stride[i]) * (t.codes ? 1 : 2);
  }
  const CUresult result =
      encode(&map, t.codes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
             static_cast<cuuint32_t>(t.rank), const_cast<void*>(t.data), t.size, bytes, t.box,
             steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             t.codes ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <typename T>
cudaError_t MakeMaps(const PagedPrefillArgs& a, Maps& maps) {
  static_assert(T::kRows == PagedPrefillTileTokens(T::kHeadDim, 1));
  EncodeTiled encode = nullptr;
  if (const cudaError_t error = FindEncoder(encode); error != cudaSuccess) return error;
  const auto size = [](int32_t n) { return static_cast<cuuint64_t>(n); };
  const int32_t group = a.q_heads / a.kv_heads;
  const auto tile_tokens = static_cast<cuuint32_t>(PagedPrefillTileTokens(a.head_dim, group));
  const auto box_rows = static_cast<cuuint32_t>(std::min(a.page_tokens, T::kMaxBoxRows));
  const Tensor q = {a.q,
                    false,
                    3,
                    {size(a.head_dim), size(a.q_heads), size(a.tokens)},
                    {a.q_head_stride, a.q_token_stride},
                    {64, static_cast<cuuint32_t>(group), tile_tokens}};
  Tensor cache = {a.k_cache,
                  T::kFp8,
                  4,
                  {size(a.head_dim), size(a.page_tokens), size(a.kv_heads), size(a.pages)},
                  {a.head_dim, a.k_head_stride, a.k_page_stride},
                  {T::kFp8 ? static_cast<cuuint32_t>(a.head_dim) : 64, box_rows, 1, 1}};
  if (const cudaError_t error = MakeMap(encode, q, maps.q); error != cudaSuccess) return error;
  if (const cudaError_t error = MakeMap(encode, cache, maps.k); error != cudaSuccess) return error;
  cache.data = a.v_cache;
  cache.stride[1] = a.v_head_stride;
  cache.stride[2] = a.v_page_stride;
  return MakeMap(encode, cache, maps.v);
}

template <typename T>
cudaError_t LaunchTraits(const PagedPrefillArgs& args, cudaStream_t stream) {
  Maps maps;
  if (const cudaError_t error = MakeMaps<T>(args, maps); error != cudaSuccess) return error;
  int device = 0, sms = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (const cudaError_t error =
          cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
      error != cudaSuccess) {
    return error;
  }
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(sms)),
                             .block = dim3(T::kThreads),
                             .shared_bytes = sizeof(typename T::Smem) + 1024};
  return Launch(Prefill<T>, shape, stream, args, maps);
}

}  // namespace millrace::prefill

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_LAUNCH_CUH_
