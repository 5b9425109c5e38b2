#include <algorithm>

#include "kernels/cpu/isa_choice.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/rope/rope_impl.h"

namespace millrace {
namespace {

// Elements that are worth another thread: about 2 us of work.
constexpr int64_t kElementsPerTask = 16384;

const RopeKernels& KernelsFor(CpuIsa isa) {
  return ForIsa(isa, kRopeScalar, kRopeAvx2, kRopeAvx512);
}

}  // namespace

absl::Status RopeCpu(const OpContext& ctx, const RopeArgs& args) {
  ThreadPool& pool = *ctx.device.thread_pool();
  const RopeKernels& kernels = KernelsFor(pool.isa());
  const auto rotate = args.x.dtype == DType::kF32 ? kernels.rotate_f32 : kernels.rotate_bf16;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / (args.x.dim(1) * args.x.dim(2)));
  pool.ParallelFor(args.x.dim(0), grain, [&](int64_t begin, int64_t end, int) {
    rotate({.x = args.x.Rows(begin, end).data,
            .token_stride = args.x.stride(0),
            .head_stride = args.x.stride(1),
            .positions = args.positions.as<int32_t>() + begin,
            .inv_freq = args.inv_freq.as<float>(),
            .tokens = end - begin,
            .heads = static_cast<int32_t>(args.x.dim(1)),
            .dim = static_cast<int32_t>(args.x.dim(2))});
  });
  return absl::OkStatus();
}

}  // namespace millrace
