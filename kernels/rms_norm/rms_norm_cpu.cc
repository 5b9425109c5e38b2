#include <algorithm>

#include "kernels/cpu/isa_choice.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/rms_norm/rms_norm_impl.h"

namespace millrace {
namespace {

// Elements that are worth another thread: a few microseconds of work.
constexpr int64_t kElementsPerTask = 16384;

const RmsNormKernels& KernelsFor(CpuIsa isa) {
  return ForIsa(isa, kRmsNormScalar, kRmsNormAvx2, kRmsNormAvx512);
}

}  // namespace

absl::Status RmsNormCpu(const OpContext& ctx, const RmsNormArgs& args) {
  ThreadPool& pool = *ctx.device.thread_pool();
  const auto kernel =
      KernelsFor(pool.isa())[args.x.dtype == DType::kBF16][args.weight.dtype == DType::kBF16];
  const int64_t size = args.x.dim(1);
  pool.ParallelFor(
      args.x.dim(0), std::max<int64_t>(1, kElementsPerTask / size),
      [&](int64_t begin, int64_t end, int) {
        kernel({.x = args.x.Rows(begin, end).data,
                .residual = args.residual ? args.residual->Rows(begin, end).data : nullptr,
                .weight = args.weight.data,
                .y = args.y.Rows(begin, end).data,
                .x_stride = args.x.stride(0),
                .residual_stride = args.residual ? args.residual->stride(0) : 0,
                .y_stride = args.y.stride(0),
                .rows = end - begin,
                .size = size,
                .eps = args.eps});
      });
  return absl::OkStatus();
}

}  // namespace millrace
