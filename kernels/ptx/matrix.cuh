// Four matrices of 8 rows x 16 bytes between the registers of a warp and shared memory: lane l
// names row l % 8 of matrix l / 8 (16-byte aligned), and has bytes 4 (l % 4) to + 3 of row l / 4 of
// each.
#ifndef KERNELS_PTX_MATRIX_CUH_
#define KERNELS_PTX_MATRIX_CUH_

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace millrace {

__device__ __forceinline__ void LoadMatrices(const void* row, uint32_t (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// Each matrix, of 16-bit elements, transposed on the way.
__device__ __forceinline__ void LoadMatricesTransposed(const void* row, uint32_t (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// sm_90.
__device__ __forceinline__ void StoreMatrix4(void* row, uint4 m) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(SharedAddress(row)),
      "r"(m.x), "r"(m.y), "r"(m.z), "r"(m.w)
      : "memory");
}

}  // namespace millrace

#endif  // KERNELS_PTX_MATRIX_CUH_
