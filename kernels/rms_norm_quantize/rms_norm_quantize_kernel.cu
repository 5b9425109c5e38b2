// One block a token: RmsNorm's row in registers, and from there the codes. Bound by memory.
#include "kernels/ptx/launch.cuh"
#include "kernels/quantize/encode.cuh"
#include "kernels/rms_norm/norm_row.cuh"
#include "kernels/rms_norm_quantize/rms_norm_quantize_kernel.h"

namespace millrace {
namespace {

template <int kWords>
using Traits = NormTraits<__nv_bfloat16, __nv_bfloat16, kCodeWidth, kWords>;

template <RowUnit kUnit, int kWords, bool kResidual>
__global__ void __launch_bounds__(kNormThreads, Traits<kWords>::kBlocks)
    RmsNormQuantizeRow(const __grid_constant__ RmsNormQuantizeKernelArgs args) {
  auto* const y = static_cast<__nv_bfloat16*>(args.norm.y) + blockIdx.x * args.norm.y_stride;
  Vec<__nv_bfloat16, kCodeWidth> words[kWords] = {};
  NormalizeKept<Traits<kWords>, kResidual>(args.norm, [&](int n, int i, const auto& word) {
    words[n] = word;
    if (args.norm.y != nullptr) StoreVec(y + i, word);
  });
  StoreRow<kUnit>(args.out, blockIdx.x, Traits<kWords>::Step(), words);
}

using Kernel = void (*)(RmsNormQuantizeKernelArgs);

template <RowUnit kUnit, int kWords>
Kernel Choose(bool residual) {
  return residual ? RmsNormQuantizeRow<kUnit, kWords, true>
                  : RmsNormQuantizeRow<kUnit, kWords, false>;
}

template <RowUnit kUnit>
Kernel Choose(int size, bool residual) {
  constexpr int kWord = kNormThreads * kCodeWidth;  // of all threads
  if (size <= kWord) return Choose<kUnit, 1>(residual);
  if (size <= 2 * kWord) return Choose<kUnit, 2>(residual);
  static_assert(kRmsNormQuantizeKept == 4 * kWord);
  return Choose<kUnit, 4>(residual);
}

Kernel Choose(RowUnit unit, int size, bool residual) {
  switch (unit) {
    case RowUnit::kGroup:
      return Choose<RowUnit::kGroup>(size, residual);
    case RowUnit::kToken:
      return Choose<RowUnit::kToken>(size, residual);
    case RowUnit::kGiven:
      break;
  }
  return Choose<RowUnit::kGiven>(size, residual);
}

}  // namespace

cudaError_t LaunchRmsNormQuantize(RowUnit unit, const RmsNormQuantizeKernelArgs& args,
                                  cudaStream_t stream) {
  const int threads = NormBlockThreads(args.norm.size, kCodeWidth);
  return Launch(Choose(unit, args.norm.size, args.norm.residual != nullptr),
                {.grid = dim3(static_cast<unsigned>(args.norm.tokens)),
                 .block = dim3(static_cast<unsigned>(threads))},
                stream, args);
}

}  // namespace millrace
