// Loads of global memory.
#ifndef KERNELS_PTX_LOAD_CUH_
#define KERNELS_PTX_LOAD_CUH_

#include <cstdint>

namespace millrace {

// 16 bytes of memory that nobody writes while the kernel runs; 16-byte aligned. Skips L1 and asks
// for whole 128-byte lines, for streams that are read once.
__device__ __forceinline__ uint4 LoadStream(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

// 1, 2 or 4 words, likewise, aligned to their size.
template <int kWords>
__device__ __forceinline__ void LoadStreamWords(const void* from, uint32_t* to) {
  static_assert(kWords == 1 || kWords == 2 || kWords == 4);
  if constexpr (kWords == 4) {
    const uint4 v = LoadStream(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else if constexpr (kWords == 2) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "l"(from));
  } else {
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(to[0]) : "l"(from));
  }
}

// 16 bytes, 16-byte aligned, by a load that the compiler leaves where it stands: hoisted to the top
// of an unrolled loop, such loads would take the registers that streamed data needs. Stays after
// WaitForPriorGrid(); says nothing of the kernel's own stores.
__device__ __forceinline__ uint4 LoadInPlace(const void* from) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

// One float, likewise.
__device__ __forceinline__ float LoadInPlace(const float* from) {
  float v;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(from));
  return v;
}

}  // namespace millrace

#endif  // KERNELS_PTX_LOAD_CUH_
