// Grid: one block a token. Every thread finds the token's row itself (the id, and for a slot name
// the token in it), then the block copies the row, kWords words a thread in flight. Bound by memory
// for many tokens, by the two or three loads in a chain for few.
#include "kernels/embedding/embedding_kernel.h"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 256;
constexpr int kWords = 2;

// The row of token t in the table, -1 for none of this rank's.
__device__ __forceinline__ int64_t RowOf(const EmbeddingKernelArgs& args, int t) {
  int64_t id = args.ids[t];
  if (id < 0) {
    const int64_t slot = -1 - id;
    id = slot < args.slots ? args.last_tokens[slot] : -1;
  }
  const int64_t row = id - args.first_id;
  return id >= 0 && row >= 0 && row < args.rows ? row : -1;
}

template <typename W, typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    CopyTableRow(const __grid_constant__ EmbeddingKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  const int t = static_cast<int>(blockIdx.x);
  const int64_t row = RowOf(args, t);
  const W* from = static_cast<const W*>(args.table) + row * args.table_stride;
  T* to = static_cast<T*>(args.y) + t * args.y_stride;
  constexpr int kStep = kThreads * kWidth;
  for (int begin = static_cast<int>(threadIdx.x) * kWidth; begin < args.width;
       begin += kWords * kStep) {
    Vec<W, kWidth> words[kWords] = {};
#pragma unroll
    for (int n = 0; n < kWords; ++n) {
      const int i = begin + n * kStep;
      if (row >= 0 && i < args.width) words[n] = LoadVec<kWidth>(from + i);
    }
#pragma unroll
    for (int n = 0; n < kWords; ++n) {
      const int i = begin + n * kStep;
      if (i >= args.width) break;
      StoreVec(to + i, Converted<T>(words[n]));
    }
  }
}

using Bf16 = __nv_bfloat16;
constexpr void (*kKernels[])(EmbeddingKernelArgs) = {
    CopyTableRow<float, float, 1>, CopyTableRow<float, Bf16, 1>, CopyTableRow<Bf16, float, 1>,
    CopyTableRow<Bf16, Bf16, 1>,   CopyTableRow<Bf16, Bf16, 8>,
};

}  // namespace

cudaError_t LaunchEmbedding(EmbeddingVariant variant, const EmbeddingKernelArgs& args,
                            cudaStream_t stream) {
  return Launch(kKernels[static_cast<int>(variant)],
                {.grid = dim3(static_cast<unsigned>(args.tokens)), .block = dim3(kThreads)}, stream,
                args);
}

}  // namespace millrace
