// Host side of the decode of few sequences on Hopper: tensor maps and the launch.
#include "kernels/paged_attention/paged_attention_kernel_few.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/tensor_map.cuh"

namespace millrace {
namespace {

// Keys or values; strides in elements.
struct Cache {
  const void* data;
  int64_t page, head;
};

// Dimensions: half a row, tokens of a page, halves of a row, heads, pages. A box is a chunk. Reads
// are promoted to 128 bytes: to 256, the whole row twice, cost 2 to 8 % (H200).
cudaError_t MakeMap(EncodeTiled encode, const PagedAttentionKernelArgs& args, const Cache& cache,
                    int64_t pages, CUtensorMap& map) {
  constexpr cuuint64_t kHalf = few::kDim / 2;
  const auto bytes = [](int64_t elements) { return static_cast<cuuint64_t>(elements) * 2; };
  const auto tokens = static_cast<cuuint64_t>(args.page_tokens);
  const auto heads = static_cast<cuuint64_t>(args.kv_heads);
  const cuuint64_t sizes[5] = {kHalf, tokens, 2, heads, static_cast<cuuint64_t>(pages)};
  // A single head or page may have any stride, which the encoder would refuse.
  const cuuint64_t page = tokens * few::kDim * 2;
  const cuuint64_t strides[4] = {few::kDim * 2, few::kDim, heads > 1 ? bytes(cache.head) : page,
                                 pages > 1 ? bytes(cache.page) : page * heads};
  const cuuint32_t box[5] = {kHalf, few::kChunk, 2, 1, 1}, steps[5] = {1, 1, 1, 1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, const_cast<void*>(cache.data), sizes,
             strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t LaunchPagedDecodeFew(const PagedAttentionKernelArgs& args, int64_t pages,
                                 cudaStream_t stream) {
  EncodeTiled encode = nullptr;
  if (const cudaError_t error = FindEncoder(encode); error != cudaSuccess) return error;
  few::Maps maps;
  const Cache k = {args.k_cache, args.k_page, args.k_head};
  const Cache v = {args.v_cache, args.v_page, args.v_head};
  if (const cudaError_t error = MakeMap(encode, args, k, pages, maps.k); error != cudaSuccess) {
    return error;
  }
  if (const cudaError_t error = MakeMap(encode, args, v, pages, maps.v); error != cudaSuccess) {
    return error;
  }
  PagedAttentionKernelArgs full = args;
  full.pieces_per_page = static_cast<uint32_t>(args.page_tokens / few::kChunk);
  full.piece_reciprocal = ((1u << 31) + full.pieces_per_page - 1) / full.pieces_per_page;
  full.scale_log2 = args.scale * kLog2E;
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(args.items * args.kv_heads)),
                             .block = dim3(few::kWarps * 32),
                             .shared_bytes = sizeof(few::Shared)};
  return Launch(few::PagedDecodeFew, shape, stream, full, maps);
}

}  // namespace millrace
