// What the .cu files and index_select_cuda.cc both see.
#ifndef KERNELS_INDEX_SELECT_INDEX_SELECT_KERNEL_H_
#define KERNELS_INDEX_SELECT_INDEX_SELECT_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// Entries that a block of the plain kernel scores at once.
inline constexpr int32_t kIndexTile = 64;

// The shape that the tensor cores' kernel takes, the entries that a block of it scores at once, and
// the most tokens of a block.
inline constexpr int32_t kIndexMmaHeads = 64;
inline constexpr int32_t kIndexMmaDim = 128;
inline constexpr int32_t kIndexMmaTile = 128;
inline constexpr int32_t kIndexMmaTokens = 4;
// What it needs of `queries` for a token: bf16 heads, and weights.
inline constexpr int32_t kIndexMmaQueryFloats = kIndexMmaHeads * (kIndexMmaDim / 2 + 1);

// Tokens [first_token, first_token + tokens) of a step: as many as the workspace has room for.
// Strides in elements. Lengths and pages that are out of range count as none.
struct IndexSelectKernelArgs {
  const void* q = nullptr;
  const void* weights = nullptr;
  const void* keys = nullptr;
  const int32_t* q_start = nullptr;
  const int32_t* kv_len = nullptr;
  const int32_t* page_table = nullptr;
  int32_t* selected = nullptr;
  // Workspace, on 16 bytes. Of each token its queries and behind them its weights, scaled:
  // heads * (dim + 1) for LaunchIndexScores, kIndexMmaQueryFloats for LaunchIndexScoresMma.
  float* queries = nullptr;
  // [tokens][order_stride]: scores as integers of the same order (OrderOf in
  // index_select_kernel.cuh).
  uint32_t* orders = nullptr;
  int64_t q_token_stride = 0;
  int64_t q_head_stride = 0;
  int64_t weights_stride = 0;
  int64_t page_stride = 0;
  int64_t key_stride = 0;
  int64_t table_stride = 0;
  int64_t selected_stride = 0;
  int32_t first_token = 0;
  int32_t tokens = 0;
  int32_t sequences = 0;
  int32_t pages = 0;
  int32_t page_entries = 0;
  int32_t order_stride = 0;  // a multiple of 4, at least entry_room
  int32_t entry_room = 0;    // entries of the longest page table
  int32_t heads = 0;
  int32_t dim = 0;
  int32_t chosen = 0;
  int32_t ratio = 0;
  int32_t runs = 0;         // blocks over the entries of a token
  int32_t tile_tokens = 1;  // tokens of a block
  float scale = 0;
  bool q_bf16 = false;
  bool weights_bf16 = false;
  bool keys_bf16 = false;
  bool hadamard_fp4 = false;
};
static_assert(std::is_trivially_copyable_v<IndexSelectKernelArgs>);

// Fill `queries`, then `orders` from them for tokens that see more than they may choose.
cudaError_t LaunchIndexQueries(const IndexSelectKernelArgs& args, cudaStream_t stream);
cudaError_t LaunchIndexScores(const IndexSelectKernelArgs& args, cudaStream_t stream);
// The same on tensor cores. REQUIRES: 64 heads of 128 channels; bf16 keys; bf16 queries or
// hadamard_fp4; rows of both on 16 bytes.
cudaError_t LaunchIndexQueriesMma(const IndexSelectKernelArgs& args, cudaStream_t stream);
cudaError_t LaunchIndexScoresMma(const IndexSelectKernelArgs& args, cudaStream_t stream);
// Fills `selected` from `orders`.
cudaError_t LaunchIndexTop(const IndexSelectKernelArgs& args, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_INDEX_SELECT_INDEX_SELECT_KERNEL_H_
