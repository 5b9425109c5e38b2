// How a product is cut into tiles: chosen by fp8_gemm_path.cc and fp8_gemm_tiles_cut.cc, heeded by
// the kernels. For host and device code.
#ifndef KERNELS_FP8_GEMM_CUTS_H_
#define KERNELS_FP8_GEMM_CUTS_H_

#include <cstdint>

namespace millrace {

// The tiles of many tokens that are expected to take the least time.
struct Fp8GemmTileCut {
  bool narrow = false;  // of 192 columns instead of 256
  // Of `mixed` (256 or 192; 0: not so) and 128 columns, where nothing is added to y and it is
  // stored in whole boxes: the first `turn` rows of tiles (of 128 tokens) begin with wide[0] of the
  // wider tiles, the others with wide[1]. Together those are whole rounds of the multiprocessors.
  // Elsewhere `narrow` holds, the better one without.
  int32_t mixed = 0;
  int32_t turn = 0;
  int32_t wide[2] = {};
};

// Tiles of up to 64 tokens, whose inputs a cluster shares.
struct Fp8GemmCut {
  bool narrow = false;  // of 64 outputs instead of 128
  int32_t splits = 1;   // parts of the inputs: 1, 2, 4 or 8
};

// Tiles dealt out: each block of a group has `own` of them, and one the group shares by its inputs.
struct Fp8GemmGroups {
  bool wide = false;   // tiles of 128 outputs instead of 64
  int32_t splits = 1;  // blocks of a group: 1 or 2, and 3 or 6 where tiles are not wide
  int32_t own = 0;
  int32_t groups = 1;
};

}  // namespace millrace

#endif  // KERNELS_FP8_GEMM_CUTS_H_
