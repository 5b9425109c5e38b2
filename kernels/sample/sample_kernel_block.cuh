// What the blocks of a row share: keys that order logits, reductions over the row, the lists of
// candidates and their order. Every sum is taken in a fixed order.
#ifndef KERNELS_SAMPLE_SAMPLE_KERNEL_BLOCK_CUH_
#define KERNELS_SAMPLE_SAMPLE_KERNEL_BLOCK_CUH_

#include <cstdint>

#include "kernels/sample/sample_kernel_tiles.cuh"

namespace millrace {

inline constexpr int kSampleList = kSampleThreads;  // candidates of a row

// One value that is reduced over a row.
struct alignas(16) SamplePart {
  uint64_t a = 0, b = 0;
  uint32_t c = 0, d = 0;
};

// Apart from the tiles.
struct SampleShared {
  SamplePart warps[kSampleWarps];
  SamplePart blocks[2][16];  // of the blocks of the cluster, for every other reduction
  uint64_t barriers[kSampleWarps][kSampleParts];
  // A block's candidates, and then, in the first block, those of the row.
  alignas(16) uint64_t list[2 * kSampleList];
  alignas(16) uint64_t
      inbox[2 * kSampleList];  // in the first block: those of each, a share of the places each
  double warp_masses[kSampleWarps];
  SampleRow row;
  double uniform;
  int32_t list_size;  // those without room counted too
  int32_t found, last, drawn;
};

// Which block, and how many of its exchanges are done.
struct SampleBlock {
  SampleShared& s;
  Cluster cluster;
  int32_t exchanges = 0;
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

// The largest candidate of the warp.
__device__ __forceinline__ uint64_t WarpMax(uint64_t c) {
  const uint32_t high = static_cast<uint32_t>(c >> 32);
  const uint32_t top = __reduce_max_sync(0xffffffffu, high);
  const uint32_t low = high == top ? static_cast<uint32_t>(c) : 0;
  return static_cast<uint64_t>(top) << 32 | __reduce_max_sync(0xffffffffu, low);
}

// This block's part goes to all blocks, from `warp 0`, where all lanes hold it; then all threads
// find that of the i-th block in the result's place i.
__device__ __forceinline__ const SamplePart* Exchange(SampleBlock& block, const SamplePart& part) {
  SamplePart* const slots = block.s.blocks[block.exchanges++ % 2];
  if (threadIdx.x < block.cluster.size) {
    const uint32_t to = RemoteAddress(slots + block.cluster.rank, threadIdx.x);
    StoreRemote(to, {static_cast<uint32_t>(part.a), static_cast<uint32_t>(part.a >> 32),
                     static_cast<uint32_t>(part.b), static_cast<uint32_t>(part.b >> 32)});
    StoreRemote64(to + 16, static_cast<uint64_t>(part.d) << 32 | part.c);
  }
  Sync(block.cluster);
  return slots;
}

// The first block's value, in all.
__device__ __forceinline__ uint32_t Broadcast(SampleBlock& block, uint32_t v) {
  return Exchange(block, {0, 0, v, 0})[0].c;
}

// How many logits, and what they weigh, above two bounds.
struct SampleMass {
  double mass[2] = {0, 0};
  uint32_t count[2] = {0, 0};
};

__device__ __forceinline__ uint64_t Bits(double x) {
  return static_cast<uint64_t>(__double_as_longlong(x));
}
__device__ __forceinline__ double DoubleOf(uint64_t bits) {
  return __longlong_as_double(static_cast<long long>(bits));
}

// Sums one value of each thread over the row, always in the same order. Afterwards the masses of
// the warps are in warp_masses (mass[0] alone), those of the blocks in BlockParts().
__device__ __forceinline__ SampleMass ReduceMass(SampleBlock& block, SampleMass x) {
  SampleShared& s = block.s;
  const auto reduce = [](SampleMass& m, int from) {
    for (int d = from; d > 0; d /= 2) {
      m.mass[0] += __shfl_xor_sync(0xffffffffu, m.mass[0], d);
      m.mass[1] += __shfl_xor_sync(0xffffffffu, m.mass[1], d);
    }
    m.count[0] = __reduce_add_sync(0xffffffffu, m.count[0]);
    m.count[1] = __reduce_add_sync(0xffffffffu, m.count[1]);
  };
  const auto pack = [](const SampleMass& m) {
    return SamplePart{Bits(m.mass[0]), Bits(m.mass[1]), m.count[0], m.count[1]};
  };
  const auto sum = [&](const SamplePart* parts, int n) {
    SampleMass m;
    if (Lane() < n) {
      const SamplePart& p = parts[Lane()];
      m = {{DoubleOf(p.a), DoubleOf(p.b)}, {p.c, p.d}};
    }
    reduce(m, 16);
    return m;
  };
  reduce(x, 16);
  if (Lane() == 0) s.warps[Warp()] = pack(x), s.warp_masses[Warp()] = x.mass[0];
  __syncthreads();
  if (Warp() == 0) x = sum(s.warps, kSampleWarps);
  return sum(Exchange(block, pack(x)), static_cast<int>(block.cluster.size));
}

// Of the latest reduction, by rank; until the next but one.
__device__ __forceinline__ const SamplePart* BlockParts(const SampleBlock& block) {
  return block.s.blocks[(block.exchanges - 1) % 2];
}

// The largest of the first 16 lanes' keys that n of them reach; 0 where there is none.
__device__ __forceinline__ uint32_t ReachedBy(uint32_t key, uint32_t n) {
  uint32_t reach = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) reach += __shfl_sync(0xffffffffu, key, i) >= key;
  return __reduce_max_sync(0xffffffffu, Lane() < 16 && reach >= n ? key : 0);
}

// A lower bound of the k-th largest logit is found from the maxima of threads: where a part of the
// row (a warp, a block) holds m logits at or above its own bound, as many parts as hold k together
// hold them at or above the least of their bounds. Parts are asked for half as many again (warps)
// or twice as many (blocks) as their share, so that a few with little do not spoil it.
struct SampleShares {
  int32_t of_warp = 0;  // above 32: no bound
  uint32_t warps = 0, blocks = 0;

  __device__ __forceinline__ SampleShares(int32_t k, uint32_t cluster_size) {
    const int32_t size = static_cast<int32_t>(cluster_size);
    const int32_t of_block = size == 1 ? k : (2 * k + size - 1) / size;
    of_warp = (of_block * 3 / 2 + kSampleWarps - 1) / kSampleWarps;
    warps = static_cast<uint32_t>((of_block + of_warp - 1) / max(of_warp, 1));
    blocks = max(cluster_size / 2, 1u);
  }
};

// The largest key that n of the warp's threads' maxima reach.
__device__ __forceinline__ uint32_t WarpBound(SampleShared& s, float maximum, int32_t n) {
  if (n > 32) return 0;
  float* const maxima = reinterpret_cast<float*>(s.inbox) + Warp() * 32;
  __syncwarp();
  maxima[Lane()] = maximum;
  __syncwarp();
  int32_t reach = 0;
#pragma unroll
  for (int i = 0; i < 32; i += 4) {
    const float4 v = *reinterpret_cast<const float4*>(maxima + i);
    reach += (v.x >= maximum) + (v.y >= maximum) + (v.z >= maximum) + (v.w >= maximum);
  }
  return __reduce_max_sync(0xffffffffu, reach >= n ? KeyOf(maximum) : 0);
}

// The row's largest candidate, whether all threads say `finite`, and, for k > 0, a lower bound of
// the k-th largest logit.
struct SampleTop {
  uint64_t best = 0;
  bool finite = false;
  float bound = -INFINITY;
};

__device__ __forceinline__ SampleTop ReduceTop(SampleBlock& block, uint64_t best, bool finite,
                                               int32_t k) {
  SampleShared& s = block.s;
  const SampleShares shares(k, block.cluster.size);
  uint32_t bound = k > 0 ? WarpBound(s, CandidateLogit(best), shares.of_warp) : 0;
  best = WarpMax(best);
  finite = __all_sync(0xffffffffu, finite);
  if (Lane() == 0) s.warps[Warp()] = {best, 0, finite ? 1u : 0u, bound};
  __syncthreads();
  if (Warp() == 0) {
    const SamplePart v = s.warps[Lane() % kSampleWarps];
    best = WarpMax(v.a);
    finite = __all_sync(0xffffffffu, v.c != 0);
    if (k > 0) bound = ReachedBy(v.d, shares.warps);
  }
  const SamplePart* const parts = Exchange(block, {best, 0, finite ? 1u : 0u, bound});
  SamplePart v = {0, 0, 1, 0};
  if (Lane() < static_cast<int>(block.cluster.size)) v = parts[Lane()];
  const uint32_t key = k > 0 ? ReachedBy(v.d, shares.blocks) : 0;
  return {WarpMax(v.a), __all_sync(0xffffffffu, v.c != 0) != 0,
          key == 0 ? -INFINITY : LogitOf(key)};
}

// Brings the row's logits in [low, high) together in the first block's list, in no order. Returns
// how many they are, in every block; -1 where they are too many. `lane_max`: no logit of this lane
// is above it. Between two calls all blocks exchange something.
template <typename Tiles>
__device__ __forceinline__ int32_t Gather(SampleBlock& block, const Tiles& tiles, float low,
                                          float high, float lane_max) {
  SampleShared& s = block.s;
  const int32_t places = 2 * kSampleList / static_cast<int32_t>(block.cluster.size);
  tiles.ForEachOf(lane_max >= low, [&](const float4& v, int32_t id) {
    if (!(MaxOf(v) >= low)) return;
    const auto put = [&](float x, int32_t i) {
      if (!(x >= low && x < high) || i >= tiles.vocabulary) return;
      const int32_t at = atomicAdd(&s.list_size, 1);
      if (at < places) s.list[at] = PackCandidate(x, i);
    };
    put(v.x, id);
    put(v.y, id + 1);
    put(v.z, id + 2);
    put(v.w, id + 3);
  });
  __syncthreads();
  int32_t n = s.list_size;
  const uint32_t to = RemoteAddress(s.inbox + static_cast<int32_t>(block.cluster.rank) * places, 0);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < min(n, places); i += kSampleThreads) {
    StoreRemote64(to + static_cast<uint32_t>(i) * 8, s.list[i]);
  }
  const SamplePart* const parts = Exchange(block, {0, 0, static_cast<uint32_t>(n), 0});
  if (threadIdx.x == 0) s.list_size = 0;
  n = Lane() < static_cast<int>(block.cluster.size) ? static_cast<int32_t>(parts[Lane()].c) : 0;
  const bool room = __all_sync(0xffffffffu, n <= places);
  const int32_t total =
      static_cast<int32_t>(__reduce_add_sync(0xffffffffu, static_cast<uint32_t>(min(n, places))));
  if (!room || total > kSampleList) return -1;
  if (block.cluster.rank != 0) return total;
  // A warp takes up what one block sent.
  int32_t end = n;
#pragma unroll
  for (int d = 1; d < 16; d *= 2) {
    const int32_t before = __shfl_up_sync(0xffffffffu, end, static_cast<unsigned>(d));
    if (Lane() >= d) end += before;
  }
  n = __shfl_sync(0xffffffffu, n, Warp());
  const int32_t begin = __shfl_sync(0xffffffffu, end, Warp()) - n;
  for (int32_t i = Lane(); i < n; i += 32) s.list[begin + i] = s.inbox[Warp() * places + i];
  __syncthreads();
  return total;
}

// Sorts the first n of the list, largest first, by counting for each how many are larger. One
// block, all threads, which see the result. Writes no place but theirs and up to two behind.
__device__ __forceinline__ void SortList(SampleShared& s, int32_t n) {
  int32_t parts = 1;  // threads that share the counting for one
  while (parts < 32 && 2 * parts * n <= kSampleThreads) parts *= 2;
  const int32_t t = static_cast<int32_t>(threadIdx.x), i = t / parts;
  const uint64_t mine = i < n ? s.list[i] : 0;
  if (t < 2) s.list[n + t] = 0;  // the last pair may be half empty
  __syncthreads();
  int32_t larger = 0;
  if (i < n) {
    const auto* const pairs = reinterpret_cast<const ulonglong2*>(s.list);
#pragma unroll 4
    for (int32_t j = t % parts; 2 * j < n; j += parts) {
      const ulonglong2 pair = pairs[j];
      larger += (pair.x > mine) + (pair.y > mine);
    }
  }
  for (int d = parts / 2; d > 0; d /= 2) larger += __shfl_xor_sync(0xffffffffu, larger, d);
  __syncthreads();
  if (i < n && t % parts == 0) s.list[larger] = mine;
  __syncthreads();
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
