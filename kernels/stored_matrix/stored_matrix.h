// A weight matrix in the format of its checkpoint, or several of one shape and format. Ops widen
// it tile by tile while they multiply; nobody holds it as floats.
#ifndef KERNELS_STORED_MATRIX_STORED_MATRIX_H_
#define KERNELS_STORED_MATRIX_STORED_MATRIX_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/core/tensor_view.h"
#include "kernels/stored_matrix/stored_matrix_args.h"

namespace millrace {

std::string_view StoredFormatName(StoredFormat format);

// Whether it has scales. Activations that meet such a matrix may be rounded too.
constexpr bool IsQuantised(StoredFormat format) {
  return format != StoredFormat::kF32 && format != StoredFormat::kBF16;
}

// Columns that share a scale and lie in one row: a cut between columns must be a multiple of it.
// 1 where any column will do, as with FP8, whose tiles may be cut (tile_row, tile_col).
constexpr int64_t StoredColumnUnit(StoredFormat format) {
  if (format == StoredFormat::kMxFp4) return 32;
  return format == StoredFormat::kNvFp4 ? 16 : 1;
}

// N rows (outputs) of K columns (inputs), row-major and dense; or E of them, one after the other.
// A value: borrows the memory.
struct StoredMatrix {
  StoredFormat format = StoredFormat::kBF16;
  int64_t count = 1;  // E
  int64_t rows = 0;   // N
  int64_t cols = 0;   // K

  // [E, N, K] f32 or bf16; u8 [E, N, K] for kFp8; u8 [E, N, K / 2] for FP4, the even column in the
  // low nibble.
  TensorView values;
  // kFp8: [E, S, C] E8M0 as u8, or f32, of the tiles that the rows and columns touch;
  // kMxFp4: u8 [E, N, K / 32] E8M0; kNvFp4: u8 [E, N, K / 16] E4M3. Else unused.
  TensorView scales;
  // kFp8: where row 0 and column 0 lie in their tile, below 128: not 0 in a part of a larger matrix
  // that was cut inside a tile. S = ceil((tile_row + N) / 128), C = ceil((tile_col + K) / 128).
  int32_t tile_row = 0;
  int32_t tile_col = 0;
  // kNvFp4: [E] f32 on the device. Else unused.
  TensorView factors;
  // kNvFp4: the value is e2m1 * scale / factor instead of e2m1 * scale * factor.
  bool divide_by_factor = false;

  // Matrix `index` alone. REQUIRES: 0 <= index < count.
  StoredMatrix Matrix(int64_t index) const;
  // Rows [begin, end) of the only matrix. REQUIRES: count == 1, 0 <= begin <= end <= rows.
  StoredMatrix Rows(int64_t begin, int64_t end) const;

  // Of values, scales and factors.
  int64_t bytes() const;
};

// InvalidArgument naming `op` and `name` unless the tensors of `m` are dense, on `device`, and of
// the types and shapes above.
absl::Status CheckStoredMatrix(std::string_view op, std::string_view name, DeviceType device,
                               const StoredMatrix& m);

// For kernels. REQUIRES: CheckStoredMatrix(), fewer than 2^31 rows and columns.
StoredMatrixArgs StoredMatrixArgsOf(const StoredMatrix& m);

// What happens to an activation before it meets a quantised matrix.
enum class ActivationRounding : uint8_t {
  kNone,
  // For each token and each 128 channels, the last ones fewer: s = 2^ceil(log2(amax / 448)) with
  // amax = max(|x|, 1e-4), and x becomes E4M3(x / s) * s. What FP8 products of GPUs see.
  kFp8Per128,
};

}  // namespace millrace

#endif  // KERNELS_STORED_MATRIX_STORED_MATRIX_H_
