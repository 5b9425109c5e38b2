// Copies of boxes of a tensor to and from shared memory (sm_90). `map` is a __grid_constant__
// parameter, `to` is aligned to 128 bytes (1024 where the map swizzles 128-byte rows), and
// `barrier` counts the bytes of the whole box, also where part of it lies outside the tensor and is
// filled with zeros.
#ifndef KERNELS_PTX_TMA_CUH_
#define KERNELS_PTX_TMA_CUH_

#include <cuda.h>

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace millrace {

__device__ __forceinline__ void PrefetchMap(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// A policy of L2: what comes with it is the first to go again, so that it displaces nothing else.
__device__ __forceinline__ uint64_t EvictFirst() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// The box at (x, y) into L2 alone.
__device__ __forceinline__ void PrefetchBox2(const CUtensorMap& map, int x, int y) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(&map),
               "r"(x), "r"(y)
               : "memory");
}

// The box at (x, y), x the innermost coordinate, with a policy of L2.
__device__ __forceinline__ void LoadBox2(void* to, const CUtensorMap& map, uint64_t* barrier,
                                         int2 at, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(SharedAddress(barrier)), "r"(at.x), "r"(at.y), "l"(policy)
      : "memory");
}

// The box at (x, y), x the innermost coordinate. x times the size of an element is a multiple of 16
// bytes, or the instruction is refused.
__device__ __forceinline__ void LoadBox2(void* to, const CUtensorMap& map, uint64_t* barrier, int x,
                                         int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(SharedAddress(barrier)), "r"(x), "r"(y)
      : "memory");
}

// The box at (x, y, z).
__device__ __forceinline__ void LoadBox3(void* to, const CUtensorMap& map, uint64_t* barrier, int x,
                                         int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(SharedAddress(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

// The box at (x, y, z, w).
__device__ __forceinline__ void LoadBox4(void* to, const CUtensorMap& map, uint64_t* barrier,
                                         int4 at) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(SharedAddress(barrier)), "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.w)
      : "memory");
}

// The box at (0, y, 0, z, w).
__device__ __forceinline__ void LoadBox5(void* to, const CUtensorMap& map, uint64_t* barrier,
                                         int3 at) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %3, %5, %6}], [%2];" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(SharedAddress(barrier)), "r"(0), "r"(at.x), "r"(at.y), "r"(at.z)
      : "memory");
}

// From shared memory into the tensor; what lies outside it is not written. Before it, whoever wrote
// `from` calls FenceSharedForAsync(), and a barrier tells this thread. Stores of one thread between
// two StoreCommit() form a group.
__device__ __forceinline__ void StoreBox2(const CUtensorMap& map, const void* from, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
          &map),
      "r"(SharedAddress(from)), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void StoreCommit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until the shared memory of this thread's groups may be written again.
__device__ __forceinline__ void StoreWaitRead() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Until this thread's groups are written.
__device__ __forceinline__ void StoreWait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace millrace

#endif  // KERNELS_PTX_TMA_CUH_
