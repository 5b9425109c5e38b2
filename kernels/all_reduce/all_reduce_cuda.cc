#include <cstddef>

#include "kernels/all_reduce/all_reduce_impl.h"
#include "kernels/all_reduce/all_reduce_kernel.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_device_impl.h"
#include "kernels/cuda/cuda_status.h"

namespace millrace {
namespace {

static_assert(kAllReduceMaxRanks == AllReduceKernelArgs::kMaxRanks);
static_assert(sizeof(AllReduceState) <= kAllReduceStateBytes);
static_assert(offsetof(AllReduceState, stopped) == kAllReduceStopOffset);

}  // namespace

absl::Status AllReduceRmsNormCuda(const OpContext& ctx, const AllReduceRmsNormArgs& args) {
  AllReduceKernelArgs kernel_args = {
      .x = args.x.data,
      .residual = args.residual.data,
      .weight = args.weight.data,
      .y = args.y.data,
      .x_stride = args.x.stride(0),
      .residual_stride = args.residual.stride(0),
      .y_stride = args.y.stride(0),
      .tokens = static_cast<int32_t>(args.x.dim(0)),  // below max_bytes, which memory bounds
      .size = static_cast<int32_t>(args.x.dim(1)),
      .eps = args.eps,
      .rank = args.peers.rank,
      .ranks = args.peers.size,
      .max_packets = PacketsOf(args.peers.max_bytes),
      .state = static_cast<AllReduceState*>(args.peers.state)};
  for (int r = 0; r < args.peers.size; ++r) {
    kernel_args.inboxes[r] =
        static_cast<AllReducePacket*>(args.peers.inboxes[static_cast<size_t>(r)]);
  }
  const int blocks = CudaDevice::Of(ctx.device).multiprocessors();
  return CudaStatus(LaunchAllReduceRmsNorm(kernel_args, blocks, ToCuda(ctx.stream)),
                    "AllReduceRmsNorm");
}

}  // namespace millrace
