// Moving registers between the warpgroups of a block (sm_90a). Every warp of the warpgroup calls
// it; the kernel needs __launch_bounds__(threads, 1), and each role is one branch of a single if.
#ifndef KERNELS_PTX_REGISTERS_CUH_
#define KERNELS_PTX_REGISTERS_CUH_

namespace millrace {

// Lowers the registers of each thread to kCount, a multiple of 8 from 24 to 256.
template <int kCount>
__device__ __forceinline__ void ReleaseRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Raises them to kCount once enough were released.
template <int kCount>
__device__ __forceinline__ void ClaimRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

}  // namespace millrace

#endif  // KERNELS_PTX_REGISTERS_CUH_
