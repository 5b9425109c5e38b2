// What the .cu files and stored_linear_cuda.cc both see.
#ifndef KERNELS_STORED_LINEAR_STORED_LINEAR_KERNEL_H_
#define KERNELS_STORED_LINEAR_STORED_LINEAR_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/stored_matrix/stored_matrix_args.h"

namespace millrace {

// As StoredLinearArgs. Strides in elements.
struct StoredLinearKernelArgs {
  const void* x = nullptr;
  int64_t x_stride = 0;
  void* y = nullptr;
  int64_t y_stride = 0;
  int32_t tokens = 0;
  bool x_bf16 = false, y_bf16 = false;
  bool rounds = false;  // activations as ActivationRounding::kFp8Per128 says
  StoredMatrixArgs weight;
  void* prepared = nullptr;  // tokens * cols * kPreparedBytes, for activations; on 16 bytes
};
static_assert(std::is_trivially_copyable_v<StoredLinearKernelArgs>);

// Bytes that an activation takes at most, as a kernel wants it: three parts in bf16.
inline constexpr int64_t kPreparedBytes = 6;

// Any format, shape and device; slow.
cudaError_t LaunchStoredLinearPlain(const StoredLinearKernelArgs& args, cudaStream_t stream);

// Tiles of rows of FP8 or bf16, 16 tokens at a time. REQUIRES: sm_90, CoversTiles().
cudaError_t LaunchStoredLinearTiles(const StoredLinearKernelArgs& args, int multiprocessors,
                                    cudaStream_t stream);

// Of a row, what a warp reads at once.
inline constexpr int kRowPieceBytes = 128;

// Does not look at what differs between calls with other tokens or other rows of a matrix: these
// must give the same bits.
inline bool CoversTiles(const StoredLinearKernelArgs& args) {
  const StoredMatrixArgs& m = args.weight;
  const bool fp8 = m.format == StoredFormat::kFp8 && args.rounds && m.tile_col == 0;
  const bool bf16 = m.format == StoredFormat::kBF16;
  const int64_t row_bytes = int64_t{m.cols} * (bf16 ? 2 : 1);
  return (fp8 || bf16) && m.cols > 0 && row_bytes % kRowPieceBytes == 0 &&
         reinterpret_cast<uintptr_t>(m.values) % 16 == 0;
}

}  // namespace millrace

#endif  // KERNELS_STORED_LINEAR_STORED_LINEAR_KERNEL_H_
