#include <cstdint>

#include "kernels/lowp/small_float.h"
#include "kernels/simd/simd.h"
#include "kernels/stored_matrix/stored_matrix_cpu.h"

namespace millrace {
namespace {
#include "kernels/stored_matrix/stored_matrix_cpu_tile.h"
}  // namespace

const StoredTileFn kStoredTileScalar = Tile<4>;

}  // namespace millrace
