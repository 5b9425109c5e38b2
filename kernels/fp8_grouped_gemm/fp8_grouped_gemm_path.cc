#include <cstdint>

#include "kernels/core/rows_aligned.h"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_impl.h"

namespace millrace {
namespace {

// Most rows a group that the kernel for few is expected to be faster for.
constexpr int64_t kFewRows = 64;

// Whether one matrix of all groups' rows has every group's weight.
bool GroupsInRows(const TensorView& weight) {
  return weight.dim(0) <= 1 || (weight.stride(1) > 0 && weight.stride(0) % weight.stride(1) == 0 &&
                                weight.stride(0) >= weight.dim(1) * weight.stride(1));
}

}  // namespace

TensorView GroupOf(TensorView all, int64_t group) {
  all.data = static_cast<char*>(all.data) + group * all.stride(0) * DTypeBytes(all.dtype);
  all.rank = 2;
  all.dims = {all.dim(1), all.dim(2)};
  all.strides = {all.stride(1), all.stride(2)};
  return all;
}

int64_t ExpectedRows(const Fp8GroupedGemmArgs& args) {
  return args.expected_rows > 0 ? args.expected_rows : args.x.dim(0) / args.weight.dim(0);
}

Fp8GroupedGemmKernel ChooseFp8GroupedGemm(const Fp8GroupedGemmArgs& args,
                                          int32_t compute_capability) {
  const bool fits = args.x.dim(1) > 0 && RowsAligned(args.x) && RowsAligned(args.weight) &&
                    RowsAligned(args.x_scale) && GroupsInRows(args.weight);
  if (compute_capability != 90 || !fits) return Fp8GroupedGemmKernel::kGeneric;
  return ExpectedRows(args) <= kFewRows ? Fp8GroupedGemmKernel::kFew : Fp8GroupedGemmKernel::kTiles;
}

}  // namespace millrace
