// A bf16 cache, as decode reads it.
//
// Each lane reads 16 bytes of a key at a time and uses them as four operand registers: step p of S
// pairs element 32 p + 8 t + i of a key with the same element of the query. For V^T the pairs of
// two keys' values are interleaved by byte permutation.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_BF16_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_BF16_CUH_

#include "kernels/paged_attention/paged_attention_kernel_decode_traits.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"

namespace millrace::decode {

// Chunks of 16 keys, as they came from memory.
template <typename T>
struct Bf16Chunk {
  static constexpr int kRow = T::kDim * 2;             // bytes
  static constexpr int kHalves = (T::kDim + 63) / 64;  // 16-byte loads of a lane along a value;
                                                       // 96 half fills the second
  static_assert(T::kPieces == 1);

  uint4 k[2][T::kSteps];  // keys g and g + 8
  uint4 v[4][kHalves];    // keys 2t, 2t + 1, 2t + 8, 2t + 9

  // From the first of 16 rows to what this lane reads.
  static __device__ __forceinline__ int KeyOffset(Lane lane) { return lane.g * kRow + 16 * lane.t; }
  static __device__ __forceinline__ int ValueOffset(Lane lane) {
    return 2 * lane.t * kRow + 16 * lane.g;
  }

  __device__ __forceinline__ void LoadKeys(const char* from, int, Lane) {
#pragma unroll
    for (int i = 0; i < T::kSteps; ++i) {
      k[0][i] = LoadStream(from + 64 * i);
      k[1][i] = LoadStream(from + 8 * kRow + 64 * i);
    }
  }

  __device__ __forceinline__ void LoadValues(const char* from, int, Lane lane) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const bool inside = T::kDim % 64 == 0 || 64 * h + 8 * lane.g < T::kDim;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const char* row = from + (i % 2 + i / 2 * 8) * kRow + 128 * h;
        v[i][h] = inside ? LoadStream(row) : uint4{};
      }
    }
  }

  // Value 2t + i % 2 + i / 2 * 8 becomes 0.
  __device__ __forceinline__ void ClearValue(int, int i) {
#pragma unroll
    for (auto& words : v[i]) words = {};
  }

  // Element of a query from which on the lane's eight of step p lie.
  static __device__ __forceinline__ int QueryColumn(int p, Lane lane) {
    return 32 * p + 8 * lane.t;
  }
  static __device__ __forceinline__ uint4 Query(uint4 bf16) { return bf16; }

  // Step p of the scores of 8 rows.
  __device__ __forceinline__ void Score(int, int p, uint4 q, float (&s)[4]) const {
    const uint4 k0 = k[0][p], k1 = k[1][p];
    MmaBf16(s, k0.x, k1.x, k0.y, k1.y, q.x, q.y);
    MmaBf16(s, k0.z, k1.z, k0.w, k1.w, q.z, q.w);
  }

  static __device__ __forceinline__ uint32_t Pack(float low, float high) {
    return PackBf16(low, high);
  }

  // O^T += V^T P^T, with the weights of each tile as b0, b1.
  __device__ __forceinline__ void AddValues(int, const uint32_t (&p)[T::kTiles][2],
                                            float (&o)[T::kTiles][4 * kHalves][4]) const {
#pragma unroll
    for (int i = 0; i < 4 * kHalves; ++i) {
      const uint32_t x0 = Word(0, i), x1 = Word(1, i), y0 = Word(2, i), y1 = Word(3, i);
      const uint32_t a0 = __byte_perm(x0, x1, 0x5410), a1 = __byte_perm(x0, x1, 0x7632);
      const uint32_t a2 = __byte_perm(y0, y1, 0x5410), a3 = __byte_perm(y0, y1, 0x7632);
#pragma unroll
      for (int n = 0; n < T::kTiles; ++n) MmaBf16(o[n][i], a0, a1, a2, a3, p[n][0], p[n][1]);
    }
  }

  static constexpr int kResults = 4 * kHalves;
  // Output element of result i in row g of the instruction; row g + 8 is the one after.
  static __device__ __forceinline__ int Column(int i, Lane lane) {
    return 64 * (i / 4) + 8 * lane.g + 2 * (i % 4);
  }

 private:
  __device__ __forceinline__ uint32_t Word(int key, int i) const {
    return reinterpret_cast<const uint32_t*>(&v[key][i / 4])[i % 4];
  }
};

struct Bf16Cache {
  template <typename T>
  using Chunk = Bf16Chunk<T>;
  static constexpr int kBytes = 2;     // of an element
  static constexpr int kHeadroom = 0;  // weights are near 1: they keep their precision anyway
  static constexpr int Pieces(int, int, bool) { return 1; }
};

}  // namespace millrace::decode

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_BF16_CUH_
