// Copies of plain bytes from shared to global memory by the copy engine (sm_90).
#ifndef KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_KERNEL_BULK_CUH_
#define KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_KERNEL_BULK_CUH_

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace millrace {

// `bytes` of them, a multiple of 16, both ends aligned to 16. As StoreBox2 in kernels/ptx/tma.cuh
// otherwise, whose StoreCommit() ends a group of these too.
__device__ __forceinline__ void StoreBytes(void* to, const void* from, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(SharedAddress(from)), "r"(bytes)
               : "memory");
#endif
}

__device__ __forceinline__ void CommitBytes() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}

// Until the shared memory of all of this thread's groups but the last kGroups may be written again.
template <int kGroups>
__device__ __forceinline__ void WaitBytesRead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
#endif
}

// Until all of this thread's groups are written.
__device__ __forceinline__ void WaitBytesWritten() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

// Orders this thread's ordinary writes of shared memory before the copy engine's reads.
__device__ __forceinline__ void FenceBytes() {
#if __CUDA_ARCH__ >= 900
  FenceSharedForAsync();
#endif
}

}  // namespace millrace

#endif  // KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_KERNEL_BULK_CUH_
