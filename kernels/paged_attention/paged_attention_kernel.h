// What the .cu files and paged_attention_cuda.cc both see.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_H_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/paged_attention/paged_attention_work.h"

namespace millrace {

enum class PagedCacheType : uint8_t { kF32, kBf16, kE4M3 };

// As PagedAttentionArgs. Strides in elements.
struct PagedAttentionKernelArgs {
  const void* q = nullptr;
  const void* k_cache = nullptr;
  const void* v_cache = nullptr;
  void* out = nullptr;
  const float* k_scale = nullptr;  // null: no codes, nothing to scale
  const float* v_scale = nullptr;
  const int32_t* page_table = nullptr;
  const PagedAttentionWork* work = nullptr;
  int32_t* arrivals = nullptr;  // [slots, kv_heads], zero before and after
  float* partials = nullptr;    // [slots, kv_heads], each tile_rows rows of head_dim sums, then
                                // tile_rows pairs of maximum (in powers of two) and sum of weights
  int64_t q_token = 0, q_head = 0;
  int64_t out_token = 0, out_head = 0;
  int64_t k_page = 0, k_head = 0, k_token = 0;
  int64_t v_page = 0, v_head = 0, v_token = 0;
  int64_t table_row = 0;
  int32_t max_pages = 0;
  int32_t page_tokens = 0;
  int32_t items = 0;
  int32_t kv_heads = 0;
  int32_t group = 0;  // query heads of a kv head
  int32_t head_dim = 0;
  int32_t tile_rows = 0;  // of the partial results
  // Set by the launches of decode.
  uint32_t k_page_bytes = 0, v_page_bytes = 0;
  uint32_t pieces_per_page = 0;   // of 16 keys
  uint32_t piece_reciprocal = 0;  // of pieces_per_page, in units of 2^-31, rounded up
  float scale_log2 = 0;
  float scale = 0;
};
static_assert(std::is_trivially_copyable_v<PagedAttentionKernelArgs>);

// Whether LaunchPagedDecode takes these.
constexpr bool PagedDecodeTakes(const PagedAttentionKernelArgs& args) {
  const int32_t dim = args.head_dim;
  constexpr int64_t kLargestPage = int64_t{1} << 31;  // elements
  return (dim == 64 || dim == 96 || dim == 128 || dim == 256) && args.page_tokens % 16 == 0 &&
         args.k_token == dim && args.v_token == dim && args.k_page < kLargestPage &&
         args.v_page < kLargestPage && args.tile_rows <= 32;
}

// The work items, one block each and kv head. All bf16, or with a cache of codes (E4M3) and its
// scales; addresses and strides in bytes are multiples of 16. tile_rows is 8, 16 or 32, the last
// with head sizes up to 128. `large_blocks`: of 16 warps, one to a multiprocessor, instead of 4;
// needs tile_rows 8 and a head size up to 128.
cudaError_t LaunchPagedDecode(const PagedAttentionKernelArgs& args, bool large_blocks,
                              cudaStream_t stream);
cudaError_t LaunchPagedDecodeFp8(const PagedAttentionKernelArgs& args, bool large_blocks,
                                 cudaStream_t stream);

// As these with large blocks, on sm_90; head size 128. `pages`: of the cache.
cudaError_t LaunchPagedDecodeFew(const PagedAttentionKernelArgs& args, int64_t pages,
                                 cudaStream_t stream);
cudaError_t LaunchPagedDecodeFewFp8(const PagedAttentionKernelArgs& args, int64_t pages,
                                    cudaStream_t stream);

// The same for tiles of up to 64 rows and any page size and head size (a multiple of 8, up to 256).
// cudaErrorNotSupported where the device lacks the shared memory.
cudaError_t LaunchPagedTiles(const PagedAttentionKernelArgs& args, cudaStream_t stream);
// On a cache of codes; the head size is a multiple of 16.
cudaError_t LaunchPagedTilesFp8(const PagedAttentionKernelArgs& args, cudaStream_t stream);

// Every operand in any dtype and alignment, without a plan. Slow.
struct PagedPlainArgs {
  PagedAttentionKernelArgs common;  // but work, arrivals and partials
  const int32_t* q_start = nullptr;
  const int32_t* kv_len = nullptr;
  int32_t tokens = 0;
  int32_t sequences = 0;
  bool q_is_bf16 = false;
  PagedCacheType cache = PagedCacheType::kF32;
};
static_assert(std::is_trivially_copyable_v<PagedPlainArgs>);
cudaError_t LaunchPagedPlain(const PagedPlainArgs& args, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_H_
