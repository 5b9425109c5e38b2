// One entry, or its slice, made by a block. All sums are taken in an order that depends on the
// shape alone, with their roundings spelled out.
#ifndef KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_ENTRY_CUH_
#define KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_ENTRY_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/kv_compress/kv_compress_kernel_unit.cuh"
#include "kernels/latent_cache/hadamard_fp4.cuh"
#include "kernels/latent_cache/latent_store.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/exp2.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/rope/rotation.cuh"

namespace millrace {

// Sums of squares, of every other entry of the unit: of warps, and of slices (whose units have at
// most two).
struct CompressSums {
  float warps[2][kCompressThreads / 32];
  alignas(16) float4 slices[2][kCompressMaxSlices];
  uint64_t slices_here[2];
};

// A block's shared memory: the sums, and in `memory` as much as its plan needs.
struct CompressShared {
  CompressSums& sums;
  // Of each group of lanes, [groups][width]: the softmax over its tokens.
  float* maximum;
  float* sum;
  float* mixed;
  float* row;  // of the Hadamard matrix

  __device__ __forceinline__ CompressShared(const KvCompressPlan& plan, CompressSums& s,
                                            float* memory)
      : sums(s),
        maximum(memory),
        sum(maximum + PartFloats(plan)),
        mixed(sum + PartFloats(plan)),
        row(mixed + PartFloats(plan)) {}

  __host__ __device__ static int PartFloats(const KvCompressPlan& plan) {
    return plan.groups > 1 ? plan.groups * plan.width : 0;
  }
  static size_t Bytes(const KvCompressKernelArgs& args) {
    const int row = args.hadamard_fp4 ? HadamardSharedFloats(args.dim) : 0;
    return sizeof(float) * static_cast<size_t>(3 * PartFloats(args.plan) + row);
  }
};

// Which channels a block has, and which of them and of the tokens a thread.
struct CompressThread {
  int rank;   // of the slice
  int first;  // channel of the slice
  int group;  // none where it is not below plan.groups
  int lane;

  __device__ __forceinline__ explicit CompressThread(const KvCompressPlan& plan)
      : rank(static_cast<int>(blockIdx.x) & (plan.slices - 1)),
        first(rank * plan.width),
        group(static_cast<int>(threadIdx.x / static_cast<unsigned>(plan.lanes))) {
    lane = static_cast<int>(threadIdx.x) - group * plan.lanes;
  }

  __device__ __forceinline__ int channel() const { return first + 4 * lane; }
};

__device__ __forceinline__ void PrefetchToL2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

// Four neighbouring floats, by loads that stay where they stand.
template <bool kAligned>
__device__ __forceinline__ Floats<4> LoadFour(const float* from) {
  Floats<4> x;
  if constexpr (kAligned) {
    const uint4 words = LoadInPlace(static_cast<const void*>(from));
    x = {__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z),
         __uint_as_float(words.w)};
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) x.v[i] = LoadInPlace(from + i);
  }
  return x;
}

// The softmax over some tokens, four channels.
struct SoftmaxPart {
  Floats<4> maximum, sum, mixed;

  __device__ __forceinline__ SoftmaxPart() : sum{}, mixed{} {
#pragma unroll
    for (int i = 0; i < 4; ++i) maximum.v[i] = -INFINITY;
  }
};

// What a maximum is subtracted as: -inf, no score yet, as any number.
__device__ __forceinline__ float OriginOf(float maximum) {
  return maximum == -INFINITY ? 0.0f : maximum;
}

// exp(x - origin)
__device__ __forceinline__ float WeightOf(float x, float origin) {
  constexpr float kLog2E = 1.4426950408889634f;
  return Exp2(__fmul_rn(__fsub_rn(x, origin), kLog2E));
}

// The projections of a chunk, minus infinity the scores past its end. Nearly all chunks are plain.
template <bool kAligned>
__device__ __forceinline__ void LoadChunk(const KvCompressKernelArgs& args, const TokenChunk& chunk,
                                          Floats<4>* kv, Floats<4>* score) {
  if (chunk.plain()) {
#pragma unroll
    for (int k = 0; k < kCompressChunk; ++k) {
      kv[k] = LoadFour<kAligned>(chunk.kv + k * args.kv_stride);
      score[k] = LoadFour<kAligned>(chunk.score + k * args.score_stride);
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kCompressChunk; ++k) {
    kv[k] = {};
    score[k] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    if (k >= chunk.count) continue;
    kv[k] = LoadFour<kAligned>(chunk.Kv(args, k));
    score[k] = LoadFour<kAligned>(chunk.Score(args, k));
  }
}

// Adds what the scores of a chunk lack, all of it in flight at once.
template <bool kAligned>
__device__ __forceinline__ void AddApe(const KvCompressKernelArgs& args, const TokenChunk& chunk,
                                       Floats<4>* score) {
  Floats<4> ape[kCompressChunk];
#pragma unroll
  for (int k = 0; k < kCompressChunk; ++k) {
    ape[k] = {};
    const bool lacks = k >= chunk.kept && k < chunk.count;
    if (lacks) ape[k] = LoadFour<kAligned>(args.ape + chunk.ape + k * args.ape_stride);
  }
#pragma unroll
  for (int k = 0; k < kCompressChunk; ++k) {
    if (k < chunk.kept || k >= chunk.count) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) score[k].v[i] = __fadd_rn(score[k].v[i], ape[k].v[i]);
  }
}

// Adds kCompressChunks chunks of an entry, from the chunk `first` on.
template <bool kAligned>
__device__ __forceinline__ void PoolChunks(const KvCompressKernelArgs& args,
                                           const CompressEntry& entry, int first, int channel,
                                           SoftmaxPart* part) {
  constexpr int kTokens = kCompressChunks * kCompressChunk;
  static_assert(kCompressChunks == 2);
  Floats<4> kv[kTokens], score[kTokens];
  const TokenChunk low(args, entry, first, channel), high(args, entry, first + 1, channel);
  LoadChunk<kAligned>(args, low, kv, score);
  LoadChunk<kAligned>(args, high, kv + kCompressChunk, score + kCompressChunk);
  AddApe<kAligned>(args, low, score);
  AddApe<kAligned>(args, high, score + kCompressChunk);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float maximum = part->maximum.v[i];
#pragma unroll
    for (int k = 0; k < kTokens; ++k) maximum = fmaxf(maximum, score[k].v[i]);
    const float origin = OriginOf(maximum);
    const float before = WeightOf(part->maximum.v[i], origin);
    float sum = __fmul_rn(part->sum.v[i], before), mixed = __fmul_rn(part->mixed.v[i], before);
#pragma unroll
    for (int k = 0; k < kTokens; ++k) {
      const float weight = WeightOf(score[k].v[i], origin);
      sum = __fadd_rn(sum, weight);
      mixed = __fmaf_rn(weight, kv[k].v[i], mixed);
    }
    part->maximum.v[i] = maximum, part->sum.v[i] = sum, part->mixed.v[i] = mixed;
  }
}

__device__ __forceinline__ Floats<4> SharedFour(const float* from) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  return {v.x, v.y, v.z, v.w};
}

__device__ __forceinline__ void PutShared(float* to, const Floats<4>& x) {
  *reinterpret_cast<float4*>(to) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
}

// The softmax over all groups, in the lanes of the first.
__device__ __forceinline__ void MergeGroups(const KvCompressPlan& plan,
                                            const CompressThread& thread,
                                            const CompressShared& shared, SoftmaxPart* part) {
  if (thread.group < plan.groups) {
    const int at = thread.group * plan.width + 4 * thread.lane;
    PutShared(shared.maximum + at, part->maximum);
    PutShared(shared.sum + at, part->sum);
    PutShared(shared.mixed + at, part->mixed);
  }
  __syncthreads();
  if (thread.group > 0) return;
  Floats<4> maximum = part->maximum, origin;
#pragma unroll 2
  for (int g = 1; g < plan.groups; ++g) {
    const Floats<4> x = SharedFour(shared.maximum + g * plan.width + 4 * thread.lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) maximum.v[i] = fmaxf(maximum.v[i], x.v[i]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) origin.v[i] = OriginOf(maximum.v[i]);
  *part = SoftmaxPart();
#pragma unroll 2
  for (int g = 0; g < plan.groups; ++g) {
    const int at = g * plan.width + 4 * thread.lane;
    const Floats<4> m = SharedFour(shared.maximum + at), s = SharedFour(shared.sum + at),
                    x = SharedFour(shared.mixed + at);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float weight = WeightOf(m.v[i], origin.v[i]);
      part->sum.v[i] = __fmaf_rn(s.v[i], weight, part->sum.v[i]);
      part->mixed.v[i] = __fmaf_rn(x.v[i], weight, part->mixed.v[i]);
    }
  }
}

// Four channels of an entry's mean, in the lanes of the first group; zeros in the others.
template <bool kAligned>
__device__ __forceinline__ Floats<4> Pooled(const KvCompressKernelArgs& args,
                                            const CompressEntry& entry,
                                            const CompressThread& thread,
                                            const CompressShared& shared) {
  const KvCompressPlan& plan = args.plan;
  const int chunks = (Overlaps(args) ? 2 : 1) * ChunksOfWindow(Ratio(args));
  SoftmaxPart part;
  if (thread.group < plan.groups) {
#pragma unroll 1
    for (int chunk = kCompressChunks * thread.group; chunk < chunks;
         chunk += kCompressChunks * plan.groups) {
      PoolChunks<kAligned>(args, entry, chunk, thread.channel(), &part);
    }
  }
  if (plan.groups > 1) MergeGroups(plan, thread, shared, &part);
  Floats<4> pooled = {};
  if (thread.group > 0) return pooled;
#pragma unroll
  for (int i = 0; i < 4; ++i) pooled.v[i] = __fdiv_rn(part.mixed.v[i], part.sum.v[i]);
  return pooled;
}

// The sum over all slices of the entry, in each of its blocks.
__device__ __forceinline__ float SliceSum(float x, const CompressThread& thread, int slices,
                                          CompressSums& sums, int turn) {
#if __CUDA_ARCH__ >= 900
  if (slices > 1) {
    const int to = static_cast<int>(threadIdx.x);
    if (to < slices) {
      SendRemote(&sums.slices[turn][thread.rank], make_float4(x, 0, 0, 0), &sums.slices_here[turn],
                 to);
    }
    Wait(&sums.slices_here[turn], 0);
    x = 0;
#pragma unroll 1
    for (int s = 0; s < slices; ++s) x = __fadd_rn(x, sums.slices[turn][s].x);
  }
#endif
  return x;
}

// The sum over the block and its slices. `turn`: which of the unit's entries, modulo 2.
__device__ __forceinline__ float EntrySum(float x, const CompressThread& thread, int slices,
                                          CompressSums& sums, int turn) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, d));
  if (threadIdx.x % 32 == 0) sums.warps[turn][threadIdx.x / 32] = x;
  __syncthreads();
  x = 0;
#pragma unroll 1
  for (int w = 0; w < static_cast<int>(blockDim.x / 32); ++w) {
    x = __fadd_rn(x, sums.warps[turn][w]);
  }
  return SliceSum(x, thread, slices, sums, turn);
}

__device__ __forceinline__ float NormWeight(const KvCompressKernelArgs& args, int channel) {
  if (!args.weight_bf16) return __ldg(static_cast<const float*>(args.norm_weight) + channel);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(args.norm_weight)[channel]);
}

// Four channels of a row, normalised by `factor` and rotated.
__device__ __forceinline__ void FinishChannels(const KvCompressKernelArgs& args, int entry,
                                               int channel, float factor, Floats<4>* x) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x->v[i] = __fmul_rn(__fmul_rn(x->v[i], factor), NormWeight(args, channel + i));
  }
  const int first_rotated = args.dim - 2 * args.pairs;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const int pair = (channel + i - first_rotated) / 2;
    if (channel + i < first_rotated) continue;
    float sin, cos;
    RotationOf(entry * Ratio(args), args.inv_freq[pair], &sin, &cos);
    const float a = x->v[i], b = x->v[i + 1];
    x->v[i] = __fmaf_rn(a, cos, -__fmul_rn(b, sin));
    x->v[i + 1] = __fmaf_rn(b, cos, __fmul_rn(a, sin));
  }
}

// Writes four channels of a row. Whole warps; `in`: whether this lane has such channels.
__device__ __forceinline__ void StoreRowChannels(const LatentStoreArgs& store, LatentPlace place,
                                                 int channel, const Floats<4>& x, bool in) {
  if (store.type == LatentRowType::kFp8) {
    StoreFp8Channels(store, place, channel, x, in);
  } else if (in && store.type == LatentRowType::kF32) {
    StoreChannels(store, place, channel, x.v);
  } else if (in) {
    __nv_bfloat16 narrow[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) narrow[i] = __float2bfloat16_rn(x.v[i]);
    StoreChannels(store, place, channel, narrow);
  }
}

// Into L2, of what this thread needs first: its part of the weights and of the state, which may
// come from afar. Needs no wait, for a prefetch reads nothing.
__device__ __forceinline__ void PrefetchEntry(const KvCompressKernelArgs& args,
                                              const CompressEntry& entry,
                                              const CompressThread& thread) {
  if (thread.group >= args.plan.groups) return;
#pragma unroll 1
  for (int c = 0; c < kCompressChunks; ++c) {
    const TokenChunk chunk(args, entry, kCompressChunks * thread.group + c, thread.channel());
#pragma unroll 1
    for (int k = 0; k < chunk.kept; ++k) {
      PrefetchToL2(chunk.Kv(args, k));
      PrefetchToL2(chunk.Score(args, k));
    }
#pragma unroll 1
    for (int k = chunk.kept; k < chunk.count; ++k) {
      PrefetchToL2(args.ape + chunk.ape + k * args.ape_stride);
    }
  }
  if (thread.group > 0) return;
  const int bytes = args.weight_bf16 ? 2 : 4;
  PrefetchToL2(static_cast<const char*>(args.norm_weight) + thread.channel() * bytes);
  const int rotated = thread.channel() - (args.dim - 2 * args.pairs);
  if (rotated >= 0) PrefetchToL2(args.inv_freq + rotated / 2);
}

// `turn`: which of the unit's entries, modulo 2.
template <bool kAligned>
__device__ __forceinline__ void MakeEntry(const KvCompressKernelArgs& args,
                                          const CompressEntry& entry, const CompressThread& thread,
                                          const CompressShared& shared, int turn) {
  Floats<4> x = Pooled<kAligned>(args, entry, thread, shared);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) squares = __fmaf_rn(x.v[i], x.v[i], squares);
  const float sum = EntrySum(squares, thread, args.plan.slices, shared.sums, turn);
  if (!entry.place.IsIn(args.store)) return;
  const float mean = __fdiv_rn(sum, static_cast<float>(args.dim));
  const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, args.norm_eps)));
  const bool in = thread.group == 0;
  if (in) FinishChannels(args, entry.index, thread.channel(), factor, &x);
  if (args.hadamard_fp4) {
    HadamardOfFours(args.dim, static_cast<int>(threadIdx.x), shared.row, &x);
    RoundHadamardFp4(args.dim, &x);
  }
  if (static_cast<int>(threadIdx.x) / 32 * 32 >= args.plan.lanes) return;
  StoreRowChannels(args.store, entry.place, thread.channel(), x, in);
}

}  // namespace millrace

#endif  // KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_ENTRY_CUH_
