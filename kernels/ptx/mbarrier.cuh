// Barriers in shared memory (sm_90): a phase is complete when every expected thread has arrived and
// every byte announced has been written by bulk copies. The parity of the first phase is 0.
#ifndef KERNELS_PTX_MBARRIER_CUH_
#define KERNELS_PTX_MBARRIER_CUH_

#include <cstdint>

namespace millrace {

// A pointer to shared memory as the 32-bit address that instructions take.
__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// One thread, before any other use; then FenceBarrierInit() and a barrier of the block.
__device__ __forceinline__ void InitBarrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
               "r"(arrivals)
               : "memory");
}

// Makes initialised barriers visible to the copy engine and to the cluster.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void Arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}

// Arrives and announces `bytes` that copies will bring in this phase.
__device__ __forceinline__ void ArriveExpect(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}

// Whether the phase of this parity is complete, after a wait bounded by the hardware.
__device__ __forceinline__ bool TryWait(uint64_t* barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(SharedAddress(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

// Whether it is complete now.
__device__ __forceinline__ bool TestWait(uint64_t* barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(SharedAddress(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

// Returns when the phase of this parity is complete.
__device__ __forceinline__ void Wait(uint64_t* barrier, uint32_t parity) {
  while (!TryWait(barrier, parity)) {
  }
}

// Orders this thread's ordinary writes of shared memory before later reads by the copy engine and
// by wgmma (once a barrier tells their issuer).
__device__ __forceinline__ void FenceSharedForAsync() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Barrier `id` (1 to 15; 0 is __syncthreads) among `threads` threads, a multiple of 32. Sync waits
// for the others, Arrive does not.
__device__ __forceinline__ void NamedSync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void NamedArrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace millrace

#endif  // KERNELS_PTX_MBARRIER_CUH_
