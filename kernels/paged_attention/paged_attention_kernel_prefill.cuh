// Causal prefill for Hopper.
//
// Grid: one block an SM; each takes tiles from a shared counter until none is left. A tile is
// kRows query rows (tokens x the query heads of one kv head) against the keys they see, in blocks
// of kKeys, last keys first, so that only the first blocks need a mask.
//   warp 0          producer: fetches the next tile and its page numbers, and keeps the ring of K
//                   and V blocks in shared memory full (copy engine, one box a page and 64 columns)
//   warps 1 to 3    where the cache holds codes: widen its blocks into that ring
//   warpgroups 1..  64 rows each: S = Q K' and O += P V by wgmma, P straight from registers
// A warpgroup issues the scores of block j together with the product of the weights and values of
// block j + 1 (the one before it in time), and does the softmax of j while the latter runs. Named
// barriers make the warpgroups take turns up to the point where the exponents are known, so
// that one's powers of two run under the other's products. Bound by the tensor cores.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/paged_attention/paged_attention_kernel_prefill.h"
#include "kernels/paged_attention/paged_attention_kernel_prefill_codes.cuh"
#include "kernels/paged_attention/paged_attention_kernel_prefill_load.cuh"
#include "kernels/paged_attention/paged_attention_kernel_prefill_softmax.cuh"
#include "kernels/paged_attention/paged_attention_kernel_prefill_traits.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/registers.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace millrace::prefill {

constexpr float kLog2E = 1.44269504089f;

// A warpgroup's 64 rows of one tile. Each thread has two of the rows: index 0 and 1.
template <typename T>
struct State {
  float o[T::kHeadDim / 2] = {};
  float s[T::kKeys / 2];     // scores of a block, then its weights
  uint32_t p[T::kKeys / 4];  // weights, as the A operand of the product with the values
  float ceiling[2] = {-INFINITY, -INFINITY};  // weights are 2^(score - ceiling)
  float sum[2] = {0, 0};                      // of this thread's columns
  float factor[2];       // what o is to be multiplied by before the weights in s count
  bool rescale = false;  // whether that is more than a multiplication by 1
  float scale_log2;      // of scores, in powers of two
  bool ready = false;    // whether the block after the next is known to be there
};

// S = Q K' for this warpgroup's queries; a group of products in flight.
template <typename T>
__device__ __forceinline__ void Scores(float (&s)[T::kKeys / 2], uint64_t q, uint64_t k) {
  WgmmaFence();
#pragma unroll
  for (int i = 0; i < T::kHeadDim / 16; ++i) {
    const uint32_t column = i % 4 * 32;
    T::template Wgmma<T::kKeys>::template FromShared<false>(
        s, WgmmaAdvance(q, i / 4 * T::kQSlabBytes + column),
        WgmmaAdvance(k, i / 4 * T::kSlabBytes + column), i > 0);
  }
  WgmmaCommit();
}

// O += P V; a group of products in flight.
template <typename T>
__device__ __forceinline__ void Values(float (&o)[T::kHeadDim / 2],
                                       const uint32_t (&p)[T::kKeys / 4], uint64_t v) {
  WgmmaFence();
#pragma unroll
  for (int i = 0; i < T::kKeys / 16; ++i) {
    T::template Wgmma<T::kHeadDim>::template FromRegisters<true>(
        o, p + 4 * i, WgmmaAdvance(v, i * 16 * T::kSlabRowBytes), 1);
  }
  WgmmaCommit();
}

// Transposes 4 x 4 words over the four lanes of a quad: lane t gets word t of each lane.
__device__ __forceinline__ void TransposeQuad(uint32_t (&w)[4]) {
#pragma unroll
  for (int d = 1; d <= 2; d *= 2) {
    const bool upper = threadIdx.x & d;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t& low = w[d == 1 ? 2 * i : i];
      uint32_t& high = w[d == 1 ? 2 * i + 1 : i + 2];
      const uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? low : high, d);
      (upper ? low : high) = other;
    }
  }
}

// The first lane's value, which tells the compiler that it is the same in all of the warp: what is
// computed from it then stays in uniform registers, where wgmma wants its operands.
__device__ __forceinline__ int Uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

// A tile that the producer left in shared memory. Only the first lane reads it: its later arrival
// at a barrier is what lets the producer write the next one there.
__device__ __forceinline__ Tile ReadTile(const Tile& shared) {
  Tile tile;
  if (threadIdx.x % 32 == 0) tile = shared;
  return {Uniform(tile.blocks), Uniform(tile.position), Uniform(tile.first_row),
          Uniform(tile.tokens), Uniform(tile.kv_head)};
}

template <typename T>
struct Consumer {
  const PagedPrefillArgs& args;
  typename T::Smem& smem;
  const int group;  // which of the warpgroups
  Cursor<T::kStages> ring;
  Cursor<T::kQBuffers> queries;

  __device__ __forceinline__ uint64_t Block(int index) const {
    return WgmmaMatrix128(smem.ring[index], 8 * T::kSlabRowBytes, T::kSlabBytes);
  }

  // Gives a ring place back to the producer. The warp's products have read it.
  __device__ __forceinline__ void Release(int index) {
    if (threadIdx.x % 32 == 0) Arrive(&smem.empty[index]);
  }

  // Turns: a warpgroup issues products only between these two.
  __device__ __forceinline__ void TakeTurn() const {
    if (T::kTurns) NamedSync(1 + group, 2 * 128);
  }
  __device__ __forceinline__ void PassTurn() const {
    if (T::kTurns) NamedArrive(1 + (group + 1) % T::kConsumers, 2 * 128);
  }

  // The last key that each of this thread's rows sees.
  __device__ __forceinline__ void Limits(const Tile& tile, int (&limit)[2]) const {
    const int group_heads = args.q_heads / args.kv_heads;
    const int row = group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    limit[0] = tile.position + row / group_heads;
    limit[1] = tile.position + (row + 8) / group_heads;
  }

  // Scores of block j and, under its softmax, the values of block j + 1. Expects the scores' keys
  // to be there and leaves with the next block there.
  template <bool kMasked>
  __device__ __forceinline__ void Step(State<T>& state, uint64_t q, const int (&limit)[2], int j) {
    const int k_index = ring.index;
    ring.Advance();
    const int v_index = ring.index;
    if (!state.ready) Wait(&smem.full[ring.index], ring.parity);
    ring.Advance();
    TakeTurn();
    Scores<T>(state.s, q, Block(k_index));
    Values<T>(state.o, state.p, Block(v_index));
    WgmmaWait<1>();
    WgmmaHold(state.s);
    Release(k_index);
    Weigh<kMasked>(state, limit, j);
    PassTurn();
    Weights<T::kKeys, 0>(state.s, state.sum);
    // nvcc (13.0) sinks a softmax behind a wait for products in the same basic block, where nothing
    // would be left for it to overlap with. This wait is needed anyway, and its loop makes two
    // blocks.
    Wait(&smem.full[ring.index], ring.parity);
    WgmmaWait<0>();
    WgmmaHold(state.o);
    WgmmaHold(state.s);  // packing begins only here: until now the products read state.p
    Release(v_index);
    Finish(state);
  }

  // Scores become exponents, and the sum of earlier weights what it is beside them.
  template <bool kMasked>
  __device__ __forceinline__ void Weigh(State<T>& state, const int (&limit)[2], int j) const {
    if (kMasked) {
      const int local[2] = {limit[0] - j * T::kKeys, limit[1] - j * T::kKeys};
      Mask<T::kKeys>(state.s, local);
    }
    if constexpr (T::kFp8) {
      state.rescale = ExponentsWithHeadroom<kMasked, T::kHeadroom, T::kKeys>(
          state.s, state.ceiling, state.scale_log2, state.factor);
    } else {
      state.rescale =
          Exponents<kMasked, T::kKeys>(state.s, state.ceiling, args.scale * kLog2E, state.factor);
    }
    state.sum[0] *= state.factor[0];
    state.sum[1] *= state.factor[1];
  }

  // With no product in flight: the second half of the weights, all of them packed, and what is
  // summed so far scaled to them.
  __device__ __forceinline__ void Finish(State<T>& state) {
    Weights<T::kKeys, 1>(state.s, state.sum);
    Pack<T::kFp8, T::kKeys>(state.s, state.p);
    Cursor<T::kStages> ahead = ring;
    ahead.Advance();
    state.ready = TestWait(&smem.full[ahead.index], ahead.parity);
    if (state.rescale) Rescale(state.o, state.factor);
  }

  // This warpgroup's queries become f16, where they lie.
  __device__ __forceinline__ void WidenQueries() const {
    constexpr int kThreads = 128, kVectors = 64 * T::kSlabRowBytes / 16;  // of a slab
#pragma unroll
    for (int slab = 0; slab < T::kSlabs; ++slab) {
      auto* rows = reinterpret_cast<uint4*>(smem.q[queries.index] + slab * T::kQSlabBytes +
                                            group * 64 * T::kSlabRowBytes);
#pragma unroll
      for (int i = threadIdx.x % kThreads; i < kVectors; i += kThreads) {
        const uint4 x = rows[i];
        rows[i] = {Bf16ToF16(x.x), Bf16ToF16(x.y), Bf16ToF16(x.z), Bf16ToF16(x.w)};
      }
    }
    FenceSharedForAsync();
    NamedSync(1 + T::kConsumers + group, kThreads);
  }

  // A whole tile: the first block's scores alone, then a step for each further block, then the last
  // block's values alone.
  __device__ __forceinline__ void Attend(State<T>& state, const Tile& tile) {
    const uint64_t q = WgmmaMatrix128(smem.q[queries.index] + group * 64 * T::kSlabRowBytes,
                                      8 * T::kSlabRowBytes, T::kQSlabBytes);
    int limit[2];
    Limits(tile, limit);
    if constexpr (T::kFp8) {
      state.scale_log2 = args.scale * kLog2E * __ldg(args.k_scale + tile.kv_head);
      WidenQueries();
    }
    Wait(&smem.full[ring.index], ring.parity);
    Scores<T>(state.s, q, Block(ring.index));
    WgmmaWait<0>();
    WgmmaHold(state.s);
    Release(ring.index);
    ring.Advance();
    int j = tile.blocks - 1;
    Weigh<true>(state, limit, j);
    Weights<T::kKeys, 0>(state.s, state.sum);
    Finish(state);
    Wait(&smem.full[ring.index], ring.parity);
    // Blocks that every row sees whole after it has seen a key of a later block.
    const int unmasked = tile.position / T::kKeys;
#pragma unroll 1
    for (--j; j >= unmasked; --j) Step<true>(state, q, limit, j);
#pragma unroll 1
    for (; j >= 0; --j) Step<false>(state, q, limit, j);
    if (threadIdx.x % 32 == 0) Arrive(&smem.q_empty[queries.index]);
    queries.Advance();
    Values<T>(state.o, state.p, Block(ring.index));
    WgmmaWait<0>();
    WgmmaHold(state.o);
    Release(ring.index);
    ring.Advance();
  }

  // Divides by the sums and writes the rows that exist, 16 bytes a lane.
  __device__ __forceinline__ void Store(const State<T>& state, const Tile& tile) const {
    const int group_heads = args.q_heads / args.kv_heads;
    const int lane = threadIdx.x % 32;
    const float v_scale = T::kFp8 ? __ldg(args.v_scale + tile.kv_head) : 1;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = state.sum[r];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const float inverse = v_scale / sum;
      const int row = group * 64 + threadIdx.x % 128 / 32 * 16 + r * 8 + lane / 4;
      const int token = row / group_heads;
      const int head = tile.kv_head * group_heads + row % group_heads;
      uint16_t* to = static_cast<uint16_t*>(args.out) +
                     (tile.first_row + token) * args.out_token_stride +
                     head * args.out_head_stride + lane % 4 * 8;
#pragma unroll
      for (int i = 0; i < T::kHeadDim / 32; ++i) {
        uint32_t w[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float* o = state.o + (i * 4 + c) * 4 + r * 2;
          w[c] = PackBf16(o[0] * inverse, o[1] * inverse);
        }
        TransposeQuad(w);
        if (token < tile.tokens) {
          *reinterpret_cast<uint4*>(to + i * 32) = make_uint4(w[0], w[1], w[2], w[3]);
        }
      }
    }
  }

  __device__ void Run() {
    if (group == T::kConsumers - 1) PassTurn();
    for (;;) {
      Wait(&smem.q_full[queries.index], queries.parity);
      const Tile tile = ReadTile(smem.tile[queries.index]);
      if (tile.blocks == 0) break;
      State<T> state;
      Attend(state, tile);
      Store(state, tile);
    }
    if (group == 0) TakeTurn();  // the last one's last word, so that no arrival is left over
  }
};

template <typename T>
__device__ __forceinline__ void InitBarriers(typename T::Smem& smem, const Maps& maps) {
  if (threadIdx.x == 0) {
    PrefetchMap(maps.q);
    PrefetchMap(maps.k);
    PrefetchMap(maps.v);
    constexpr int kConsumerWarps = 4 * T::kConsumers;
    for (int i = 0; i < T::kQBuffers; ++i) {
      InitBarrier(&smem.q_full[i], 1);
      InitBarrier(&smem.q_empty[i], kConsumerWarps);
    }
    for (int i = 0; i < T::kStages; ++i) {
      InitBarrier(&smem.full[i], T::kFp8 ? T::kWideners : 1);
      InitBarrier(&smem.empty[i], kConsumerWarps);
    }
    for (int i = 0; T::kFp8 && i < T::kCodeStages; ++i) {
      InitBarrier(&smem.codes_full[i], 1);
      InitBarrier(&smem.codes_empty[i], T::kWideners);
    }
    InitBarrier(&smem.patch, 1);
    FenceBarrierInit();
  }
  __syncthreads();
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads, 1)
    Prefill(const __grid_constant__ PagedPrefillArgs args, const __grid_constant__ Maps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t raw[];
  auto& smem = *reinterpret_cast<typename T::Smem*>((reinterpret_cast<uintptr_t>(raw) + 1023) &
                                                    ~uintptr_t{1023});
  InitBarriers<T>(smem, maps);
  WaitForPriorGrid();
  StartNextGrid();
  const int warpgroup = Uniform(static_cast<int>(threadIdx.x / 128));
  if (warpgroup == 0) {
    ReleaseRegisters<T::kProducerRegisters>();
    if constexpr (T::kFp8) {
      if (threadIdx.x < 32) {
        CodeProducer<T>{args, maps, smem, CodeBox<T>(args.page_tokens)}.Run();
      } else {
        Widener<T>{smem}.Run();
      }
    } else {
      if (threadIdx.x < 32) Producer<T>{args, maps, smem, Box<T>(args.page_tokens)}.Run();
    }
  } else {
    ClaimRegisters<T::kConsumerRegisters>();
    Consumer<T>{args, smem, warpgroup - 1}.Run();
  }
#else
  __trap();  // compiled for another architecture, or for sm_90 without its own instructions
#endif
}

}  // namespace millrace::prefill

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_CUH_
