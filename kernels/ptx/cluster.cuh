// Clusters (sm_90): blocks that see each other's shared memory. The same object has the same offset
// in every block of a cluster that runs one kernel.
#ifndef KERNELS_PTX_CLUSTER_CUH_
#define KERNELS_PTX_CLUSTER_CUH_

#include <cuda.h>

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace millrace {

// Every thread of every block of the cluster. Orders what each wrote to shared memory before.
__device__ __forceinline__ void ClusterSync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// Arrives at the barrier of block `rank` of the cluster that lies where `barrier` does here. Tells
// it that this thread's reads are done; its writes it does not publish to another block (that would
// cost a fence of the whole GPU each time).
__device__ __forceinline__ void ArriveAt(uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(SharedAddress(barrier)),
      "r"(rank)
      : "memory");
}

// The box at (x, y) into every block of `blocks` (one bit a rank), at the same place in each; the
// barrier at the place of `barrier` in each block counts its copy.
__device__ __forceinline__ void LoadBox2Multicast(void* to, const CUtensorMap& map,
                                                  uint64_t* barrier, int2 at, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(SharedAddress(barrier)), "r"(at.x), "r"(at.y), "h"(blocks)
      : "memory");
}

}  // namespace millrace

#endif  // KERNELS_PTX_CLUSTER_CUH_
