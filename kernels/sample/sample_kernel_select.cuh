// From a row on the chip to a token: what the filters leave, and the draw.
#ifndef KERNELS_SAMPLE_SAMPLE_KERNEL_SELECT_CUH_
#define KERNELS_SAMPLE_SAMPLE_KERNEL_SELECT_CUH_

#include <cstdint>

#include "kernels/sample/sample_kernel_block.cuh"

namespace millrace {

// Largest k whose candidates are looked for by the threads' maxima, and how many are looked at
// first where only top_p or nothing bounds them.
inline constexpr int32_t kSampleQuick = 256;

// A logit's share of the likeliest's, by temperature.
struct SampleWeight {
  float maximum = 0;
  float factor = 0;  // log2(e) / temperature

  __device__ __forceinline__ float operator()(float x) const {
    float y = (x - maximum) * factor;
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(y));
    return y;
  }
};

__device__ __forceinline__ SampleWeight WeightOf(float maximum, float temperature) {
  constexpr float kLog2E = 1.4426950408889634f;
  return {maximum, 1.0f / temperature * kLog2E};
}

// This thread's logits of at least `low`: how many, and their weight.
template <typename Tiles>
__device__ __forceinline__ SampleMass LaneMass(const Tiles& tiles, const SampleWeight& weight,
                                               float low) {
  float mass = 0;
  uint32_t count = 0;
  tiles.ForEach([&](const float4& v, int32_t) {
    if (!(MaxOf(v) >= low)) return;
    const auto add = [&](float x) {
      mass += x >= low ? weight(x) : 0.0f;
      count += x >= low ? 1 : 0;
    };
    add(v.x);
    add(v.y);
    add(v.z);
    add(v.w);
  });
  return {mass, count};
}

template <typename Tiles>
__device__ __forceinline__ SampleMass RowMass(SampleBlock& block, const Tiles& tiles,
                                              const SampleWeight& weight, float low) {
  const SampleMass mine = LaneMass(tiles, weight, low);
  return ReduceMass(block, WarpSum(mine.mass), __reduce_add_sync(0xffffffffu, mine.count));
}

// What a border must reach, counted from the largest logit down.
struct SampleGoal {
  int32_t k = 0;         // 0: no count
  bool nucleus = false;  // whether there is a mass
  double mass = 0;
  bool of_list = false;  // the mass is a share of what the list holds down to the k-th
};

struct SampleBorder {
  float logit = 0;
  bool reached = false;
};

// The border among the n > 0 of `merged`, sorted; `low`: no border lies below. One block, all
// threads, which see the same.
__device__ SampleBorder FindBorder(SampleShared& s, int32_t n, const SampleGoal& goal,
                                   const SampleWeight& weight, float low) {
  const int32_t kth = goal.k > 0 ? min(goal.k, n) - 1 : n - 1;
  const float least = fmaxf(low, CandidateLogit(s.merged[kth]));
  if (!goal.nucleus) return {least, true};
  if (threadIdx.x == 0) s.found = kSampleList;
  const int32_t i = 2 * static_cast<int32_t>(threadIdx.x);
  double w[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const float x = i + e < n ? CandidateLogit(s.merged[i + e]) : -INFINITY;
    w[e] = x >= least ? weight(x) : 0.0f;
  }
  double total;
  const double both = ScanBlock(s, w[0] + w[1], total);
  const double wanted = goal.of_list ? goal.mass * total : goal.mass;
  if (w[1] > 0 && both >= wanted) atomicMin(&s.found, i + 1);
  if (w[0] > 0 && both - w[1] >= wanted) atomicMin(&s.found, i);
  __syncthreads();
  if (s.found == kSampleList) return {least, goal.k > 0};
  return {CandidateLogit(s.merged[s.found]), true};
}

// One draw among those of `merged`, sorted, of at least `low`, in the order of their ids. One
// block, all threads.
__device__ int32_t DrawFromMerged(SampleShared& s, int32_t n, const SampleWeight& weight,
                                  float low) {
  // Sorted again, by id, each with its weight in the low half.
  int32_t kept = 0;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int32_t i = static_cast<int32_t>(threadIdx.x) + e * kSampleThreads;
    const uint64_t c = i < n ? s.merged[i] : 0;
    const bool keep = i < n && CandidateLogit(c) >= low;
    kept += __syncthreads_count(keep);
    if (keep) s.merged[i] = c << 32 | __float_as_uint(weight(CandidateLogit(c)));
  }
  if (threadIdx.x == 0) s.found = kSampleList, s.last = 0;
  __syncthreads();
  SortMerged(s, kept);
  const int32_t i = 2 * static_cast<int32_t>(threadIdx.x);
  double w[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    w[e] = i + e < kept ? __uint_as_float(static_cast<uint32_t>(s.merged[i + e])) : 0.0f;
  }
  double total;
  const double both = ScanBlock(s, w[0] + w[1], total);
  const double target = s.uniform * total;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    if (w[e] <= 0) continue;
    if ((e == 0 ? both - w[1] : both) > target) atomicMin(&s.found, i + e);
    atomicMax(&s.last, i + e);
  }
  __syncthreads();
  const int32_t at = s.found < kSampleList ? s.found : s.last;
  return static_cast<int32_t>(~static_cast<uint32_t>(s.merged[at] >> 32));
}

// The border by halving an interval of logits until what lies in it fits the list. For what the
// quick way does not find: large k, flat nuclei, a crowd of equal logits.
template <typename Tiles>
__device__ __forceinline__ float SearchBorder(SampleBlock& block, const Tiles& tiles,
                                              SampleGoal goal, const SampleWeight& weight,
                                              float floor) {
  const auto reached = [&](const SampleMass& m) {
    return goal.nucleus ? m.mass >= goal.mass : m.count >= static_cast<uint32_t>(goal.k);
  };
  // `low` reaches the goal, `high` does not. First steps of growing size down from the maximum.
  float high = LogitOf(KeyOf(weight.maximum) + 1), low = floor, depth = 4;
  SampleMass above, at;
  bool found = false;
  for (int step = 0;; ++step) {
    float middle = fmaxf(floor, weight.maximum - depth);
    if (found) {
      const uint32_t bottom = KeyOf(low), top = KeyOf(high);
      if (at.count - above.count <= kSampleList) break;
      if (top - bottom <= 1) return low;
      middle = low + (high - low) / 2;
      if (step > 40 || !(middle > low && middle < high)) {
        middle = LogitOf(bottom + (top - bottom) / 2);
      }
    }
    const SampleMass m = RowMass(block, tiles, weight, middle);
    const bool enough = reached(m);
    if (!enough && middle <= floor) return floor;
    if (enough) {
      low = middle, at = m, found = true;
    } else {
      high = middle, above = m, depth *= 4;
    }
  }
  Gather(block, tiles, low, high);
  const int32_t n = Merge(block);
  goal.k -= static_cast<int32_t>(above.count);
  goal.mass -= above.mass;
  SampleBorder border = {low, true};
  if (block.cluster.rank == 0 && n > 0) {
    SortMerged(block.s, n);
    border = FindBorder(block.s, n, goal, weight, low);
  }
  return __uint_as_float(Broadcast(block, {0, __float_as_uint(border.logit), 0}).b);
}

// In [begin, end) of `weights`, in order: the first place at which their sum passes `target`; the
// last one above 0 where rounding keeps it below.
struct SampleStop {
  int32_t at = 0;
  double rest = 0;  // of the target, before it
};

template <typename WeightAt>
__device__ __forceinline__ SampleStop StopAt(int32_t n, double target, const WeightAt& weight_at) {
  SampleStop stop = {0, target};
  for (int32_t i = 0; i < n; ++i) {
    const double w = weight_at(i);
    if (w <= 0) continue;
    stop = {i, target};
    if (target < w) break;
    target -= w;
  }
  return stop;
}

// One draw among the logits of at least `low`. Returns the id in the one block that holds it, -1 in
// the others. All threads of the cluster.
template <typename Tiles>
__device__ __forceinline__ int32_t Draw(SampleBlock& block, const Tiles& tiles,
                                        const SampleWeight& weight, float low) {
  SampleShared& s = block.s;
  const double mine = WarpSum(LaneMass(tiles, weight, low).mass);
  if (Lane() == 0) s.warp_masses[Warp()] = mine;
  const double total = ReduceMass(block, mine, 0).mass;
  const SamplePart* const parts = BlockParts(block);
  const SampleStop at_block =
      StopAt(static_cast<int32_t>(block.cluster.size), s.uniform * total,
             [&](int32_t i) { return __longlong_as_double(static_cast<long long>(parts[i].a)); });
  if (at_block.at != static_cast<int32_t>(block.cluster.rank)) return -1;
  const SampleStop at_warp =
      StopAt(kSampleWarps, at_block.rest, [&](int32_t i) { return s.warp_masses[i]; });
  __syncthreads();  // warp_masses are read

  // All threads walk through that warp's logits, each through a few side by side.
  float* const held = reinterpret_cast<float*>(s.list);
  tiles.StoreHeld(held, Warp() == at_warp.at);
  if (threadIdx.x == 0) s.found = kSampleThreads, s.last = 0;
  const int32_t size = tiles.tiles * kSampleTile;
  const int32_t each = (size + kSampleThreads - 1) / kSampleThreads;
  const int32_t begin = min(static_cast<int32_t>(threadIdx.x) * each, size);
  const int32_t end = min(begin + each, size);
  __syncthreads();
  const auto weight_at = [&](int32_t i) {
    const float x = tiles.At(held, at_warp.at, begin + i);
    return x >= low ? weight(x) : 0.0f;
  };
  float sum = 0;
  for (int32_t i = 0; i < end - begin; ++i) sum += weight_at(i);
  double all;
  const double reached = ScanBlock(s, sum, all);
  if (sum > 0) {
    if (reached > at_warp.rest) atomicMin(&s.found, static_cast<int32_t>(threadIdx.x));
    atomicMax(&s.last, static_cast<int32_t>(threadIdx.x));
  }
  __syncthreads();
  const int32_t walker = s.found < kSampleThreads ? s.found : s.last;
  if (static_cast<int32_t>(threadIdx.x) == walker) {
    const SampleStop stop = StopAt(end - begin, at_warp.rest - (reached - sum), weight_at);
    s.last = tiles.WarpFirst(at_warp.at) + begin + stop.at;
  }
  __syncthreads();
  return s.last;
}

// The draw for a row whose filters the list of its `n` largest decides. Where it does not, which
// all blocks learn, -2; else as Draw().
__device__ __forceinline__ int32_t DrawFromList(SampleBlock& block, int32_t n,
                                                const SampleGoal& goal, const SampleWeight& weight,
                                                float low) {
  if (n < 0) return -2;
  SampleBorder border;
  if (block.cluster.rank == 0) {
    SortMerged(block.s, n);
    border = FindBorder(block.s, n, goal, weight, low);
  }
  // A list that holds the k largest always decides.
  if (goal.k == 0 && Broadcast(block, {0, border.reached ? 1u : 0u, 0}).b == 0) return -2;
  if (block.cluster.rank != 0) return -1;
  return DrawFromMerged(block.s, n, weight, border.logit);
}

// One draw from what the row's filters leave, as Draw(). `bound`: a lower bound of the k-th largest
// logit, k the row's top_k up to kSampleQuick, else that.
template <typename Tiles>
__device__ __forceinline__ int32_t DrawFiltered(SampleBlock& block, const Tiles& tiles,
                                                const SampleWeight& weight, float bound) {
  const SampleRow& row = block.s.row;
  float low = kSamplePad;
  if (row.min_p > 0) low = weight.maximum + row.temperature * logf(row.min_p);
  const int32_t k = row.top_k < tiles.vocabulary ? row.top_k : 0;
  const bool nucleus = row.top_p < 1;
  double total = 0;
  if (k == 0 && nucleus) total = RowMass(block, tiles, weight, low).mass;
  if (k <= kSampleQuick && (k > 0 || nucleus)) {
    Gather(block, tiles, fmaxf(bound, low), INFINITY);
    const int32_t n = Merge(block);
    const SampleGoal goal = {.k = k,
                             .nucleus = nucleus,
                             .mass = k > 0 ? row.top_p : row.top_p * total,
                             .of_list = k > 0};
    const int32_t id = DrawFromList(block, n, goal, weight, low);
    if (id != -2) return id;
  }
  // One goal after the other: the nucleus is one of what top_k leaves.
  for (int goal = k > 0 ? 0 : 1; goal < (nucleus ? 2 : 1); ++goal) {
    if (goal == 1 && k > 0) total = RowMass(block, tiles, weight, low).mass;
    low = SearchBorder(block, tiles,
                       {.k = goal == 0 ? k : 0, .nucleus = goal == 1, .mass = row.top_p * total},
                       weight, low);
  }
  return Draw(block, tiles, weight, low);
}

}  // namespace millrace

#endif  // KERNELS_SAMPLE_SAMPLE_KERNEL_SELECT_CUH_
