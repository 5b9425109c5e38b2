// Which pieces of its rows a block of these kernels has.
#ifndef KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_KERNEL_PIECES_CUH_
#define KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_KERNEL_PIECES_CUH_

namespace millrace {

// The pieces of a row that this block has: blockIdx.y, blockIdx.y + gridDim.y, ... A row has at
// least one.
template <int kPiece>
struct BlockPieces {
  int count;

  __device__ __forceinline__ explicit BlockPieces(int hidden) {
    const int all = max((hidden + kPiece - 1) / kPiece, 1);
    const int first = static_cast<int>(blockIdx.y), step = static_cast<int>(gridDim.y);
    count = first < all ? (all - first + step - 1) / step : 0;
  }
  // The first channel of the i-th.
  __device__ __forceinline__ static int Begin(int i) {
    return (i * static_cast<int>(gridDim.y) + static_cast<int>(blockIdx.y)) * kPiece;
  }
};

}  // namespace millrace

#endif  // KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_KERNEL_PIECES_CUH_
