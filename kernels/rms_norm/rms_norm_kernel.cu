// Grid: one block a token. The row is read once into registers (up to kWords words a thread; what
// is longer is read again from L2), its squares are summed over the block, and it is written
// scaled. Blocks in row order and many to a multiprocessor keep the memory busy: persistent blocks
// that load a row ahead, and rings of bulk copies, were 5 to 10 % slower.
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/rms_norm/norm_row.cuh"
#include "kernels/rms_norm/rms_norm_kernel.h"

namespace millrace {
namespace {

template <typename Traits, bool kResidual>
__global__ void __launch_bounds__(kNormThreads, Traits::kBlocks)
    RmsNormRow(const __grid_constant__ RmsNormKernelArgs args) {
  const NormRow<Traits, kResidual> row(args);
  if constexpr (Traits::kWords == 0) {
    const int first = static_cast<int>(threadIdx.x) * Traits::kWidth;
    WaitForPriorGrid();
    StartNextGrid();
    const float sum = row.SumFrom(first, Traits::Step());
    row.StoreFrom(first, Traits::Step(), NormScale(args, sum));
  } else {
    NormalizeKept<Traits, kResidual>(
        args, [&](int, int i, const auto& word) { StoreVec(row.y + i, word); });
  }
}

struct Choice {
  void (*plain)(RmsNormKernelArgs);
  void (*with_residual)(RmsNormKernelArgs);
  int width;  // elements a word
};

template <typename Traits>
constexpr Choice kChoice = {RmsNormRow<Traits, false>, RmsNormRow<Traits, true>, Traits::kWidth};

Choice Choose(RmsNormVariant variant, int size) {
  using Bf16 = __nv_bfloat16;
  switch (variant) {
    case RmsNormVariant::kF32:
      return kChoice<NormTraits<float, float, 1, 0>>;
    case RmsNormVariant::kF32Bf16:
      return kChoice<NormTraits<float, Bf16, 1, 0>>;
    case RmsNormVariant::kBf16F32:
      return kChoice<NormTraits<Bf16, float, 1, 0>>;
    case RmsNormVariant::kBf16:
      return kChoice<NormTraits<Bf16, Bf16, 1, 0>>;
    case RmsNormVariant::kBf16Vector:
      break;
  }
  const int words = (size + kNormThreads * 8 - 1) / (kNormThreads * 8);
  if (words <= 1) return kChoice<NormTraits<Bf16, Bf16, 8, 1>>;
  if (words <= 2) return kChoice<NormTraits<Bf16, Bf16, 8, 2>>;
  if (words <= 4) return kChoice<NormTraits<Bf16, Bf16, 8, 4>>;
  return kChoice<NormTraits<Bf16, Bf16, 8, 0>>;
}

}  // namespace

cudaError_t LaunchRmsNorm(RmsNormVariant variant, const RmsNormKernelArgs& args,
                          cudaStream_t stream) {
  const Choice choice = Choose(variant, args.size);
  const int threads = NormBlockThreads(args.size, choice.width);
  return Launch(args.residual == nullptr ? choice.plain : choice.with_residual,
                {.grid = dim3(static_cast<unsigned>(args.tokens)),
                 .block = dim3(static_cast<unsigned>(threads))},
                stream, args);
}

}  // namespace millrace
