// Blocks of a cluster that work on one row: barrier, each other's shared memory, bulk copies into
// one's own. On architectures before sm_90 a cluster is one block.
#ifndef KERNELS_SAMPLE_SAMPLE_KERNEL_CLUSTER_CUH_
#define KERNELS_SAMPLE_SAMPLE_KERNEL_CLUSTER_CUH_

#include <cstdint>

namespace millrace {

struct Cluster {
  uint32_t rank = 0;
  uint32_t size = 1;
};

__device__ __forceinline__ Cluster ThisCluster() {
  Cluster c;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(c.rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(c.size));
#endif
  return c;
}

// All threads of all blocks; what was written to any shared memory before can be read after.
__device__ __forceinline__ void Sync(const Cluster& cluster) {
#if __CUDA_ARCH__ >= 900
  if (cluster.size > 1) {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    return;
  }
#endif
  __syncthreads();
}

// In two halves: nobody may write the shared memory of a block that has not begun to run. All
// threads; no Sync between the two.
__device__ __forceinline__ void SayEntered(const Cluster& cluster) {
#if __CUDA_ARCH__ >= 900
  if (cluster.size > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void WaitUntilAllEntered(const Cluster& cluster) {
#if __CUDA_ARCH__ >= 900
  if (cluster.size > 1) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// The address, in the block `rank`, of what lies at `p` in this one.
__device__ __forceinline__ uint32_t RemoteAddress(const void* p, uint32_t rank) {
  uint32_t address = SharedAddress(p);
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(address), "r"(rank));
#endif
  return address;
}

__device__ __forceinline__ void StoreRemote(uint32_t address, uint4 v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x),
               "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
#else
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
#endif
}

__device__ __forceinline__ void StoreRemote64(uint32_t address, uint64_t v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(address), "l"(v) : "memory");
#else
  asm volatile("st.shared.u64 [%0], %1;" ::"r"(address), "l"(v) : "memory");
#endif
}

// Makes barriers usable by bulk copies; call after the last InitBarrier.
__device__ __forceinline__ void InitBarrier(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(SharedAddress(barrier)) : "memory");
}

__device__ __forceinline__ void PublishBarriers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Starts a copy into this block's shared memory, a multiple of 16 bytes, both sides aligned to 16.
// The barrier completes when the bytes have arrived.
__device__ __forceinline__ void StartBulkCopy(void* to, const void* from, uint32_t bytes,
                                              uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
               "r"(bytes)
               : "memory");
  if (bytes == 0) return;
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(to)),
      "l"(from), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
#endif
}

__device__ __forceinline__ void WaitBarrier(uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared.b64 p, [%1], 0;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(SharedAddress(barrier))
        : "memory");
  }
#endif
}

}  // namespace millrace

#endif  // KERNELS_SAMPLE_SAMPLE_KERNEL_CLUSTER_CUH_
