// A cache of E4M3 codes, as decode reads it: half the bytes of bf16, and the products in f16, to
// which one instruction turns two codes exactly.
//
// Of a key a lane reads 16 bytes at a time, elements 64 p + 16 t and on (8 t and on of the last 32
// of 96), and each word of four codes makes operands of one instruction, against the same four
// elements of the query. Of a value it reads elements 16 g and on (8 g or 4 g where a row is
// shorter); the bytes of two keys are interleaved before they are widened. The scales of the head
// join the softmax's and the division at the end.
//
// A lane of 32 keys of 128: 8 KiB a warp, as in bf16, in 64 registers. For each 16 keys 64
// conversions, 16 permutations and 16 products: some 200 issue slots of the 960 that the memory
// leaves a multiprocessor for as many bytes.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_FP8_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_FP8_CUH_

#include "kernels/paged_attention/paged_attention_kernel_decode_traits.cuh"
#include "kernels/ptx/fp8.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"

namespace millrace::decode {

template <typename T>
struct Fp8Chunk {
  static constexpr int kRow = T::kDim;            // bytes
  static constexpr int kKeyWords = T::kDim / 16;  // of a lane
  static constexpr int kValueWords = T::kDim / 32;
  static constexpr int kWide = T::kDim / 64;  // loads of 16 bytes along a key
  static constexpr bool kHasRest = T::kDim % 64 != 0;
  static constexpr int kResults = 2 * kValueWords;

  uint32_t k[T::kPieces][2][kKeyWords];    // keys g and g + 8 of a piece
  uint32_t v[T::kPieces][4][kValueWords];  // keys 2t, 2t + 1, 2t + 8, 2t + 9

  static __device__ __forceinline__ int KeyOffset(Lane lane) { return lane.g * kRow + 16 * lane.t; }
  static __device__ __forceinline__ int ValueOffset(Lane lane) {
    return 2 * lane.t * kRow + kValueBytes * lane.g;
  }

  __device__ __forceinline__ void LoadKeys(const char* from, int piece, Lane lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t(&words)[kKeyWords] = k[piece][half];
      const char* row = from + half * 8 * kRow;
#pragma unroll
      for (int p = 0; p < kWide; ++p) LoadStreamWords<4>(row + 64 * p, words + 4 * p);
      if constexpr (kHasRest) {
        LoadStreamWords<2>(row + 64 * kWide - 8 * lane.t, words + 4 * kWide);
      }
    }
  }

  __device__ __forceinline__ void LoadValues(const char* from, int piece, Lane lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t(&words)[kValueWords] = v[piece][i];
      const char* row = from + (i % 2 + i / 2 * 8) * kRow;
#pragma unroll
      for (int w = 0; w + kFirst <= kValueWords; w += kFirst) {
        LoadStreamWords<kFirst>(row + 32 * w, words + w);
      }
      // 96: the words at 4 g behind those at 8 g.
      if constexpr (kHasRest) LoadStreamWords<1>(row + 64 - 4 * lane.g, words + 2);
    }
  }

  __device__ __forceinline__ void ClearValue(int piece, int i) {
#pragma unroll
    for (uint32_t& word : v[piece][i]) word = 0;
  }

  static __device__ __forceinline__ int QueryColumn(int p, Lane lane) {
    return p < 2 * kWide ? p / 2 * 64 + 16 * lane.t + p % 2 * 8 : 64 * kWide + 8 * lane.t;
  }
  static __device__ __forceinline__ uint4 Query(uint4 bf16) {
    return {Bf16ToF16(bf16.x), Bf16ToF16(bf16.y), Bf16ToF16(bf16.z), Bf16ToF16(bf16.w)};
  }

  __device__ __forceinline__ void Score(int piece, int p, uint4 q, float (&s)[4]) const {
    const uint32_t(&low)[kKeyWords] = k[piece][0], (&high)[kKeyWords] = k[piece][1];
    Multiply(low[2 * p], high[2 * p], q.x, q.y, s);
    Multiply(low[2 * p + 1], high[2 * p + 1], q.z, q.w, s);
  }

  static __device__ __forceinline__ uint32_t Pack(float low, float high) {
    return PackF16(low, high);
  }

  __device__ __forceinline__ void AddValues(int piece, const uint32_t (&p)[T::kTiles][2],
                                            float (&o)[T::kTiles][kResults][4]) const {
    const uint32_t(&words)[4][kValueWords] = v[piece];
#pragma unroll
    for (int w = 0; w < kValueWords; ++w) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int order = half == 0 ? 0x5140 : 0x7362;
        const uint32_t x = __byte_perm(words[0][w], words[1][w], order);
        const uint32_t y = __byte_perm(words[2][w], words[3][w], order);
        const uint32_t a0 = WidenE4M3Pair(x), a1 = WidenE4M3Pair(x >> 16);
        const uint32_t a2 = WidenE4M3Pair(y), a3 = WidenE4M3Pair(y >> 16);
#pragma unroll
        for (int n = 0; n < T::kTiles; ++n) {
          MmaF16(o[n][2 * w + half], a0, a1, a2, a3, p[n][0], p[n][1]);
        }
      }
    }
  }

  static __device__ __forceinline__ int Column(int i, Lane lane) {
    const int w = i / 2, first = 2 * (i % 2);
    if (kHasRest && w == 2) return 64 + 4 * lane.g + first;
    return w / kFirst * 128 + kValueBytes * lane.g + w % kFirst * 4 + first;
  }

 private:
  static constexpr int kFirst = T::kDim >= 128 ? 4 : 2;  // words of a load along a value
  static constexpr int kValueBytes = 4 * kFirst;

  static __device__ __forceinline__ void Multiply(uint32_t low, uint32_t high, uint32_t b0,
                                                  uint32_t b1, float (&s)[4]) {
    MmaF16(s, WidenE4M3Pair(low), WidenE4M3Pair(high), WidenE4M3Pair(low >> 16),
           WidenE4M3Pair(high >> 16), b0, b1);
  }
};

struct Fp8Cache {
  template <typename T>
  using Chunk = Fp8Chunk<T>;
  static constexpr int kBytes = 1;
  // f16 loses precision below 2^-14, so a row's largest weight is kept at 2^7 or more.
  static constexpr int kHeadroom = 7;
  // As many bytes on the way as in bf16, where registers allow it and blocks are not so large that
  // a part has too few chunks for their warps.
  static constexpr int Pieces(int dim, int tiles, bool large) {
    return large || tiles > 2 || dim > 128 ? 1 : dim == 64 ? 4 : 2;
  }
};

}  // namespace millrace::decode

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_FP8_CUH_
