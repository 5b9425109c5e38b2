#include <algorithm>

#include "kernels/cpu/isa_choice.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/swiglu/swiglu_impl.h"

namespace millrace {
namespace {

// Outputs that are worth another thread: a few microseconds of work.
constexpr int64_t kOutputsPerTask = 4096;

const SwigluKernels& KernelsFor(CpuIsa isa) {
  return ForIsa(isa, kSwigluScalar, kSwigluAvx2, kSwigluAvx512);
}

}  // namespace

absl::Status SwigluCpu(const OpContext& ctx, const SwigluArgs& args) {
  ThreadPool& pool = *ctx.device.thread_pool();
  const auto kernel = KernelsFor(pool.isa())[args.x.dtype == DType::kBF16];
  const int64_t size = args.y.dim(1);
  pool.ParallelFor(args.x.dim(0), std::max<int64_t>(1, kOutputsPerTask / size),
                   [&](int64_t begin, int64_t end, int) {
                     kernel({.x = args.x.Rows(begin, end).data,
                             .y = args.y.Rows(begin, end).data,
                             .x_stride = args.x.stride(0),
                             .y_stride = args.y.stride(0),
                             .rows = end - begin,
                             .size = size,
                             .block = SwigluBlock(args),
                             .limit = SwigluLimit(args)});
                   });
  return absl::OkStatus();
}

}  // namespace millrace
