#include <algorithm>
#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_impl.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 128;  // of a tile
constexpr int64_t kWide = 256, kNarrow = 192, kRest = 128;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Cycles of a tile, measured on an H200 (tiles.md).
int64_t Cycles(int64_t width, int64_t depth) {
  constexpr int64_t kEnd = 1300;
  const int64_t stage = width == kWide ? 1095 : width == kNarrow ? 825 : 580;
  return depth * stage + kEnd;
}

// Between tiles of two widths: the last wide tile is stored before the first narrow one begins.
constexpr int64_t kChange = 1000;

struct Product {
  int64_t rows;  // of tiles
  int64_t outputs, depth, multiprocessors;

  int64_t CyclesOf(int64_t width) const {
    const int64_t tiles = rows * CeilDiv(outputs, width);
    return CeilDiv(tiles, multiprocessors) * Cycles(width, depth);
  }

  // Of `rounds` of the wider tiles, and tiles of 128 for the columns that then are left.
  int64_t CyclesOf(const Fp8GemmTileCut& cut, int64_t rounds) const {
    const auto rest = [&](int64_t wide) { return CeilDiv(outputs - wide * cut.mixed, kRest); };
    const int64_t tiles = cut.turn * rest(cut.wide[0]) + (rows - cut.turn) * rest(cut.wide[1]);
    return rounds * Cycles(cut.mixed, depth) +
           CeilDiv(tiles, multiprocessors) * Cycles(kRest, depth) + kChange;
  }
};

// `rounds` of tiles of `width`, where rows of tiles can have together so many.
void TryMix(const Product& product, int64_t width, int64_t rounds, Fp8GemmTileCut& best,
            int64_t& least) {
  constexpr int64_t kMostApart = 3;  // of wide tiles, between rows above and below the turn
  const int64_t tiles = rounds * product.multiprocessors;
  const int64_t mean = tiles / product.rows;
  for (int64_t below = mean; below >= std::max<int64_t>(0, mean - kMostApart); --below) {
    for (int64_t apart = 1; apart <= kMostApart; ++apart) {
      const int64_t above = below + apart, more = tiles - product.rows * below;
      const int64_t turn = more / apart;
      if (more % apart != 0 || turn > product.rows || above * width > product.outputs) continue;
      const Fp8GemmTileCut cut = {
          .narrow = best.narrow,
          .mixed = static_cast<int32_t>(width),
          .turn = static_cast<int32_t>(turn),
          .wide = {static_cast<int32_t>(above), static_cast<int32_t>(below)}};
      const int64_t cycles = product.CyclesOf(cut, rounds);
      if (cycles >= least) continue;
      least = cycles;
      best = cut;
    }
  }
}

}  // namespace

Fp8GemmTileCut CutFp8GemmTiles(const Fp8GemmArgs& args, int32_t multiprocessors) {
  const Product product = {.rows = CeilDiv(args.x.dim(0), kRows),
                           .outputs = args.weight.dim(0),
                           .depth = CeilDiv(args.x.dim(1), kFp8GemmBlock),
                           .multiprocessors = multiprocessors};
  Fp8GemmTileCut best = {.narrow = product.CyclesOf(kNarrow) < product.CyclesOf(kWide)};
  int64_t least = product.CyclesOf(best.narrow ? kNarrow : kWide);
  // Tiles of 128 keep the tensor cores less busy, so they are for the last round or two.
  for (int64_t width : {kWide, kNarrow}) {
    const int64_t rounds = product.rows * (product.outputs / width) / multiprocessors;
    for (int64_t i = std::max<int64_t>(1, rounds - 1); i <= rounds; ++i) {
      TryMix(product, width, i, best, least);
    }
  }
  return best;
}

}  // namespace millrace
