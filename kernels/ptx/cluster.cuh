// Clusters (sm_90): blocks that see each other's shared memory. The same object has the same offset
// in every block of a cluster that runs one kernel.
#ifndef KERNELS_PTX_CLUSTER_CUH_
#define KERNELS_PTX_CLUSTER_CUH_

namespace millrace {

// Every thread of every block of the cluster. Orders what each wrote to shared memory before.
__device__ __forceinline__ void ClusterSync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

}  // namespace millrace

#endif  // KERNELS_PTX_CLUSTER_CUH_
