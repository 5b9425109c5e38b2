// Warpgroup matrix products (sm_90a): ordering and descriptors. The products themselves are in
// wgmma_bf16.cuh, one struct a width.
//
// A run of products: WgmmaFence(), products, WgmmaCommit(); their results, and the registers and
// shared memory they read, are free after WgmmaWait().
//
// Keep products and their wait within one iteration of a loop, and write the registers of A only
// after the wait in program order: where the weights of the next iteration were packed into other
// variables before a wait at the loop's head, nvcc 13.0 gave them the registers that products in
// flight still read (seen in SASS, and as wrong results that changed from run to run).
#ifndef KERNELS_PTX_WGMMA_CUH_
#define KERNELS_PTX_WGMMA_CUH_

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace millrace {

// Orders earlier accesses of the registers that the next products read or write.
__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Closes the group of products issued since the last one.
__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending groups, the newest, are unfinished.
template <int kPending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving reads and writes of registers across a wait: it takes a product's
// result for ready as soon as the product is issued.
template <typename T, int kCount>
__device__ __forceinline__ void WgmmaHold(T (&registers)[kCount]) {
  static_assert(sizeof(T) == 4);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (__is_same(T, float)) {
      asm volatile("" : "+f"(registers[i])::"memory");
    } else {
      asm volatile("" : "+r"(registers[i])::"memory");
    }
  }
}

// Names a matrix in shared memory whose 128-byte rows were swizzled by the copy engine
// (CU_TENSOR_MAP_SWIZZLE_128B), starting at a multiple of 1024 bytes. Eight rows make an atom of
// 1024 bytes.
//   K contiguous: rows run along M or N, an atom holds 64 elements of K of 16 bits; step along K by
//     adding bytes within the row (WgmmaAdvance). atom_stride: from eight rows to the next eight.
//   N contiguous (transposed B): rows run along K, an atom holds 64 elements of N.
//     atom_stride: from eight rows of K to the next; slab_stride: from 64 elements of N to the
//     next.
__device__ __forceinline__ uint64_t WgmmaMatrix128(const void* from, uint32_t atom_stride,
                                                   uint32_t slab_stride) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  const uint64_t start = (SharedAddress(from) & 0x3ffff) >> 4;
  return kSwizzle128 | uint64_t{atom_stride >> 4} << 32 | uint64_t{slab_stride >> 4} << 16 | start;
}

// The same matrix `bytes` (a multiple of 16) further on. Adds to the low word only, where the
// address is: no carry leaves its field.
__device__ __forceinline__ uint64_t WgmmaAdvance(uint64_t matrix, uint32_t bytes) {
  const uint32_t low = static_cast<uint32_t>(matrix) + (bytes >> 4);
  return (matrix & 0xffffffff00000000) | low;
}

}  // namespace millrace

#endif  // KERNELS_PTX_WGMMA_CUH_
