#include <cstdint>
#include <limits>

#include "kernels/core/rows_aligned.h"
#include "kernels/fp8_gemm/fp8_gemm_impl.h"

namespace millrace {
namespace {

// Most tokens that the kernels for few take.
constexpr int64_t kFewTokens = 128;
// Most tokens that those for fewer take, and of these with scales of blocks kSplit: there a thread
// of kM64 has fewer scales to multiply.
constexpr int64_t kFewerTokens = 64;
constexpr int64_t kSplitTokensOfBlocks = 32;
constexpr int64_t kSkinnyTokens = 8;

// With scales of blocks, kRing is the faster one where each of its warps has some of K and all
// multiprocessors have outputs. Where K is long kSplit is by itself as fast or a little faster, but
// not among a layer's other kernels (few_tokens.md).
bool RingSuitsBlocks(const TensorView& weight) {
  return weight.dim(0) >= 4096 && weight.dim(1) >= 2048;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One block an SM: more would keep the next kernel's from starting beside this one's.
int64_t MostBlocks(int32_t multiprocessors) { return multiprocessors + multiprocessors / 16; }
constexpr int64_t kLeastDepth = 4;  // blocks of inputs of a split
constexpr int32_t kMostSplits = 8;
// Not 4 or 8: a cluster lies within a part of the GPU that has up to 18 multiprocessors, and those
// of 4 leave two of them over, so that others have two of its blocks (few_tokens.md).
constexpr int32_t kGroupSplits[] = {1, 2, 3, 6};
constexpr int32_t kMostWideSplits = 2;

}  // namespace

Fp8GemmKernel ChooseFp8Gemm(const Fp8GemmArgs& args, int32_t compute_capability) {
  const bool rows_fit = args.x.dim(1) > 0 && RowsAligned(args.x) && RowsAligned(args.weight);
  if (compute_capability < 80 || !rows_fit) return Fp8GemmKernel::kGeneric;
  const bool blocks = args.scales == Fp8GemmScales::kBlocks;
  const bool wgmma = compute_capability == 90 && (!blocks || RowsAligned(args.x_scale));
  const bool skinny = args.x.dim(0) <= kSkinnyTokens && args.x.dim(1) % kFp8GemmBlock == 0;
  if (wgmma && skinny && (!blocks || RingSuitsBlocks(args.weight))) return Fp8GemmKernel::kRing;
  if (compute_capability >= 89 && skinny && !wgmma) return Fp8GemmKernel::kSkinny;
  if (!wgmma) return Fp8GemmKernel::kMma;
  if (args.x.dim(0) <= kFewerTokens) {
    const bool m64 = blocks && args.x.dim(0) > kSplitTokensOfBlocks;
    return m64 ? Fp8GemmKernel::kM64 : Fp8GemmKernel::kSplit;
  }
  return args.x.dim(0) <= kFewTokens ? Fp8GemmKernel::kFew : Fp8GemmKernel::kTiles;
}

Fp8GemmCut CutFp8Gemm(const Fp8GemmArgs& args, int32_t multiprocessors) {
  const int64_t most_blocks = MostBlocks(multiprocessors);
  const int64_t outputs = args.weight.dim(0), depth = CeilDiv(args.x.dim(1), kFp8GemmBlock);
  const auto split = [&](int64_t tiles) {
    int32_t splits = 1;
    while (splits < kMostSplits && 2 * splits * tiles <= most_blocks &&
           2 * splits * kLeastDepth <= depth) {
      splits *= 2;
    }
    return splits;
  };
  const int64_t wide_tiles = CeilDiv(outputs, 128), narrow_tiles = CeilDiv(outputs, 64);
  Fp8GemmCut cut = {.narrow = false, .splits = split(wide_tiles)};
  // Tiles of half the width need half the splits. That is worth it where there are many sums to
  // add up, or many inputs a block, though not with ever more of these (few_tokens.md).
  const int64_t wide_depth = depth / cut.splits;
  if (narrow_tiles <= most_blocks && wide_depth < 32 && (args.x.dim(0) > 16 || wide_depth >= 12)) {
    cut = {.narrow = true, .splits = split(narrow_tiles)};
  }
  return cut;
}

Fp8GemmGroups GroupFp8Gemm(const Fp8GemmArgs& args, int32_t multiprocessors) {
  const int64_t outputs = args.weight.dim(0), depth = CeilDiv(args.x.dim(1), kFp8GemmBlock);
  const int64_t most_blocks = MostBlocks(multiprocessors);
  Fp8GemmGroups best;
  // Wide tiles read x half as often, but where more than two blocks have to share one, their sums
  // take longer to add up than that saves; so do those of two where a block has few inputs of a
  // narrow tile to itself (few_tokens.md).
  const bool narrow_fits = CeilDiv(outputs, 64) <= most_blocks && depth < 32;
  best.wide = 2 * CeilDiv(outputs, 128) >= multiprocessors / 4 * 3 && !narrow_fits;
  const int64_t tiles = CeilDiv(outputs, best.wide ? 128 : 64);
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int32_t splits : kGroupSplits) {
    if (splits > 1 && (splits * kLeastDepth > depth || splits > most_blocks)) break;
    if (splits > kMostWideSplits && best.wide) break;
    // The fewest tiles a group with which the groups are one round.
    int64_t own = 0;
    while (CeilDiv(tiles, own * splits + 1) * splits > most_blocks) ++own;
    // Stages of a block; storing a tile takes as long as one, adding up as two.
    const int64_t cost = own * (depth + 1) + CeilDiv(depth, splits) + (splits > 1 ? 2 : 0);
    if (cost >= least) continue;
    least = cost;
    best.splits = splits;
    best.own = static_cast<int32_t>(own);
    best.groups = static_cast<int32_t>(CeilDiv(tiles, own * splits + 1));
  }
  return best;
}

}  // namespace millrace
