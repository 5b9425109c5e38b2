// Copies of boxes of a tensor into shared memory (sm_90). `map` is a __grid_constant__ parameter,
// `to` is aligned to 128 bytes (1024 where the map swizzles 128-byte rows), and `barrier` counts
// the bytes of the whole box, also where part of it lies outside the tensor and is filled with
// zeros.
#ifndef KERNELS_PTX_TMA_CUH_
#define KERNELS_PTX_TMA_CUH_

#include <cuda.h>

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace millrace {

__device__ __forceinline__ void PrefetchMap(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The box at (x, y, z), x the innermost coordinate.
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

}  // namespace millrace

#endif  // KERNELS_PTX_TMA_CUH_
