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
    {1, 1, 8, 4, 2}, {1, 1, 8, 2, 3}, {1, 1, 16, 2, 1}, {2, 1, 8, 2, 2}, {2, 1, 4, 4, 3}};
inline constexpr int kSkinnyShapeCount = sizeof(kSkinnyShapes) / sizeof(SkinnyShape);

// Inputs are a multiple of this.
inline constexpr int kSkinnyPiece = 64;

// Index into kSkinnyShapes, -1 where a GEMM for many tokens is faster. Where each multiprocessor
// has up to three tiles of rows, as many blocks as it has tiles fit on it, so that all are there
// from the start, and the fewer there are the more loads a warp has in flight; with more tiles it
// is blocks of many warps that come one after the other. With more than 8 tokens reads of x weigh
// as much as weights. Measured on an H200: kernels/linear/README.md.
constexpr int ChooseSkinnyShape(int64_t tokens, int64_t rows, int32_t multiprocessors) {
  const int64_t tiles = (rows + 15) / 16;
  const int64_t tiles_per_sm = (tiles + multiprocessors - 1) / multiprocessors;
  if (tokens > 16 || (tokens > 8 && tiles_per_sm > 3)) return -1;
  if (tokens > 8) return tiles_per_sm <= 2 ? 3 : 4;
  return tiles_per_sm <= 2 ? 0 : tiles_per_sm == 3 ? 1 : 2;
}

}  // namespace millrace

#endif  // KERNELS_TILE_SKINNY_SHAPES_H_
