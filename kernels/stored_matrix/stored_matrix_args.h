// A StoredMatrix as device code sees it, for host compilers and nvcc.
#ifndef KERNELS_STORED_MATRIX_STORED_MATRIX_ARGS_H_
#define KERNELS_STORED_MATRIX_STORED_MATRIX_ARGS_H_

#include <cstdint>
#include <type_traits>

namespace millrace {

// kernels/lowp has the arithmetic of each.
enum class StoredFormat : uint8_t {
  kF32,
  kBF16,
  kFp8,    // E4M3, one scale for each 128 x 128 tile
  kMxFp4,  // E2M1, one E8M0 scale for each 32 columns
  kNvFp4,  // E2M1, one E4M3 scale for each 16 columns and one f32 factor a matrix
};

// Members as in StoredMatrix; StoredMatrixArgsOf() makes one.
struct StoredMatrixArgs {
  const void* values = nullptr;
  const void* scales = nullptr;
  const float* factors = nullptr;
  int32_t count = 0, rows = 0, cols = 0;
  int32_t tile_row = 0, tile_col = 0;      // kFp8
  int32_t scale_rows = 0, scale_cols = 0;  // of a matrix
  StoredFormat format = StoredFormat::kF32;
  bool f32_scales = false, divides = false;
};
static_assert(std::is_trivially_copyable_v<StoredMatrixArgs>);

}  // namespace millrace

#endif  // KERNELS_STORED_MATRIX_STORED_MATRIX_ARGS_H_
