// The two kinds of cache that the decode of few sequences reads: how a chunk lies in shared memory
// and how it meets queries and weights. See paged_attention_kernel_few.cuh.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_FEW_CACHE_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_FEW_CACHE_CUH_

#include <cstdint>

#include "kernels/ptx/fp8.cuh"
#include "kernels/ptx/matrix.cuh"
#include "kernels/ptx/mma.cuh"

namespace millrace::few {

constexpr int kChunk = 16;  // keys
constexpr int kDim = 128;
constexpr int kRows = 8;
constexpr int kSteps = kDim / 32;    // of eight query elements of a lane
constexpr int kResults = kDim / 16;  // pairs of 8 output elements

// Lane 4 g + t.
struct Lane {
  int g, t;
};

// The key of a chunk that stands for index i < 8 of the matrix instructions (and 8 more for 8
// more). Neighbours lie 4 rows apart: their halves of 128 bytes, swizzled, are in different banks.
__device__ __forceinline__ int KeyOf(int i) { return (i >> 1) | (i & 1) << 2; }

// Where 16 bytes of a row lie: rows of 128 bytes, swizzled; what is longer follows in a second box.
__device__ __forceinline__ int Offset(int row, int sixteen) {
  return sixteen / 8 * (kChunk * 128) + row * 128 + ((sixteen % 8) ^ (row % 8)) * 16;
}

__device__ __forceinline__ uint4 LoadKey(const unsigned char* k, int row, int sixteen) {
  return *reinterpret_cast<const uint4*>(k + Offset(row, sixteen));
}

// Keys 2t and 2t + 1, and 8 more, of elements (of two bytes) g of 16 bytes, and of the next.
__device__ __forceinline__ void LoadValues(const unsigned char* v, int lane, int n,
                                           uint32_t (&a)[4]) {
  const int row = KeyOf(lane % 8) + lane / 16 * 8;
  LoadMatricesTransposed(v + Offset(row, 2 * n + lane / 8 % 2), a);
}

// What a member does is the same for both:
// QueryColumn: the first of the eight query elements that step p takes.
// Score: S^T += K Q^T of a chunk; what a product sums over may come in any order.
// AddValues: O^T += V^T P^T, `p0` and `p1` weights as Pack() makes them, turned.
// Column: the output element of o[n][0] and [1]; [2] and [3] have the one kApart later.
struct Bf16Cache {
  static constexpr int kBytes = kChunk * kDim * 2;  // of a chunk's keys
  static constexpr int kDepth = 1;                  // chunks of a warp on their way
  static constexpr int kAtOnce = 1;
  static constexpr float kHeadroom = 0;
  static constexpr int kApart = 8;

  static __device__ __forceinline__ int QueryColumn(int p, Lane lane) {
    return 32 * p + 8 * lane.t;
  }
  static __device__ __forceinline__ uint4 Query(uint4 bf16) { return bf16; }

  static __device__ __forceinline__ void Score(const unsigned char* k, Lane lane,
                                               const uint4 (&q)[kSteps], float (&s)[4]) {
    const int row = KeyOf(lane.g);
    float odd[4] = {};
#pragma unroll
    for (int p = 0; p < kSteps; ++p) {
      const uint4 k0 = LoadKey(k, row, 4 * p + lane.t);
      const uint4 k1 = LoadKey(k, row + 8, 4 * p + lane.t);
      MmaBf16(s, k0.x, k1.x, k0.y, k1.y, q[p].x, q[p].y);
      MmaBf16(odd, k0.z, k1.z, k0.w, k1.w, q[p].z, q[p].w);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) s[i] += odd[i];
  }

  static __device__ __forceinline__ uint32_t Pack(float low, float high) {
    return PackBf16(low, high);
  }

  static __device__ __forceinline__ void AddValues(const unsigned char* v, int lane, uint32_t p0,
                                                   uint32_t p1, float (&o)[kResults][4]) {
#pragma unroll
    for (int n = 0; n < kResults; ++n) {
      uint32_t a[4];
      LoadValues(v, lane, n, a);
      MmaBf16(o[n], a[0], a[1], a[2], a[3], p0, p1);
    }
  }

  static __device__ __forceinline__ int Column(int n, int g) { return 16 * n + g; }
};

// E4M3, products in f16 (README.md, "FP8 cache").
struct Fp8Cache {
  static constexpr int kBytes = kChunk * kDim;
  static constexpr int kDepth = 2;
  static constexpr int kAtOnce = 2;
  // f16 loses precision below 2^-14, so a row's largest weight is kept at 2^7 or more.
  static constexpr float kHeadroom = 7;
  static constexpr int kApart = 16;

  static __device__ __forceinline__ int QueryColumn(int p, Lane lane) {
    return p / 2 * 64 + 16 * lane.t + p % 2 * 8;
  }
  static __device__ __forceinline__ uint4 Query(uint4 bf16) {
    return {Bf16ToF16(bf16.x), Bf16ToF16(bf16.y), Bf16ToF16(bf16.z), Bf16ToF16(bf16.w)};
  }

  static __device__ __forceinline__ void Score(const unsigned char* k, Lane lane,
                                               const uint4 (&q)[kSteps], float (&s)[4]) {
    const int row = KeyOf(lane.g);
    float odd[4] = {};
#pragma unroll
    for (int p = 0; p < kSteps / 2; ++p) {
      const uint4 k0 = LoadKey(k, row, 4 * p + lane.t);
      const uint4 k1 = LoadKey(k, row + 8, 4 * p + lane.t);
      const uint4 first = q[2 * p], second = q[2 * p + 1];
      Multiply(k0.x, k1.x, first.x, first.y, s);
      Multiply(k0.y, k1.y, first.z, first.w, odd);
      Multiply(k0.z, k1.z, second.x, second.y, s);
      Multiply(k0.w, k1.w, second.z, second.w, odd);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) s[i] += odd[i];
  }

  static __device__ __forceinline__ uint32_t Pack(float low, float high) {
    return PackF16(low, high);
  }

  // Two codes of each of two keys a register: their bytes are interleaved, then widened.
  static __device__ __forceinline__ void AddValues(const unsigned char* v, int lane, uint32_t p0,
                                                   uint32_t p1, float (&o)[kResults][4]) {
#pragma unroll
    for (int n = 0; n < kResults / 2; ++n) {
      uint32_t a[4];
      LoadValues(v, lane, n, a);
#pragma unroll
      for (uint32_t& codes : a) codes = __byte_perm(codes, 0, 0x3120);
      MmaF16(o[2 * n], WidenE4M3Pair(a[0]), WidenE4M3Pair(a[1]), WidenE4M3Pair(a[2]),
             WidenE4M3Pair(a[3]), p0, p1);
#pragma unroll
      for (uint32_t& codes : a) codes >>= 16;
      MmaF16(o[2 * n + 1], WidenE4M3Pair(a[0]), WidenE4M3Pair(a[1]), WidenE4M3Pair(a[2]),
             WidenE4M3Pair(a[3]), p0, p1);
    }
  }

  static __device__ __forceinline__ int Column(int n, int g) { return n / 2 * 32 + 2 * g + n % 2; }

 private:
  // Four codes of keys g and g + 8 with the same four elements of the query.
  static __device__ __forceinline__ void Multiply(uint32_t low, uint32_t high, uint32_t b0,
                                                  uint32_t b1, float (&s)[4]) {
    MmaF16(s, WidenE4M3Pair(low), WidenE4M3Pair(high), WidenE4M3Pair(low >> 16),
           WidenE4M3Pair(high >> 16), b0, b1);
  }
};

}  // namespace millrace::few

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_FEW_CACHE_CUH_
