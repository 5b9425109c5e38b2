// Host side of the decode of few sequences on Hopper: tensor maps and the launch.
#include "kernels/paged_attention/paged_attention_kernel_few.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/tensor_map.cuh"

namespace millrace {
namespace {

// Keys or values; strides in elements.
struct Tensor {
  const void* data;
  int64_t page, head;
};

// Dimensions: 128 bytes of a row, tokens of a page, how often a row has 128 bytes, heads, pages. A
// box is a chunk. Reads are promoted to 128 bytes: to 256, a row of bf16, cost 2 to 8 % (H200).
template <typename Cache>
cudaError_t MakeMap(EncodeTiled encode, const PagedAttentionKernelArgs& args, const Tensor& tensor,
                    int64_t pages, CUtensorMap& map) {
  constexpr cuuint64_t kRow = Cache::kBytes / few::kChunk, kInner = 128;
  const auto bytes = [](int64_t elements) {
    return static_cast<cuuint64_t>(elements) * (kRow / few::kDim);
  };
  const auto tokens = static_cast<cuuint64_t>(args.page_tokens);
  const auto heads = static_cast<cuuint64_t>(args.kv_heads);
  const cuuint64_t sizes[5] = {kInner, tokens, kRow / kInner, heads,
                               static_cast<cuuint64_t>(pages)};
  // A single head or page may have any stride, which the encoder would refuse.
  const cuuint64_t page = tokens * kRow;
  const cuuint64_t strides[4] = {kRow, kInner, heads > 1 ? bytes(tensor.head) : page,
                                 pages > 1 ? bytes(tensor.page) : page * heads};
  const cuuint32_t box[5] = {kInner, few::kChunk, kRow / kInner, 1, 1}, steps[5] = {1, 1, 1, 1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 5, const_cast<void*>(tensor.data), sizes, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <typename Cache>
cudaError_t LaunchOn(const PagedAttentionKernelArgs& args, int64_t pages, cudaStream_t stream) {
  EncodeTiled encode = nullptr;
  if (const cudaError_t error = FindEncoder(encode); error != cudaSuccess) return error;
  few::Maps maps;
  const Tensor k = {args.k_cache, args.k_page, args.k_head};
  const Tensor v = {args.v_cache, args.v_page, args.v_head};
  cudaError_t error = MakeMap<Cache>(encode, args, k, pages, maps.k);
  if (error == cudaSuccess) error = MakeMap<Cache>(encode, args, v, pages, maps.v);
  if (error != cudaSuccess) return error;
  PagedAttentionKernelArgs full = args;
  full.pieces_per_page = static_cast<uint32_t>(args.page_tokens / few::kChunk);
  full.piece_reciprocal = ((1u << 31) + full.pieces_per_page - 1) / full.pieces_per_page;
  full.scale_log2 = args.scale * kLog2E;
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(args.items * args.kv_heads)),
                             .block = dim3(few::kWarps * 32),
                             .shared_bytes = sizeof(few::SharedOf<Cache>)};
  return Launch(few::PagedDecodeFew<Cache>, shape, stream, full, maps);
}

}  // namespace

cudaError_t LaunchPagedDecodeFew(const PagedAttentionKernelArgs& args, int64_t pages,
                                 cudaStream_t stream) {
  return LaunchOn<few::Bf16Cache>(args, pages, stream);
}

cudaError_t LaunchPagedDecodeFewFp8(const PagedAttentionKernelArgs& args, int64_t pages,
                                    cudaStream_t stream) {
  return LaunchOn<few::Fp8Cache>(args, pages, stream);
}

}  // namespace millrace
