#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_device_impl.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/fp8_gemm/fp8_gemm_impl.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/fp8_gemm/product_args.h"

namespace millrace {
namespace {

absl::Status RunFew(const OpContext& ctx, const Fp8GemmArgs& args, int32_t multiprocessors) {
  const int64_t want = Fp8GemmFlagCount(multiprocessors);
  if (args.flags.dim(0) < want) {
    return absl::InvalidArgumentError(
        absl::StrCat("Fp8Gemm: flags.dim(0) = ", args.flags.dim(0), ", want ", want));
  }
  const Fp8GemmKernelArgs kernel_args = Fp8GemmProductArgs(args);
  WorkspaceScope scope(ctx.workspace);
  ASSIGN_OR_RETURN(void* const parts,
                   scope.Take(Fp8GemmPartFloats(kernel_args.tokens, multiprocessors) * 4));
  const Fp8GemmSplit split = {.parts = static_cast<float*>(parts),
                              .ready = args.flags.as<int32_t>()};
  return CudaStatus(LaunchFp8GemmFew(kernel_args, split, multiprocessors, ToCuda(ctx.stream)),
                    "Fp8Gemm");
}

}  // namespace

absl::Status Fp8GemmCudaBy(Fp8GemmKernel kernel, const OpContext& ctx, const Fp8GemmArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;
  if (args.x.dim(0) > kMax || args.x.dim(1) > kMax || args.weight.dim(0) > kMax) {
    return absl::UnimplementedError("Fp8Gemm: a dimension above 2^30 on cuda");
  }
  const int32_t multiprocessors = CudaDevice::Of(ctx.device).multiprocessors();
  const cudaStream_t stream = ToCuda(ctx.stream);
  switch (kernel) {
    case Fp8GemmKernel::kSplit:
      return CudaStatus(
          LaunchFp8GemmSplit(Fp8GemmProductArgs(args), CutFp8Gemm(args, multiprocessors), stream),
          "Fp8Gemm");
    case Fp8GemmKernel::kM64:
      return CudaStatus(
          LaunchFp8GemmM64(Fp8GemmProductArgs(args), GroupFp8Gemm(args, multiprocessors), stream),
          "Fp8Gemm");
    case Fp8GemmKernel::kFew:
      return RunFew(ctx, args, multiprocessors);
    case Fp8GemmKernel::kRing:
      return CudaStatus(LaunchFp8GemmRing(Fp8GemmProductArgs(args), multiprocessors, stream),
                        "Fp8Gemm");
    case Fp8GemmKernel::kSkinny:
      return CudaStatus(LaunchFp8GemmSkinny(Fp8GemmProductArgs(args), multiprocessors, stream),
                        "Fp8Gemm");
    case Fp8GemmKernel::kTiles:
      return CudaStatus(
          LaunchFp8GemmTiles(Fp8GemmProductArgs(args), CutFp8GemmTiles(args, multiprocessors),
                             multiprocessors, stream),
          "Fp8Gemm");
    case Fp8GemmKernel::kMma:
      return CudaStatus(LaunchFp8GemmMma(Fp8GemmProductArgs(args), stream), "Fp8Gemm");
    case Fp8GemmKernel::kGeneric:
      break;
  }
  return CudaStatus(LaunchFp8GemmGeneric(Fp8GemmProductArgs(args), stream), "Fp8Gemm");
}

absl::Status Fp8GemmCuda(const OpContext& ctx, const Fp8GemmArgs& args) {
  const int32_t compute_capability = CudaDevice::Of(ctx.device).compute_capability();
  return Fp8GemmCudaBy(ChooseFp8Gemm(args, compute_capability), ctx, args);
}

int64_t Fp8GemmCudaWorkspaceBytes(int32_t multiprocessors) {
  return Fp8GemmPartFloats(kFp8GemmFewTokens, multiprocessors) * 4;
}
int64_t Fp8GemmCudaFlags(int32_t multiprocessors) { return Fp8GemmFlagCount(multiprocessors); }

}  // namespace millrace
