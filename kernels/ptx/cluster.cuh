// Clusters (sm_90): what their blocks send each other, without a fence
// (kernels/fp8_gemm/few_tokens.md has what one costs). The same object has the same offset in the
// shared memory of each.
#ifndef KERNELS_PTX_CLUSTER_CUH_
#define KERNELS_PTX_CLUSTER_CUH_

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace millrace {

// Every thread of every block of the cluster. Orders nothing but barriers that were initialised
// before FenceBarrierInit().
__device__ __forceinline__ void ClusterMeet() {
  asm volatile(
      "barrier.cluster.arrive.relaxed.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// Where the block `rank` has what this one has `at`.
__device__ __forceinline__ uint32_t RemoteAddress(const void* at, int rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(SharedAddress(at)), "r"(rank));
  return remote;
}

// Arrives at the barrier of the block `rank`, which may be this one.
__device__ __forceinline__ void ArriveRemote(uint64_t* barrier, int rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(RemoteAddress(barrier, rank))
               : "memory");
}

// 16 bytes into the block `rank`, whose barrier counts them.
__device__ __forceinline__ void SendRemote(float4* to, const float4& v, uint64_t* barrier,
                                           int rank) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, "
      "[%1];" ::"r"(RemoteAddress(to, rank)),
      "r"(RemoteAddress(barrier, rank)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
      : "memory");
}

}  // namespace millrace

#endif  // KERNELS_PTX_CLUSTER_CUH_
