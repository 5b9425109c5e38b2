// Programmatic dependent launch: a kernel starts while the one before it still runs. The rule that
// keeps this correct is in README.md.
#ifndef KERNELS_PTX_PDL_CUH_
#define KERNELS_PTX_PDL_CUH_

namespace millrace {

// Returns when the grid launched before this one has ended and its writes can be read. At once
// where the kernel was launched without Launch().
__device__ __forceinline__ void WaitForPriorGrid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next grid of the stream start once every block has called this or ended.
__device__ __forceinline__ void StartNextGrid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace millrace

#endif  // KERNELS_PTX_PDL_CUH_
