// Blocks of a cluster and their shared memory (sm_90 and later; elsewhere a cluster is one block).
#ifndef KERNELS_PTX_CLUSTER_CUH_
#define KERNELS_PTX_CLUSTER_CUH_

#include <cstdint>

namespace millrace {

// Says that this thread's writes so far, to shared memory of any block of the cluster, are done.
__device__ __forceinline__ void ArriveAtCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

// Returns when every thread of the cluster has arrived; what they wrote before can be read.
__device__ __forceinline__ void WaitForCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Where block `rank` of the cluster keeps what this block keeps at `shared`, its shared memory. That
// block must have started (a barrier of the cluster says so) and must not end before the access.
template <typename T>
__device__ __forceinline__ T* InPeer(T* shared, uint32_t rank) {
#if __CUDA_ARCH__ >= 900
  uint64_t peer;
  asm volatile("mapa.u64 %0, %1, %2;"
               : "=l"(peer)
               : "l"(reinterpret_cast<uint64_t>(shared)), "r"(rank));
  return reinterpret_cast<T*>(peer);
#else
  return shared;
#endif
}

}  // namespace millrace

#endif  // KERNELS_PTX_CLUSTER_CUH_
