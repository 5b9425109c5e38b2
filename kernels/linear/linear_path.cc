#include <cstdint>

#include "kernels/linear/linear_impl.h"
#include "kernels/tile/skinny_shapes.h"

namespace millrace {
namespace {

bool RowsOn16Bytes(const TensorView& t) {
  const int64_t bytes = DTypeBytes(t.dtype);
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 &&
         (t.dim(0) <= 1 || t.stride(0) * bytes % 16 == 0);
}

}  // namespace

LinearCudaPath ChooseLinearCuda(const LinearArgs& args, int32_t multiprocessors) {
  constexpr LinearCudaPath kGeneric = {};
  const bool same = args.x.dtype == args.weight.dtype;
  const bool bf16 = same && args.x.dtype == DType::kBF16;
  const int64_t inputs = args.x.dim(1);
  if (!same || inputs % 8 != 0 || inputs == 0) return kGeneric;
  if (!RowsOn16Bytes(args.x) || !RowsOn16Bytes(args.weight)) return kGeneric;
  const int shape = bf16 && inputs % kSkinnyPiece == 0
                        ? ChooseSkinnyShape(args.x.dim(0), args.weight.dim(0), multiprocessors)
                        : -1;
  if (shape >= 0) return {.kernel = LinearCudaKernel::kSkinny, .shape = shape};
  const bool bias_fits = !args.bias || args.bias->dtype == args.y.dtype;
  const bool y_fits = bf16 || args.y.dtype == DType::kF32;
  if (!bias_fits || !y_fits || !RowsOn16Bytes(args.y)) return kGeneric;
  return {.kernel = LinearCudaKernel::kCublas};
}

}  // namespace millrace
