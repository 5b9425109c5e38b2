// How skinny_gemm.cuh cuts a product; for host and device code.
#ifndef KERNELS_TILE_SKINNY_SHAPES_H_
#define KERNELS_TILE_SKINNY_SHAPES_H_

#include <cstdint>

namespace millrace {

struct SkinnyShape {
  int token_tiles;    // of 8 tokens
  int row_tiles;      // of 16 rows of W, a block
  int warps;          // of a block
  int unroll;         // pieces in flight a warp
  int blocks_per_sm;  // that registers must leave room for
};
inline constexpr SkinnyShape kSkinnyShapes[] = {
    {1, 1, 8, 4, 2}, {1, 1, 8, 3, 3}, {1, 2, 8, 2, 2}, {2, 2, 8, 3, 1}};
inline constexpr int kSkinnyShapeCount = sizeof(kSkinnyShapes) / sizeof(SkinnyShape);

// Inputs are a multiple of this.
inline constexpr int kSkinnyPiece = 64;

// Index into kSkinnyShapes, -1 where a GEMM for many tokens is faster: the fewer tiles of rows
// there are for each multiprocessor, the more warps share one; with more than 8 tokens each block's
// reads of x weigh as much as its weights unless a block is all that a multiprocessor has. Measured
// on an H200: kernels/linear/README.md.
constexpr int ChooseSkinnyShape(int64_t tokens, int64_t rows, int32_t multiprocessors) {
  const int64_t tiles = (rows + 15) / 16;
  const int64_t tiles_per_sm = (tiles + multiprocessors - 1) / multiprocessors;
  if (tokens > 16) return -1;
  if (tokens > 8) return tiles_per_sm <= 2 ? 3 : -1;
  if (tiles_per_sm <= 2) return 0;
  return tiles_per_sm == 3 ? 1 : 2;
}

}  // namespace millrace

#endif  // KERNELS_TILE_SKINNY_SHAPES_H_
