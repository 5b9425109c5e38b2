// Host side of prefill: tensor maps and the choice of the kernel.
#include <algorithm>

#include "kernels/paged_attention/paged_attention_kernel_prefill.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/tensor_map.cuh"

namespace millrace {
namespace {

// A bf16 tensor of `rank` dimensions, innermost first and dense; strides in elements from the
// second on.
struct Tensor {
  const void* data;
  int rank;
  cuuint64_t size[4];
  int64_t stride[3];
  cuuint32_t box[4];
};

cudaError_t MakeMap(EncodeTiled encode, const Tensor& t, CUtensorMap& map) {
  cuuint64_t bytes[3] = {};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  for (int i = 0; i + 1 < t.rank; ++i) bytes[i] = static_cast<cuuint64_t>(t.stride[i]) * 2;
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<cuuint32_t>(t.rank),
             const_cast<void*>(t.data), t.size, bytes, t.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <typename T>
cudaError_t MakeMaps(const PagedPrefillArgs& a, prefill::Maps& maps) {
  static_assert(T::kRows == PagedPrefillTileTokens(T::kHeadDim, 1));
  EncodeTiled encode = nullptr;
  if (const cudaError_t error = FindEncoder(encode); error != cudaSuccess) return error;
  const auto size = [](int32_t n) { return static_cast<cuuint64_t>(n); };
  const int32_t group = a.q_heads / a.kv_heads;
  const auto tile_tokens = static_cast<cuuint32_t>(PagedPrefillTileTokens(a.head_dim, group));
  const auto box_rows = static_cast<cuuint32_t>(std::min(a.page_tokens, T::kMaxBoxRows));
  const Tensor q = {a.q,
                    3,
                    {size(a.head_dim), size(a.q_heads), size(a.tokens)},
                    {a.q_head_stride, a.q_token_stride},
                    {64, static_cast<cuuint32_t>(group), tile_tokens}};
  Tensor cache = {a.k_cache,
                  4,
                  {size(a.head_dim), size(a.page_tokens), size(a.kv_heads), size(a.pages)},
                  {a.head_dim, a.k_head_stride, a.k_page_stride},
                  {64, box_rows, 1, 1}};
  if (const cudaError_t error = MakeMap(encode, q, maps.q); error != cudaSuccess) return error;
  if (const cudaError_t error = MakeMap(encode, cache, maps.k); error != cudaSuccess) return error;
  cache.data = a.v_cache;
  cache.stride[1] = a.v_head_stride;
  cache.stride[2] = a.v_page_stride;
  return MakeMap(encode, cache, maps.v);
}

template <typename T>
cudaError_t LaunchTraits(const PagedPrefillArgs& args, cudaStream_t stream) {
  prefill::Maps maps;
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
  return Launch(prefill::Prefill<T>, shape, stream, args, maps);
}

}  // namespace

cudaError_t LaunchPagedPrefill(const PagedPrefillArgs& args, cudaStream_t stream) {
  switch (args.head_dim) {
    case 64:
      return LaunchTraits<prefill::Traits<64, 128, 8, 2, 3>>(args, stream);
    case 96:
      return LaunchTraits<prefill::Traits<96, 96, 5, 2, 3>>(args, stream);
    case 128:
      return LaunchTraits<prefill::Traits<128, 128, 5, 2, 2>>(args, stream);
    case 256:
      return LaunchTraits<prefill::Traits<256, 64, 4, 1, 2>>(args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace millrace
