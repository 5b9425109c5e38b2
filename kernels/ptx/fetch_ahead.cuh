// Loads of rows that are read in pieces, of which a warp asks for a few bytes a row: memory that is
// asked for 256 bytes at once gives more than for 64 or 128.
#ifndef KERNELS_PTX_FETCH_AHEAD_CUH_
#define KERNELS_PTX_FETCH_AHEAD_CUH_

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace millrace {

// As LoadStream(), but the 256 bytes around come to L2.
__device__ __forceinline__ uint4 LoadStreamAhead(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

// As CopyAsync(), likewise.
__device__ __forceinline__ void CopyAsyncAhead(void* to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(SharedAddress(to)),
               "l"(from), "r"(inside ? 16 : 0)
               : "memory");
}

}  // namespace millrace

#endif  // KERNELS_PTX_FETCH_AHEAD_CUH_
