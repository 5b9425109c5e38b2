#include <algorithm>

#include "kernels/cpu/thread_pool.h"
#include "kernels/swiglu/swiglu_impl.h"

namespace millrace {
namespace {

// Elements that are worth another thread: about 2 us of work.
constexpr int64_t kElementsPerTask = 2048;

const SwigluKernels& KernelsFor(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512:
      return kSwigluAvx512;
    case CpuIsa::kAvx2:
      return kSwigluAvx2;
    case CpuIsa::kScalar:
      break;
  }
  return kSwigluScalar;
}

template <typename T>
void Run(ThreadPool& pool, const SwigluArgs& args,
         void (*kernel)(const T*, const T*, int64_t, T*)) {
  const int64_t width = args.out.dim(1);
  pool.ParallelFor(args.out.dim(0), std::max<int64_t>(1, kElementsPerTask / width),
                   [&](int64_t begin, int64_t end, int) {
                     for (int64_t t = begin; t < end; ++t) {
                       const T* gate = args.gate_up.as<T>() + t * args.gate_up.stride(0);
                       kernel(gate, gate + width, width,
                              args.out.as<T>() + t * args.out.stride(0));
                     }
                   });
}

}  // namespace

absl::Status SwigluCpu(const OpContext& ctx, const SwigluArgs& args) {
  ThreadPool& pool = *ctx.device.thread_pool();
  const SwigluKernels& kernels = KernelsFor(pool.isa());
  if (args.out.dtype == DType::kF32) {
    Run<float>(pool, args, kernels.f32);
  } else {
    Run<BFloat16>(pool, args, kernels.bf16);
  }
  return absl::OkStatus();
}

}  // namespace millrace
