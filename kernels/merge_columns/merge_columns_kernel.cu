// Grid: (pieces of a row, rows). A thread copies kWords words of its row, all loads before the
// first store; each word's part is found by looking through the few first columns. Bound by memory.
#include "kernels/merge_columns/merge_columns_kernel.h"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 256;
constexpr int kWords = 4;

template <int kWidth>
constexpr int kPiece = kThreads* kWords* kWidth;

// Where column c of row r lies among the parts.
__device__ __forceinline__ const float* Source(const MergeColumnsKernelArgs& args, int r, int c) {
  int p = 0;
  while (p + 1 < args.num_parts && c >= args.first[p + 1]) ++p;
  const int first = args.first[p];
  const int columns = args.first[p + 1] - first;
  return args.parts + static_cast<int64_t>(args.rows) * first + static_cast<int64_t>(r) * columns +
         (c - first);
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    CopyPiece(const __grid_constant__ MergeColumnsKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  const int r = static_cast<int>(blockIdx.y);
  const int begin =
      static_cast<int>(blockIdx.x) * kPiece<kWidth> + static_cast<int>(threadIdx.x) * kWidth;
  const int total = args.first[args.num_parts];
  float* to = args.y + r * args.y_stride;
  Vec<float, kWidth> words[kWords] = {};
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    const int c = begin + n * kThreads * kWidth;
    if (c < total) words[n] = LoadVec<kWidth>(Source(args, r, c));
  }
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    const int c = begin + n * kThreads * kWidth;
    if (c < total) StoreVec(to + c, words[n]);
  }
}

}  // namespace

cudaError_t LaunchMergeColumns(MergeColumnsVariant variant, const MergeColumnsKernelArgs& args,
                               cudaStream_t stream) {
  const bool vector = variant == MergeColumnsVariant::kVector;
  const int piece = vector ? kPiece<4> : kPiece<1>;
  const int total = args.first[args.num_parts];
  const dim3 grid(static_cast<unsigned>((total + piece - 1) / piece),
                  static_cast<unsigned>(args.rows));
  return Launch(vector ? CopyPiece<4> : CopyPiece<1>, {.grid = grid, .block = dim3(kThreads)},
                stream, args);
}

}  // namespace millrace
