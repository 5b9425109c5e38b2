// What all_reduce_kernel.cu and all_reduce_cuda.cc both see.
#ifndef KERNELS_ALL_REDUCE_ALL_REDUCE_KERNEL_H_
#define KERNELS_ALL_REDUCE_ALL_REDUCE_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/all_reduce/packet.h"

namespace millrace {

// One rank's, zero before the first call.
struct AllReduceState {
  uint32_t flag;     // of the last call
  uint32_t done;     // blocks of the running call that have ended
  uint32_t stopped;  // not 0: nobody waits any more
};

// As AllReduceRmsNormArgs. Strides in elements.
struct AllReduceKernelArgs {
  static constexpr int kMaxRanks = 8;

  const void* x = nullptr;
  void* residual = nullptr;
  const void* weight = nullptr;
  void* y = nullptr;
  int64_t x_stride = 0;
  int64_t residual_stride = 0;
  int64_t y_stride = 0;
  int32_t tokens = 0;
  int32_t size = 0;  // a multiple of 4, at most 16384
  float eps = 0;
  int32_t rank = 0;
  int32_t ranks = 0;
  int64_t max_packets = 0;
  AllReducePacket* inboxes[kMaxRanks] = {};
  AllReduceState* state = nullptr;
};
static_assert(std::is_trivially_copyable_v<AllReduceKernelArgs>);

// `max_blocks`: that are certain to run at the same time: one a multiprocessor.
cudaError_t LaunchAllReduceRmsNorm(const AllReduceKernelArgs& args, int max_blocks,
                                   cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_ALL_REDUCE_ALL_REDUCE_KERNEL_H_
