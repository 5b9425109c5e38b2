#include <algorithm>

#include "kernels/core/status.h"
#include "kernels/cpu/isa_choice.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/kv_append/slots.h"
#include "kernels/rope_append/rope_append_impl.h"

namespace millrace {
namespace {

// Elements that are worth another thread: about 2 us of work.
constexpr int64_t kElementsPerTask = 16384;

const RopeAppendKernels& KernelsFor(CpuIsa isa) {
  return ForIsa(isa, kRopeAppendScalar, kRopeAppendAvx2, kRopeAppendAvx512);
}

}  // namespace

absl::Status RopeAppendCpu(const OpContext& ctx, const RopeAppendArgs& args) {
  RETURN_IF_ERROR(CheckSlots("RopeAppend", args.slots, args.k_cache));
  ThreadPool& pool = *ctx.device.thread_pool();
  const DType cache = args.k_cache.dtype;
  const int to = cache == DType::kF32 ? 0 : cache == DType::kBF16 ? 1 : 2;
  const auto kernel = KernelsFor(pool.isa())[args.q.dtype == DType::kBF16][to];
  const RopeAppendTokens tokens = TokensOf(args);
  const int64_t elements = (args.q.dim(1) + 2 * args.k.dim(1)) * args.q.dim(2);
  pool.ParallelFor(args.q.dim(0), std::max<int64_t>(1, kElementsPerTask / elements),
                   [&](int64_t begin, int64_t end, int) { kernel(tokens, begin, end); });
  return absl::OkStatus();
}

}  // namespace millrace
