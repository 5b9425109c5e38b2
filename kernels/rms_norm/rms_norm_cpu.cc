#include <algorithm>

#include "kernels/cpu/thread_pool.h"
#include "kernels/rms_norm/rms_norm_impl.h"

namespace millrace {
namespace {

// Elements that are worth another thread: about 2 us of work.
constexpr int64_t kElementsPerTask = 8192;

const RmsNormKernels& KernelsFor(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512:
      return kRmsNormAvx512;
    case CpuIsa::kAvx2:
      return kRmsNormAvx2;
    case CpuIsa::kScalar:
      break;
  }
  return kRmsNormScalar;
}

}  // namespace

absl::Status RmsNormCpu(const OpContext& ctx, const RmsNormArgs& args) {
  ThreadPool& pool = *ctx.device.thread_pool();
  const auto norm = KernelsFor(pool.isa()).norm[args.x.dtype == DType::kBF16]
                                               [args.weight.dtype == DType::kBF16];
  const int64_t width = args.x.dim(1);
  pool.ParallelFor(args.x.dim(0), std::max<int64_t>(1, kElementsPerTask / width),
                   [&](int64_t begin, int64_t end, int) {
                     RmsNormTokens tokens = {.x = args.x.Rows(begin, end).data,
                                             .x_stride = args.x.stride(0),
                                             .weight = args.weight.data,
                                             .y = args.y.Rows(begin, end).data,
                                             .y_stride = args.y.stride(0),
                                             .tokens = end - begin,
                                             .width = width,
                                             .eps = args.eps};
                     if (args.residual) {
                       tokens.residual = args.residual->Rows(begin, end).data;
                       tokens.residual_stride = args.residual->stride(0);
                     }
                     norm(tokens);
                   });
  return absl::OkStatus();
}

}  // namespace millrace
