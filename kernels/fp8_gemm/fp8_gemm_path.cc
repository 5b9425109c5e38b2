#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_impl.h"

namespace millrace {
namespace {

// Most tokens that the kernels for few take.
constexpr int64_t kFewTokens = 128;
constexpr int64_t kSkinnyTokens = 8;

bool RowsOn16Bytes(const TensorView& t) {
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 &&
         (t.dim(0) <= 1 || t.stride(0) * DTypeBytes(t.dtype) % 16 == 0);
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Fp8GemmKernel ChooseFp8Gemm(const Fp8GemmArgs& args, int32_t compute_capability) {
  const bool rows_fit = args.x.dim(1) > 0 && RowsOn16Bytes(args.x) && RowsOn16Bytes(args.weight);
  if (compute_capability < 80 || !rows_fit) return Fp8GemmKernel::kGeneric;
  const bool skinny = args.x.dim(0) <= kSkinnyTokens && args.x.dim(1) % kFp8GemmBlock == 0;
  if (compute_capability >= 89 && skinny) return Fp8GemmKernel::kSkinny;
  const bool scales_fit = args.scales != Fp8GemmScales::kBlocks || RowsOn16Bytes(args.x_scale);
  if (compute_capability != 90 || !scales_fit) return Fp8GemmKernel::kMma;
  return args.x.dim(0) <= kFewTokens ? Fp8GemmKernel::kFew : Fp8GemmKernel::kTiles;
}

bool Fp8GemmTakesNarrowTiles(const Fp8GemmArgs& args, int32_t multiprocessors) {
  const auto columns = [&](int64_t width) {
    // Of the two blocks of a cluster.
    const int64_t tiles = CeilDiv(args.x.dim(0), 256) * CeilDiv(args.weight.dim(0), width);
    return CeilDiv(tiles, multiprocessors / 2) * width;
  };
  // Measured (README.md), a column of a narrow tile costs 0.92 of a wide one's at 512 inputs, 1.00
  // to 1.10 from 1536 on.
  const int64_t percent = args.x.dim(1) <= 512 ? 92 : 104;
  return columns(192) * percent < columns(256) * 100;
}

}  // namespace millrace
