#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_impl.h"

namespace millrace {
namespace {

// Most tokens that the kernel for few takes.
constexpr int64_t kFewTokens = 128;

bool RowsOn16Bytes(const TensorView& t) {
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 &&
         (t.dim(0) <= 1 || t.stride(0) * DTypeBytes(t.dtype) % 16 == 0);
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Fp8GemmKernel ChooseFp8Gemm(const Fp8GemmArgs& args, int32_t compute_capability) {
  const bool blocks = args.scales == Fp8GemmScales::kBlocks;
  const bool fits = args.x.dim(1) > 0 && RowsOn16Bytes(args.x) && RowsOn16Bytes(args.weight) &&
                    (!blocks || RowsOn16Bytes(args.x_scale));
  if (compute_capability != 90 || !fits) return Fp8GemmKernel::kGeneric;
  return args.x.dim(0) <= kFewTokens ? Fp8GemmKernel::kFew : Fp8GemmKernel::kTiles;
}

bool Fp8GemmTakesNarrowTiles(int64_t tokens, int64_t outputs, int32_t multiprocessors) {
  const auto columns = [&](int64_t width) {
    const int64_t tiles = CeilDiv(tokens, 256) * CeilDiv(outputs, width);  // of two blocks
    return CeilDiv(tiles, multiprocessors / 2) * width;
  };
  // Narrow tiles read more of shared memory for a product: 136 bytes a cycle instead of 144 of two
  // waves, but 40 instead of 32 from L2.
  return columns(192) * 103 < columns(256) * 100;
}

}  // namespace millrace
