#include <cstdint>

#include "kernels/core/rows_aligned.h"
#include "kernels/linear/linear_impl.h"
#include "kernels/tile/skinny_shapes.h"

namespace millrace {
namespace {

// Where the streaming kernel's reads of x begin to show and cuBLASLt's tiles fill the card evenly.
// Measured at 28672 rows on an H200 (README.md).
bool GemmIsFaster(int64_t tokens, int64_t rows, int32_t multiprocessors) {
  const int64_t tiles_per_sm = (rows + 15) / 16 / multiprocessors;
  return tokens > 4 && tiles_per_sm >= 12 && tiles_per_sm < 32;
}

}  // namespace

LinearCudaPath ChooseLinearCuda(const LinearArgs& args, int32_t multiprocessors) {
  constexpr LinearCudaPath kGeneric = {};
  const bool same = args.x.dtype == args.weight.dtype;
  const bool bf16 = same && args.x.dtype == DType::kBF16;
  const int64_t inputs = args.x.dim(1);
  if (!same || inputs % 8 != 0 || inputs == 0) return kGeneric;
  if (!RowsAligned(args.x) || !RowsAligned(args.weight)) return kGeneric;
  const int64_t tokens = args.x.dim(0), rows = args.weight.dim(0);
  const int shape =
      bf16 && inputs % kSkinnyPiece == 0 && !GemmIsFaster(tokens, rows, multiprocessors)
          ? ChooseSkinnyShape(tokens, rows, multiprocessors)
          : -1;
  if (shape >= 0) return {.kernel = LinearCudaKernel::kSkinny, .shape = shape};
  const bool bias_fits = !args.bias || args.bias->dtype == args.y.dtype;
  const bool y_fits = bf16 || args.y.dtype == DType::kF32;
  if (!bias_fits || !y_fits || !RowsAligned(args.y)) return kGeneric;
  return {.kernel = LinearCudaKernel::kCublas};
}

}  // namespace millrace
