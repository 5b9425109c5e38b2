// What the blocks of a row share: keys that order logits, reductions over the row, the lists of
// candidates and their order. Every sum is taken in a fixed order.
#ifndef KERNELS_SAMPLE_SAMPLE_KERNEL_BLOCK_CUH_
#define KERNELS_SAMPLE_SAMPLE_KERNEL_BLOCK_CUH_

#include <cstdint>

#include "kernels/sample/sample_kernel_tiles.cuh"

namespace millrace {

inline constexpr int kSampleList = 2 * kSampleThreads;  // candidates, of a block and of a row

// One value that is reduced over a row.
struct alignas(16) SamplePart {
  uint64_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
};

// Apart from the tiles.
struct SampleShared {
  SamplePart warps[kSampleWarps];
  SamplePart blocks[2][16];  // of the blocks of the cluster, for every other reduction
  uint64_t barriers[kSampleWarps][kSampleParts];
  uint64_t list[kSampleList];    // this block's candidates
  uint64_t merged[kSampleList];  // the row's, in the first block; behind `list`
  double warp_masses[kSampleWarps];
  SampleRow row;
  double uniform;
  int32_t list_size;
  int32_t found, last;
};

// Which block, and which of its reductions comes next.
struct SampleBlock {
  SampleShared& s;
  Cluster cluster;
  int32_t reductions = 0;
};

__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x % 32); }
__device__ __forceinline__ int Warp() { return static_cast<int>(threadIdx.x / 32); }

// Orders as the logits do; equal logits, -0 and 0 among them, have equal keys.
__device__ __forceinline__ uint32_t KeyOf(float x) {
  const uint32_t u = __float_as_uint(x + 0.0f);
  return u ^ (static_cast<uint32_t>(static_cast<int32_t>(u) >> 31) | 0x80000000u);
}
__device__ __forceinline__ float LogitOf(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

// Orders by logit, then, of equal ones, the lower id above.
__device__ __forceinline__ uint64_t PackCandidate(float logit, int32_t id) {
  return static_cast<uint64_t>(KeyOf(logit)) << 32 | ~static_cast<uint32_t>(id);
}
__device__ __forceinline__ float CandidateLogit(uint64_t c) {
  return LogitOf(static_cast<uint32_t>(c >> 32));
}
__device__ __forceinline__ int32_t CandidateId(uint64_t c) {
  return static_cast<int32_t>(~static_cast<uint32_t>(c));
}

__device__ __forceinline__ double WarpSum(double x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}

// The largest candidate of the warp.
__device__ __forceinline__ uint64_t WarpMax(uint64_t c) {
  const uint32_t high = static_cast<uint32_t>(c >> 32);
  const uint32_t top = __reduce_max_sync(0xffffffffu, high);
  const uint32_t low = high == top ? static_cast<uint32_t>(c) : 0;
  return static_cast<uint64_t>(top) << 32 | __reduce_max_sync(0xffffffffu, low);
}

// Combines one value of each warp over the row; `op` is called in a fixed order. Afterwards
// BlockParts() holds each block's. All threads of the cluster.
template <typename Op>
__device__ SamplePart ReduceRow(SampleBlock& block, const SamplePart& of_warp, const Op& op) {
  SampleShared& s = block.s;
  SamplePart* const slots = s.blocks[block.reductions++ % 2];
  if (Lane() == 0) s.warps[Warp()] = of_warp;
  __syncthreads();
  if (Warp() == 0) {
    SamplePart v = s.warps[Lane() % kSampleWarps];
#pragma unroll
    for (int d = kSampleWarps / 2; d > 0; d /= 2) {
      SamplePart other;
      other.a = __shfl_xor_sync(0xffffffffu, v.a, d);
      other.b = __shfl_xor_sync(0xffffffffu, v.b, d);
      other.c = __shfl_xor_sync(0xffffffffu, v.c, d);
      v = Lane() & d ? op(other, v) : op(v, other);
    }
    if (Lane() < static_cast<int>(block.cluster.size)) {
      StoreRemote(RemoteAddress(slots + block.cluster.rank, static_cast<uint32_t>(Lane())),
                  {static_cast<uint32_t>(v.a), static_cast<uint32_t>(v.a >> 32), v.b, v.c});
    }
  }
  Sync(block.cluster);
  SamplePart all = slots[0];
  for (uint32_t i = 1; i < block.cluster.size; ++i) all = op(all, slots[i]);
  return all;
}

// Of the latest reduction, by rank; until the next but one.
__device__ __forceinline__ const SamplePart* BlockParts(const SampleBlock& block) {
  return block.s.blocks[(block.reductions - 1) % 2];
}

// The first block's value, in all.
__device__ __forceinline__ SamplePart Broadcast(SampleBlock& block, const SamplePart& v) {
  SamplePart* const slots = block.s.blocks[block.reductions++ % 2];
  if (block.cluster.rank == 0 && threadIdx.x < block.cluster.size) {
    StoreRemote(RemoteAddress(slots, threadIdx.x),
                {static_cast<uint32_t>(v.a), static_cast<uint32_t>(v.a >> 32), v.b, v.c});
  }
  Sync(block.cluster);
  return slots[0];
}

struct SampleMass {
  double mass = 0;
  uint32_t count = 0;
};

// Over the row, of one value of each warp.
__device__ SampleMass ReduceMass(SampleBlock& block, double mass, uint32_t count) {
  const SamplePart part = {static_cast<uint64_t>(__double_as_longlong(mass)), count, 0};
  const SamplePart all = ReduceRow(block, part, [](const SamplePart& x, const SamplePart& y) {
    const double sum = __longlong_as_double(static_cast<long long>(x.a)) +
                       __longlong_as_double(static_cast<long long>(y.a));
    return SamplePart{static_cast<uint64_t>(__double_as_longlong(sum)), x.b + y.b, 0};
  });
  return {__longlong_as_double(static_cast<long long>(all.a)), all.b};
}

// The row's largest logit with its lowest id, whether all threads say `finite`, and a lower bound
// of the k-th largest logit from each block's own `bound`: half of the blocks (one, of one or two)
// have twice their share of k at or above theirs.
struct SampleTop {
  uint64_t best = 0;
  bool finite = false;
  float bound = -INFINITY;
};

__device__ SampleTop ReduceTop(SampleBlock& block, uint64_t best, bool finite, uint32_t bound) {
  const SamplePart part = {WarpMax(best), __all_sync(0xffffffffu, finite) ? 1u : 0u, bound};
  const SamplePart all = ReduceRow(block, part, [](const SamplePart& x, const SamplePart& y) {
    return SamplePart{x.a > y.a ? x.a : y.a, x.b & y.b, x.c};
  });
  const SamplePart* const parts = BlockParts(block);
  const uint32_t size = block.cluster.size;
  const uint32_t mine = static_cast<uint32_t>(Lane()) < size ? parts[Lane()].c : 0;
  uint32_t above = 0;
  for (uint32_t i = 0; i < size; ++i) {
    above += parts[i].c > mine || (parts[i].c == mine && i < static_cast<uint32_t>(Lane()));
  }
  const uint32_t wanted = size > 1 ? size / 2 - 1 : 0;
  const uint32_t ballot =
      __ballot_sync(0xffffffffu, static_cast<uint32_t>(Lane()) < size && above == wanted);
  const uint32_t key = __shfl_sync(0xffffffffu, mine, __ffs(static_cast<int>(ballot)) - 1);
  return {all.a, all.b != 0, key == 0 ? -INFINITY : LogitOf(key)};
}

// A key that k of the block's threads' maxima reach, and not many more; 0 where there are not as
// many. All threads.
__device__ uint32_t BlockBound(SampleShared& s, float thread_max, int32_t k) {
  const uint32_t mine = KeyOf(thread_max);
  if (k > kSampleThreads) return 0;
  const uint32_t warp_high = __reduce_max_sync(0xffffffffu, mine);
  const uint32_t warp_low = __reduce_min_sync(0xffffffffu, mine);
  if (Lane() == 0) s.warps[Warp()] = {0, warp_high, warp_low};
  __syncthreads();
  const SamplePart other = s.warps[Lane() % kSampleWarps];
  // `low` is reached by k or more, `high` by fewer.
  uint32_t high = __reduce_max_sync(0xffffffffu, other.b) + 1;
  uint32_t low = __reduce_min_sync(0xffffffffu, other.c);
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    const int32_t count = __syncthreads_count(mine >= middle);
    if (count < k) {
      high = middle;
      continue;
    }
    low = middle;
    if (count <= k + k / 4 + 2) break;
  }
  __syncthreads();  // s.warps is read
  return low;
}

// Puts this block's logits in [low, high) on its list; list_size counts those that found no room
// too. All threads.
template <typename Tiles>
__device__ __forceinline__ void Gather(SampleBlock& block, const Tiles& tiles, float low,
                                       float high) {
  SampleShared& s = block.s;
  if (threadIdx.x == 0) s.list_size = 0;
  __syncthreads();
  tiles.ForEach([&](const float4& v, int32_t id) {
    if (!(MaxOf(v) >= low)) return;
    const auto put = [&](float x, int32_t i) {
      if (!(x >= low && x < high) || i >= tiles.vocabulary) return;
      const int32_t at = atomicAdd(&s.list_size, 1);
      if (at < kSampleList) s.list[at] = PackCandidate(x, i);
    };
    put(v.x, id);
    put(v.y, id + 1);
    put(v.z, id + 2);
    put(v.w, id + 3);
  });
}

// Brings the blocks' lists together in the first block, in no order. Returns how many they are, in
// every block; -1 where they are too many. All threads of the cluster.
__device__ int32_t Merge(SampleBlock& block) {
  SampleShared& s = block.s;
  const Cluster& cluster = block.cluster;
  Sync(cluster);
  const uint32_t lane = static_cast<uint32_t>(Lane());
  const int32_t size = lane < cluster.size
                           ? static_cast<int32_t>(LoadRemote32(RemoteAddress(&s.list_size, lane)))
                           : 0;
  const int32_t total = static_cast<int32_t>(
      __reduce_add_sync(0xffffffffu, static_cast<uint32_t>(min(size, 2 * kSampleList))));
  const bool room = total <= kSampleList;
  if (room && cluster.rank == 0) {  // a warp a block
    int32_t before = size;
#pragma unroll
    for (int d = 1; d < 16; d *= 2) {
      const int32_t other = __shfl_up_sync(0xffffffffu, before, static_cast<unsigned>(d));
      if (Lane() >= d) before += other;
    }
    const int32_t n = __shfl_sync(0xffffffffu, size, Warp());
    const int32_t at = __shfl_sync(0xffffffffu, before, Warp()) - n;
    const uint32_t from = RemoteAddress(s.list, static_cast<uint32_t>(Warp()) % cluster.size);
    for (int32_t j = Lane(); j < n; j += 32) {
      s.merged[at + j] = LoadRemote64(from + static_cast<uint32_t>(j) * 8);
    }
  }
  Sync(cluster);
  return room ? total : -1;
}

// One stage of a bitonic sort, largest first, over kEach candidates a thread: x[e] stands at
// threadIdx.x + e * kSampleThreads.
template <int kEach>
__device__ __forceinline__ void SortStage(SampleShared& s, uint64_t (&x)[kEach], int32_t size,
                                          int32_t stride) {
  const int32_t t = static_cast<int32_t>(threadIdx.x);
  const auto keep = [](uint64_t mine, uint64_t other, bool larger) {
    return (mine > other) == larger ? mine : other;
  };
  if (stride == kSampleThreads) {
    const uint64_t first = x[0], second = x[kEach - 1];
    x[0] = keep(first, second, true);
    x[kEach - 1] = keep(second, first, false);
    return;
  }
  if (stride >= 32) {
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kEach; ++e) s.merged[t + e * kSampleThreads] = x[e];
    __syncthreads();
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int32_t i = t + e * kSampleThreads;
    const uint64_t other =
        stride >= 32 ? s.merged[i ^ stride] : __shfl_xor_sync(0xffffffffu, x[e], stride);
    x[e] = keep(x[e], other, ((i & stride) == 0) == ((i & size) == 0));
  }
}

template <int kEach>
__device__ void SortEach(SampleShared& s, int32_t n) {
  const int32_t t = static_cast<int32_t>(threadIdx.x);
  uint64_t x[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int32_t i = t + e * kSampleThreads;
    x[e] = i < n ? s.merged[i] : 0;
  }
  for (int32_t size = 2; size < 2 * n; size *= 2) {
    for (int32_t stride = size / 2; stride > 0; stride /= 2) SortStage(s, x, size, stride);
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < kEach; ++e) s.merged[t + e * kSampleThreads] = x[e];
  __syncthreads();
}

// Sorts the first n of `merged`, largest first. One block, all threads, which see the result.
__device__ void SortMerged(SampleShared& s, int32_t n) {
  if (n > kSampleThreads) return SortEach<2>(s, n);
  SortEach<1>(s, n);
}

// The sum of the values of this thread and those before it, and in `total` that of all. One block.
__device__ double ScanBlock(SampleShared& s, double x, double& total) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const double before = __shfl_up_sync(0xffffffffu, x, static_cast<unsigned>(d));
    if (Lane() >= d) x += before;
  }
  if (Lane() == 31) s.warp_masses[Warp()] = x;
  __syncthreads();
  double before = 0;
  total = 0;
#pragma unroll
  for (int i = 0; i < kSampleWarps; ++i) {
    if (i == Warp()) before = total;
    total += s.warp_masses[i];
  }
  __syncthreads();
  return before + x;
}

}  // namespace millrace

#endif  // KERNELS_SAMPLE_SAMPLE_KERNEL_BLOCK_CUH_
