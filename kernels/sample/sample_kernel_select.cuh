// From a row on the chip to a token: what the filters leave, and the draw.
#ifndef KERNELS_SAMPLE_SAMPLE_KERNEL_SELECT_CUH_
#define KERNELS_SAMPLE_SAMPLE_KERNEL_SELECT_CUH_

#include <cstdint>

#include "kernels/sample/sample_kernel_block.cuh"

namespace millrace {

// Largest k whose candidates are looked for by the threads' maxima; and the k of those looked at
// first where only top_p bounds them.
inline constexpr int32_t kSampleQuick = 128;
inline constexpr int32_t kSampleNucleus = 96;

// A logit's share of the likeliest's, by temperature.
struct SampleWeight {
  float maximum = 0;
  float factor = 0;  // log2(e) / temperature

  __device__ __forceinline__ float operator()(float x) const {
    return Exp2((x - maximum) * factor);
  }
};

__device__ __forceinline__ float FactorOf(float temperature) {
  constexpr float kLog2E = 1.4426950408889634f;
  return 1.0f / temperature * kLog2E;
}

// This thread's logits of at least `low`: what they weigh.
template <typename Tiles>
__device__ __forceinline__ float LaneMass(const Tiles& tiles, const SampleWeight& weight,
                                          float low) {
  float mass = 0;
  tiles.ForEach([&](const float4& v, int32_t) {
    if (!(MaxOf(v) >= low)) return;
    const auto of = [&](float x) { return x >= low ? weight(x) : 0.0f; };
    mass += (of(v.x) + of(v.y)) + (of(v.z) + of(v.w));
  });
  return mass;
}

// What is known of this thread's whole mass from the reading of the row.
struct SampleRead {
  float maximum = -INFINITY;  // of this thread's logits
  float mass = 0;             // of all of them relative to it, by `factor`
  float factor = 0;           // 0: nothing is known

  __device__ __forceinline__ bool Knows(const SampleWeight& weight, float low) const {
    return factor == weight.factor && low <= kSamplePad;
  }
};

template <typename Tiles>
__device__ __forceinline__ double RowMass(SampleBlock& block, const Tiles& tiles,
                                          const SampleRead& read, const SampleWeight& weight,
                                          float low) {
  const float mass =
      read.Knows(weight, low) ? read.mass * weight(read.maximum) : LaneMass(tiles, weight, low);
  return ReduceMass(block, {{mass, 0}, {0, 0}}).mass[0];
}

// At or above two bounds, the first the lower.
template <typename Tiles>
__device__ __forceinline__ SampleMass RowMassAbove(SampleBlock& block, const Tiles& tiles,
                                                   const SampleWeight& weight, float low,
                                                   float high) {
  float mass = 0, mass_high = 0;
  uint32_t count = 0, count_high = 0;
  tiles.ForEach([&](const float4& v, int32_t) {
    if (!(MaxOf(v) >= low)) return;
    const auto add = [&](float x) {
      const float w = weight(x);
      mass += x >= low ? w : 0.0f;
      mass_high += x >= high ? w : 0.0f;
      count += x >= low ? 1 : 0;
      count_high += x >= high ? 1 : 0;
    };
    add(v.x);
    add(v.y);
    add(v.z);
    add(v.w);
  });
  return ReduceMass(block, {{mass, mass_high}, {count, count_high}});
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

// The border among the n of the list, sorted; `low`: no border lies below. One block, all threads,
// which see the same.
__device__ __forceinline__ SampleBorder FindBorder(SampleShared& s, int32_t n,
                                                   const SampleGoal& goal,
                                                   const SampleWeight& weight, float low) {
  if (n == 0) return {low, true};
  const uint64_t* const list = s.list;
  const int32_t kth = goal.k > 0 ? min(goal.k, n) - 1 : n - 1;
  const float least = fmaxf(low, CandidateLogit(list[kth]));
  if (!goal.nucleus) return {least, true};
  if (threadIdx.x == 0) s.found = kSampleList;
  const int32_t i = static_cast<int32_t>(threadIdx.x);
  const float x = i < n ? CandidateLogit(list[i]) : -INFINITY;
  const float w = x >= least ? weight(x) : 0.0f;
  double total;
  const double reached = ScanBlock(s, w, total);
  if (w > 0 && reached >= (goal.of_list ? goal.mass * total : goal.mass)) atomicMin(&s.found, i);
  __syncthreads();
  if (s.found == kSampleList) return {least, goal.k > 0};
  return {CandidateLogit(list[s.found]), true};
}

// One draw among those of the list, sorted, of at least `low`, in the order of their ids. One
// block, all threads.
__device__ __forceinline__ int32_t DrawOfList(SampleShared& s, int32_t n,
                                              const SampleWeight& weight, float low) {
  // Sorted again, by id, each with its weight in the low half.
  uint64_t* const list = s.list;
  const int32_t i = static_cast<int32_t>(threadIdx.x);
  const uint64_t c = i < n ? list[i] : 0;
  const bool keep = i < n && CandidateLogit(c) >= low;
  const int32_t kept = __syncthreads_count(keep);
  if (keep) list[i] = c << 32 | __float_as_uint(weight(CandidateLogit(c)));
  if (threadIdx.x == 0) s.found = kSampleList, s.last = 0;
  __syncthreads();
  SortList(s, kept);
  const float w = i < kept ? __uint_as_float(static_cast<uint32_t>(list[i])) : 0.0f;
  double total;
  const double reached = ScanBlock(s, w, total);
  if (w > 0) {
    if (reached > s.uniform * total) atomicMin(&s.found, i);
    atomicMax(&s.last, i);
  }
  __syncthreads();
  const int32_t at = s.found < kSampleList ? s.found : s.last;
  return static_cast<int32_t>(~static_cast<uint32_t>(list[at] >> 32));
}

// The border by narrowing an interval of logits until what lies in it fits the list: for what the
// quick way does not find, as large k, flat nuclei and crowds of equal logits. Each pass measures
// two bounds.
template <typename Tiles>
__device__ __forceinline__ float SearchBorder(SampleBlock& block, const Tiles& tiles,
                                              SampleGoal goal, const SampleWeight& weight,
                                              float floor) {
  const auto reached = [&](const SampleMass& m, int i) {
    return goal.nucleus ? m.mass[i] >= goal.mass : m.count[i] >= static_cast<uint32_t>(goal.k);
  };
  // `low` reaches the goal, `high` does not; `at` is what lies at or above the one and the other.
  float high = LogitOf(KeyOf(weight.maximum) + 1), low = floor, depth = 4;
  SampleMass at;
  bool bounded = false;
  for (int step = 0;; ++step) {
    float first, second;
    if (!bounded) {  // down from the maximum in growing steps
      first = fmaxf(floor, weight.maximum - 4 * depth);
      second = fmaxf(floor, weight.maximum - depth);
      depth *= 16;
    } else {
      if (at.count[0] - at.count[1] <= kSampleList) break;
      const uint32_t bottom = KeyOf(low), top = KeyOf(high);
      if (top - bottom <= 1) return low;
      // Around where the goal lies if the logits are spread evenly, or at thirds.
      const double share = goal.nucleus
                               ? (goal.mass - at.mass[1]) / (at.mass[0] - at.mass[1])
                               : static_cast<double>(static_cast<uint32_t>(goal.k) - at.count[1]) /
                                     (at.count[0] - at.count[1]);
      const float width = high - low;
      const float middle = step % 2 ? high - static_cast<float>(share) * width : low + width / 2;
      const float margin = step % 2 ? width / 16 : width / 6;
      first = middle - margin, second = middle + margin;
      if (!(second < high)) second = first;
      if (!(first > low)) first = second;
      if (step > 24 || !(first > low && second < high)) {
        first = second = LogitOf(bottom + (top - bottom) / 2);
      }
    }
    const SampleMass m = RowMassAbove(block, tiles, weight, first, second);
    if (reached(m, 1)) {
      low = second, at.mass[0] = m.mass[1], at.count[0] = m.count[1], bounded = true;
      continue;
    }
    high = second, at.mass[1] = m.mass[1], at.count[1] = m.count[1];
    if (reached(m, 0)) {
      low = first, at.mass[0] = m.mass[0], at.count[0] = m.count[0], bounded = true;
      continue;
    }
    if (first <= floor) return floor;
    high = first, at.mass[1] = m.mass[0], at.count[1] = m.count[0];
  }
  const int32_t n = Gather(block, tiles, low, high, INFINITY);
  goal.k -= static_cast<int32_t>(at.count[1]);
  goal.mass -= at.mass[1];
  float border = low;
  if (block.cluster.rank == 0) {
    SortList(block.s, n);
    border = FindBorder(block.s, n, goal, weight, low).logit;
  }
  return __uint_as_float(Broadcast(block, __float_as_uint(border)));
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
                                        const SampleRead& read, const SampleWeight& weight,
                                        float low) {
  SampleShared& s = block.s;
  const double total = RowMass(block, tiles, read, weight, low);
  const SamplePart* const parts = BlockParts(block);
  const SampleStop at_block = StopAt(static_cast<int32_t>(block.cluster.size), s.uniform * total,
                                     [&](int32_t i) { return DoubleOf(parts[i].a); });
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
    s.drawn = tiles.WarpFirst(at_warp.at) + begin + stop.at;
  }
  __syncthreads();
  return s.drawn;
}

// The draw for a row whose filters the list of its `n` largest decides. Where it does not, which
// all blocks learn, -2; else as Draw().
__device__ __forceinline__ int32_t DrawFromList(SampleBlock& block, int32_t n,
                                                const SampleGoal& goal, const SampleWeight& weight,
                                                float low) {
  if (n < 0) return -2;
  SampleBorder border;
  if (block.cluster.rank == 0) {
    SortList(block.s, n);
    border = FindBorder(block.s, n, goal, weight, low);
  }
  // A list that holds the k largest always decides.
  if (goal.k == 0 && Broadcast(block, border.reached ? 1 : 0) == 0) return -2;
  if (block.cluster.rank != 0) return -1;
  return DrawOfList(block.s, n, weight, border.logit);
}

// One draw from what the row's filters leave, as Draw(). `bound`: a lower bound of the k-th largest
// logit, k that of QuickK().
template <typename Tiles>
__device__ __forceinline__ int32_t DrawFiltered(SampleBlock& block, const Tiles& tiles,
                                                const SampleRead& read, const SampleWeight& weight,
                                                float bound) {
  const SampleRow& row = block.s.row;
  float low = kSamplePad;
  if (row.min_p > 0) low = weight.maximum + row.temperature * logf(row.min_p);
  const int32_t k = row.top_k < tiles.vocabulary ? row.top_k : 0;
  const bool nucleus = row.top_p < 1;
  double total = 0;
  if (k == 0 && nucleus) total = RowMass(block, tiles, read, weight, low);
  if (k <= kSampleQuick && (k > 0 || nucleus)) {
    const int32_t n = Gather(block, tiles, fmaxf(bound, low), INFINITY, read.maximum);
    const SampleGoal goal = {.k = k,
                             .nucleus = nucleus,
                             .mass = k > 0 ? row.top_p : row.top_p * total,
                             .of_list = k > 0};
    const int32_t id = DrawFromList(block, n, goal, weight, low);
    if (id != -2) return id;
  }
  // One goal after the other: the nucleus is one of what top_k leaves.
  for (int goal = k > 0 ? 0 : 1; goal < (nucleus ? 2 : 1); ++goal) {
    if (goal == 1 && k > 0) total = RowMass(block, tiles, read, weight, low);
    low = SearchBorder(block, tiles,
                       {.k = goal == 0 ? k : 0, .nucleus = goal == 1, .mass = row.top_p * total},
                       weight, low);
  }
  return Draw(block, tiles, read, weight, low);
}

// The k by which DrawFiltered() looks for candidates; 0 where it does not.
__device__ __forceinline__ int32_t QuickK(const SampleRow& row, int32_t vocabulary) {
  if (row.temperature < kMinTemperature) return 0;
  if (row.top_k > 0 && row.top_k < vocabulary) return row.top_k <= kSampleQuick ? row.top_k : 0;
  return row.top_p < 1 ? kSampleNucleus : 0;
}

}  // namespace millrace

#endif  // KERNELS_SAMPLE_SAMPLE_KERNEL_SELECT_CUH_
