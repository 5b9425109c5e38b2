// Copies from global to shared memory that a thread starts and later waits for (sm_80).
#ifndef KERNELS_PTX_COPY_ASYNC_CUH_
#define KERNELS_PTX_COPY_ASYNC_CUH_

#include "kernels/ptx/mbarrier.cuh"

namespace millrace {

// 16 bytes, or zeros where not `inside`; both 16-byte aligned. `from` is not read unless `inside`.
__device__ __forceinline__ void CopyAsync(void* to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(to)), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}

// Ends this thread's present group of copies; an empty group is complete at once.
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until at most kPending of this thread's groups are under way. Other threads see the bytes after a
// barrier.
template <int kPending>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace millrace

#endif  // KERNELS_PTX_COPY_ASYNC_CUH_
