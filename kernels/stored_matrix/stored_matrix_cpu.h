// How the CPU multiplies by stored matrices: a few rows are widened to floats, then meet all
// tokens. What the ops that have such weights share; no op itself.
#ifndef KERNELS_STORED_MATRIX_STORED_MATRIX_CPU_H_
#define KERNELS_STORED_MATRIX_STORED_MATRIX_CPU_H_

#include <cstdint>

#include "kernels/core/tensor_view.h"
#include "kernels/cpu/isa.h"
#include "kernels/stored_matrix/stored_matrix.h"

namespace millrace {

// Rows that are widened at once.
inline constexpr int64_t kStoredTileRows = 4;

// Floats of a widened row or of a prepared token: whole vectors of any instruction set, the last
// one filled up with zeros.
constexpr int64_t StoredPaddedCols(int64_t cols) { return (cols + 15) / 16 * 16; }

// Tokens [begin, end) of x ([T, K] f32 or bf16) to floats, rounded as asked for, StoredPaddedCols
// apart.
void PrepareStoredTokens(const TensorView& x, int64_t begin, int64_t end,
                         ActivationRounding rounding, float* prepared);

// Rounds one token's `count` floats in place: what kFp8Per128 says.
void RoundToFp8(float* x, int64_t count);

// Up to kStoredTileRows rows of one matrix, and the tokens they meet.
struct StoredTile {
  const StoredMatrix* matrix = nullptr;
  int64_t index = 0;  // of the matrix in its stack
  int64_t row = 0;    // the first one
  int64_t rows = 0;   // 1 to kStoredTileRows
  // [tokens, StoredPaddedCols(cols)] prepared; token t lies in row t, or in row order[t].
  const float* x = nullptr;
  const int32_t* order = nullptr;
  int64_t tokens = 0;
  float* widened = nullptr;  // scratch: kStoredTileRows * StoredPaddedCols(cols) floats
  float* out = nullptr;      // [tokens, kStoredTileRows]; columns past `rows` are undefined
};

// out[t, r] = sum over columns of matrix[row + r] * x[t], in an order that depends on the
// instruction set and the number of columns alone.
using StoredTileFn = void (*)(const StoredTile& tile);
StoredTileFn StoredTileFor(CpuIsa isa);

extern const StoredTileFn kStoredTileScalar;
extern const StoredTileFn kStoredTileAvx2;
extern const StoredTileFn kStoredTileAvx512;

}  // namespace millrace

#endif  // KERNELS_STORED_MATRIX_STORED_MATRIX_CPU_H_
