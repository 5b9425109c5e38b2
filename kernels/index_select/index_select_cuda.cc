#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/core/rows_aligned.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/index_select/index_select_impl.h"
#include "kernels/index_select/index_select_kernel.h"

namespace millrace {
namespace {

// Callers may count entries without the end of the last page.
constexpr int64_t kEntryStep = 1024;
// Workspace that a chunk of tokens may take, as far as one token takes no more.
constexpr int64_t kChunkBytes = int64_t{32} << 20;
constexpr int64_t kChunkTokens = 1024;
// Blocks that keep every multiprocessor of a large GPU busy to the end.
constexpr int64_t kBlocks = 2048;

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How a call divides its workspace.
struct Chunks {
  int64_t queries;  // floats of a token
  int64_t entries;  // of a token
  int64_t tokens;   // at most

  constexpr Chunks(int64_t queries, int64_t max_entries)
      : queries(queries),
        entries(CeilDiv(std::max<int64_t>(max_entries, 1), kEntryStep) * kEntryStep),
        tokens(std::clamp<int64_t>(kChunkBytes / TokenBytes(), 1, kChunkTokens)) {}

  constexpr int64_t TokenBytes() const { return 4 * (queries + entries); }
  constexpr int64_t Bytes(int64_t call_tokens) const {
    return std::min(call_tokens, tokens) * TokenBytes();
  }
};
static_assert(Chunks(0, 262144).tokens == 32);
static_assert(Chunks(64 * 129, 1024).tokens == 903);
static_assert(Chunks(1, int64_t{1} << 27).tokens == 1);

// Whether the tensor cores' kernel takes the call.
bool UsesMma(const IndexSelectArgs& args) {
  return args.q.dim(1) == kIndexMmaHeads && args.q.dim(2) == kIndexMmaDim &&
         args.keys.dtype == DType::kBF16 && (args.q.dtype == DType::kBF16 || args.hadamard_fp4) &&
         RowsAligned(args.q) && RowsAligned(args.keys) &&
         // Also of one token: whether others are there must not choose the kernel.
         args.q.stride(0) % 8 == 0 && args.q.stride(1) % 8 == 0;
}

Chunks ChunksOf(const IndexSelectArgs& args) {
  return Chunks(UsesMma(args) ? kIndexMmaQueryFloats : args.q.dim(1) * (args.q.dim(2) + 1),
                args.batch.page_table.dim(1) * args.keys.dim(2));
}

absl::Status CheckSizes(const IndexSelectArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 4;
  for (int64_t size :
       {args.q.dim(0), args.q.dim(1), args.q.dim(2), args.keys.dim(0), args.keys.dim(2),
        args.batch.kv_len.dim(0), args.batch.page_table.dim(1) * args.keys.dim(2), args.ratio,
        args.selected.dim(1)}) {
    if (size > kMax)
      return absl::UnimplementedError("IndexSelect: a size of more than 2^29 on cuda");
  }
  return absl::OkStatus();
}

IndexSelectKernelArgs KernelArgs(const IndexSelectArgs& args, const Chunks& chunks, void* scratch) {
  const auto as_int = [](int64_t x) { return static_cast<int32_t>(x); };
  float* const queries = static_cast<float*>(scratch);
  const int64_t room = std::min(args.q.dim(0), chunks.tokens);
  return {.q = args.q.data,
          .weights = args.weights.data,
          .keys = args.keys.data,
          .q_start = args.batch.q_start.as<const int32_t>(),
          .kv_len = args.batch.kv_len.as<const int32_t>(),
          .page_table = args.batch.page_table.as<const int32_t>(),
          .selected = args.selected.as<int32_t>(),
          .queries = queries + room * chunks.entries,
          .orders = static_cast<uint32_t*>(scratch),
          .q_token_stride = args.q.stride(0),
          .q_head_stride = args.q.stride(1),
          .weights_stride = args.weights.stride(0),
          .page_stride = args.keys.stride(0),
          .key_stride = args.keys.stride(2),
          .table_stride = args.batch.page_table.stride(0),
          .selected_stride = args.selected.stride(0),
          .sequences = as_int(args.batch.kv_len.dim(0)),
          .pages = as_int(args.keys.dim(0)),
          .page_entries = as_int(args.keys.dim(2)),
          .order_stride = as_int(chunks.entries),
          .entry_room = as_int(args.batch.page_table.dim(1) * args.keys.dim(2)),
          .heads = as_int(args.q.dim(1)),
          .dim = as_int(args.q.dim(2)),
          .chosen = as_int(args.selected.dim(1)),
          .ratio = as_int(args.ratio),
          .scale = args.scale,
          .q_bf16 = args.q.dtype == DType::kBF16,
          .weights_bf16 = args.weights.dtype == DType::kBF16,
          .keys_bf16 = args.keys.dtype == DType::kBF16,
          .hadamard_fp4 = args.hadamard_fp4};
}

absl::Status RunChunk(IndexSelectKernelArgs args, bool mma, cudaStream_t stream) {
  // Tokens of one sequence share keys.
  if (mma && args.tokens / args.sequences >= kIndexMmaTokens) args.tile_tokens = kIndexMmaTokens;
  const int64_t tiles = CeilDiv(args.entry_room, mma ? kIndexMmaTile : kIndexTile);
  const int64_t runs = CeilDiv(kBlocks, CeilDiv(args.tokens, args.tile_tokens));
  args.runs = static_cast<int32_t>(std::clamp<int64_t>(tiles, 1, runs));
  if (mma) {
    RETURN_IF_ERROR(CudaStatus(LaunchIndexQueriesMma(args, stream), "IndexSelect: queries"));
    RETURN_IF_ERROR(CudaStatus(LaunchIndexScoresMma(args, stream), "IndexSelect: scores"));
  } else {
    RETURN_IF_ERROR(CudaStatus(LaunchIndexQueries(args, stream), "IndexSelect: queries"));
    RETURN_IF_ERROR(CudaStatus(LaunchIndexScores(args, stream), "IndexSelect: scores"));
  }
  return CudaStatus(LaunchIndexTop(args, stream), "IndexSelect: top");
}

}  // namespace

absl::Status IndexSelectCuda(const OpContext& ctx, const IndexSelectArgs& args) {
  RETURN_IF_ERROR(CheckSizes(args));
  if (args.batch.kv_len.dim(0) == 0) return absl::OkStatus();
  const Chunks chunks = ChunksOf(args);
  const int64_t tokens = args.q.dim(0);
  WorkspaceScope workspace(ctx.workspace);
  ASSIGN_OR_RETURN(void* const scratch, workspace.Take(chunks.Bytes(tokens)));
  IndexSelectKernelArgs kernel_args = KernelArgs(args, chunks, scratch);
  for (int64_t t = 0; t < tokens; t += chunks.tokens) {
    kernel_args.first_token = static_cast<int32_t>(t);
    kernel_args.tokens = static_cast<int32_t>(std::min(tokens - t, chunks.tokens));
    RETURN_IF_ERROR(RunChunk(kernel_args, UsesMma(args), ToCuda(ctx.stream)));
  }
  return absl::OkStatus();
}

int64_t IndexSelectCudaWorkspaceBytes(int64_t heads, int64_t dim, int64_t max_entries) {
  // A chunk of fewer entries may have so many more tokens that it takes more: up to kChunkBytes.
  const auto most = [&](int64_t queries) {
    const int64_t token = Chunks(queries, max_entries).TokenBytes();
    return std::min(kChunkTokens * token, std::max(kChunkBytes, token));
  };
  // 256: which Take rounds up to.
  return std::max(most(heads * (dim + 1)), most(kIndexMmaQueryFloats)) + 256;
}

}  // namespace millrace
