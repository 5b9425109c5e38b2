// Sample: a cluster of blocks a row. The row is read once from memory into the shared memory (and
// some registers) of the cluster, where its lists are applied and all passes run: the maximum,
// which is all that greedy rows need; masses; the gathering of the few logits that the filters are
// decided on, which the first block sorts; and the draw. Bound by the one read.
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/sample/sample_kernel_select.cuh"
#include "kernels/sample/sample_philox.h"

namespace millrace {
namespace {

extern __shared__ __align__(16) char shared_memory[];

__device__ __forceinline__ SampleShared& Shared() {
  return *reinterpret_cast<SampleShared*>(shared_memory);
}

// Starts the read of row r of `logits`. Nothing of the row may be touched yet.
template <int kHeld, bool kStaged>
__device__ __forceinline__ void StartRow(SampleTiles<kHeld, kStaged>& tiles,
                                         const Cluster& cluster) {
  const int32_t warps = static_cast<int32_t>(cluster.rank) * kSampleWarps + Warp();
  tiles.warp_first = warps * tiles.tiles * kSampleTile;
  tiles.shared = reinterpret_cast<float*>(shared_memory + sizeof(SampleShared)) +
                 Warp() * (tiles.tiles - kHeld) * kSampleTile;
  tiles.aligned = reinterpret_cast<uintptr_t>(tiles.global) % 16 == 0;
  tiles.StartLoading(Shared().barriers[Warp()]);
}

// Before the wait for the prior grid.
__device__ __forceinline__ void InitShared() {
  if (Lane() < kSampleParts) InitBarrier(&Shared().barriers[Warp()][Lane()]);
  if (threadIdx.x == 0) Shared().list_size = 0;
  PublishBarriers();
  __syncwarp();
}

struct TopOut {
  int32_t* ids;
  float* logprobs;
  int32_t width;
};

__device__ __forceinline__ void WriteTop(const TopOut& out, int32_t i, int32_t id, float logprob) {
  if (i >= out.width) return;
  out.ids[i] = id;
  out.logprobs[i] = logprob;
}

// Where the row's `count` largest do not fit a list, as where thousands are equal: one after the
// other.
template <typename Tiles>
__device__ __forceinline__ void WriteTopSlowly(SampleBlock& block, const Tiles& tiles,
                                               int32_t count, double log_sum, const TopOut& out) {
  uint64_t last = ~uint64_t{0};
  for (int32_t i = 0; i < count; ++i) {
    uint64_t best = 0;
    tiles.ForEach([&](const float4& v, int32_t id) {
      const float x[4] = {v.x, v.y, v.z, v.w};
      for (int32_t j = 0; j < 4; ++j) {
        const uint64_t c = id + j < tiles.vocabulary ? PackCandidate(x[j], id + j) : 0;
        if (c < last && c > best) best = c;
      }
    });
    last = ReduceTop(block, best, true, 0).best;
    if (block.cluster.rank == 0 && threadIdx.x == 0) {
      WriteTop(out, i, CandidateId(last), static_cast<float>(CandidateLogit(last) - log_sum));
    }
  }
}

// What is known of the row as given.
struct RawRow {
  double log_sum = 0;
  float bound = 0;     // of the count-th largest logit
  float lane_max = 0;  // of this thread's
};

// Writes the row's `count` largest logits, largest first, and clears the places behind them.
template <typename Tiles>
__device__ __forceinline__ void WriteLargest(SampleBlock& block, const Tiles& tiles, int32_t count,
                                             const RawRow& raw, const TopOut& out) {
  count = min(count, tiles.vocabulary);
  const int32_t t = static_cast<int32_t>(threadIdx.x);
  if (block.cluster.rank == 0 && t >= count) WriteTop(out, t, -1, 0.0f);
  if (count == 0) return;
  const int32_t n = Gather(block, tiles, raw.bound, INFINITY, raw.lane_max);
  if (n < 0) return WriteTopSlowly(block, tiles, count, raw.log_sum, out);
  if (block.cluster.rank != 0) return;
  SortList(block.s, n);
  if (t < count) {
    const uint64_t c = block.s.list[t];
    WriteTop(out, t, CandidateId(c), static_cast<float>(CandidateLogit(c) - raw.log_sum));
  }
}

__device__ __forceinline__ bool HasChanges(const SampleRow& r) {
  const bool penalties =
      r.repetition_penalty != 1 || r.frequency_penalty != 0 || r.presence_penalty != 0;
  return (penalties && r.num_penalties > 0) || r.num_biases > 0 || r.num_banned > 0;
}

// Applies the row's lists; at(id) is where the block keeps that logit, null where it does not.
template <typename At>
__device__ void ApplyLists(const SampleRow& r, const At& at) {
  const int32_t t = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = t; i < r.num_biases; i += kSampleThreads) {
    if (float* const x = at(r.bias_ids[i])) *x += r.bias_values[i];
  }
  __syncthreads();
  for (int32_t i = t; i < r.num_banned; i += kSampleThreads) {
    if (float* const x = at(r.banned_ids[i])) *x = -INFINITY;
  }
  __syncthreads();
  for (int32_t i = t; i < r.num_penalties; i += kSampleThreads) {
    float* const x = at(r.penalty_ids[i]);
    if (x == nullptr) continue;
    float logit = *x;
    logit = logit > 0 ? logit / r.repetition_penalty : logit * r.repetition_penalty;
    const int32_t count = r.penalty_counts[i];
    if (count > 0) {
      logit -= r.frequency_penalty * static_cast<float>(count);
      logit -= r.presence_penalty;
    }
    *x = logit;
  }
  __syncthreads();
}

// Rows on the chip: in place; tiles in registers go through the lists' memory, two at a time.
template <int kHeld>
__device__ void Change(SampleBlock& block, SampleTiles<kHeld, true>& tiles, float*) {
  constexpr int kTilesAtOnce = 2;
  static_assert(kHeld % kTilesAtOnce == 0);
  static_assert(2 * sizeof(block.s.list) >= kSampleWarps * kTilesAtOnce * kSampleTile * 4);
  float* const area = reinterpret_cast<float*>(block.s.list);
  const int32_t size = tiles.tiles * kSampleTile;
  const int32_t first = tiles.WarpFirst(0);
  float* const kept = tiles.shared - Warp() * (tiles.tiles - kHeld) * kSampleTile;
  float* const mine = area + Warp() * kTilesAtOnce * kSampleTile + Lane() * 4;
  __syncthreads();  // all have read their tiles
#pragma unroll
  for (int t = 0; t < max(kHeld, 1); t += kTilesAtOnce) {
#pragma unroll
    for (int j = 0; j < kTilesAtOnce && kHeld > 0; ++j) {
      *reinterpret_cast<float4*>(mine + j * kSampleTile) = tiles.held[t + j];
    }
    __syncthreads();
    ApplyLists(block.s.row, [&](int32_t id) -> float* {
      const int32_t local = id - first;
      if (id < 0 || id >= tiles.vocabulary || local < 0 || local >= kSampleWarps * size) {
        return nullptr;
      }
      const int32_t warp = local / size, i = local % size, tile = i / kSampleTile;
      if (tile >= kHeld) {
        if (t > 0) return nullptr;
        return kept + warp * (tiles.tiles - kHeld) * kSampleTile + i - kHeld * kSampleTile;
      }
      if (tile < t || tile >= t + kTilesAtOnce) return nullptr;
      return area + warp * kTilesAtOnce * kSampleTile + i - t * kSampleTile;
    });
#pragma unroll
    for (int j = 0; j < kTilesAtOnce && kHeld > 0; ++j) {
      tiles.held[t + j] = *reinterpret_cast<const float4*>(mine + j * kSampleTile);
    }
  }
  __syncthreads();
}

// Rows in global memory: in a copy.
__device__ void Change(SampleBlock& block, SampleTiles<0, false>& tiles, float* copy) {
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < tiles.vocabulary; i += kSampleThreads) {
    copy[i] = tiles.global[i];
  }
  __syncthreads();
  ApplyLists(block.s.row,
             [&](int32_t id) { return id >= 0 && id < tiles.vocabulary ? copy + id : nullptr; });
  tiles.global = copy;
  tiles.aligned = reinterpret_cast<uintptr_t>(copy) % 16 == 0;
}

struct Picked {
  SampleFlag flag = SampleFlag::kOk;
  int32_t id = -1;
  bool here = false;  // this block writes the result
};

// The row's token, after its lists were applied.
template <typename Tiles>
__device__ __forceinline__ Picked Pick(SampleBlock& block, const Tiles& tiles,
                                       const SampleBest& best, bool finite,
                                       const SampleRead& read) {
  const SampleRow& row = block.s.row;
  const SampleTop top =
      ReduceTop(block, PackCandidate(best.logit, best.id), finite, QuickK(row, tiles.vocabulary));
  const float maximum = CandidateLogit(top.best);
  const int32_t id = CandidateId(top.best);
  Picked picked = {.here = block.cluster.rank == 0};
  if (!top.finite || maximum == INFINITY || isnan(maximum)) {
    picked.flag = SampleFlag::kNotFinite;
  } else if (id >= tiles.vocabulary || maximum == -INFINITY) {
    picked.flag = SampleFlag::kNothingLeft;
  } else if (row.temperature < kMinTemperature) {
    picked.id = id;
  } else {
    const SampleWeight weight = {maximum, FactorOf(row.temperature)};
    picked.id = DrawFiltered(block, tiles, read, weight, top.bound);
    picked.here = picked.id >= 0;
  }
  return picked;
}

// The temperature of the masses that the reading of the row should sum up, as they will be asked
// for; 0: of none.
__device__ __forceinline__ float TemperatureOfRead(const SampleRow& row, int32_t vocabulary) {
  if (row.off) return 0;
  if (row.num_top_logprobs >= 0) return 1;
  const bool partial = row.min_p > 0 || (row.top_k > 0 && row.top_k < vocabulary);
  if (row.temperature < kMinTemperature || partial || HasChanges(row)) return 0;
  return row.temperature;
}

// Waits for the row.
template <typename Tiles>
__device__ __forceinline__ SampleBest FinishRow(const Tiles& tiles, float temperature, bool& finite,
                                                SampleRead& read) {
  uint64_t* const barriers = Shared().barriers[Warp()];
  SampleBest best;
  if (temperature > 0) {
    read.factor = FactorOf(temperature);
    best = tiles.template FinishLoading<true>(barriers, read.factor, finite, read.mass);
  } else {
    best = tiles.template FinishLoading<false>(barriers, 0, finite, read.mass);
  }
  read.maximum = best.logit;
  return best;
}

__device__ void WriteRow(const SampleKernelArgs& args, const SampleRow& row, const Picked& picked,
                         double log_sum) {
  const int64_t r = blockIdx.y;
  args.ids[r] = picked.id;
  args.flags[r] = static_cast<int32_t>(picked.flag);
  const bool scored = !row.off && row.num_top_logprobs >= 0 && picked.id >= 0;
  args.logprob[r] =
      scored ? static_cast<float>(args.logits[r * args.logits_stride + picked.id] - log_sum) : 0.0f;
  if (args.last_tokens != nullptr && !row.off && row.slot >= 0 && row.slot < args.slots) {
    args.last_tokens[row.slot] = max(picked.id, 0);
  }
}

__device__ __forceinline__ void ReadRow(SampleShared& s, const SampleRow* from) {
  static_assert(sizeof(SampleRow) % 4 == 0 && sizeof(SampleRow) / 4 <= kSampleThreads);
  if (threadIdx.x < sizeof(SampleRow) / 4) {
    reinterpret_cast<uint32_t*>(&s.row)[threadIdx.x] =
        reinterpret_cast<const uint32_t*>(from)[threadIdx.x];
  }
  __syncthreads();
  if (threadIdx.x == 0) s.uniform = PhiloxUniform(s.row.seed, s.row.position);
}

template <int kHeld, bool kStaged>
__global__ void __launch_bounds__(kSampleThreads, kHeld == 0 ? 2 : 1)
    SampleRows(const __grid_constant__ SampleKernelArgs args) {
  using Tiles = SampleTiles<kHeld, kStaged>;
  SampleBlock block = {.s = Shared(), .cluster = ThisCluster()};
  SampleShared& s = block.s;
  const SampleRow& row = s.row;
  const int64_t r = blockIdx.y;
  InitShared();
  SayEntered(block.cluster);
  WaitForPriorGrid();
  StartNextGrid();
  Tiles tiles;
  tiles.global = args.logits + r * args.logits_stride;
  tiles.tiles = args.tiles;
  tiles.vocabulary = args.vocabulary;
  StartRow(tiles, block.cluster);
  WaitUntilAllEntered(block.cluster);
  ReadRow(s, args.rows + r);
  const TopOut top_out = {args.top_ids + r * args.top_ids_stride,
                          args.top_logprobs + r * args.top_logprobs_stride, kSampleTopLogprobs};
  bool finite;
  SampleRead read;
  SampleBest best = FinishRow(tiles, TemperatureOfRead(row, args.vocabulary), finite, read);
  RawRow raw = {.lane_max = best.logit};
  int32_t listed = 0;
  if (!row.off && row.num_top_logprobs >= 0) {
    const SampleTop top = ReduceTop(block, PackCandidate(best.logit, best.id), finite,
                                    min(row.num_top_logprobs, args.vocabulary));
    if (top.finite) {
      const SampleWeight weight = {CandidateLogit(top.best), FactorOf(1)};
      raw.log_sum = weight.maximum + log(RowMass(block, tiles, read, weight, -INFINITY));
      raw.bound = top.bound;
      listed = row.num_top_logprobs;
    }
  }
  WriteLargest(block, tiles, listed, raw, top_out);
  Picked picked = {.here = block.cluster.rank == 0};
  if (!row.off) {
    if (HasChanges(row)) {
      Change(block, tiles, args.changed + r * args.vocabulary);
      best = tiles.Best();
      read = {.maximum = best.logit};
    }
    picked = Pick(block, tiles, best, finite, read);
  }
  if (picked.here && threadIdx.x == 0) WriteRow(args, row, picked, raw.log_sum);
}

template <int kHeld, bool kStaged>
__global__ void __launch_bounds__(kSampleThreads, kHeld == 0 ? 2 : 1)
    ScoreRows(const __grid_constant__ TokenLogprobsKernelArgs args) {
  using Tiles = SampleTiles<kHeld, kStaged>;
  SampleBlock block = {.s = Shared(), .cluster = ThisCluster()};
  const int64_t r = blockIdx.y;
  InitShared();
  SayEntered(block.cluster);
  WaitForPriorGrid();
  StartNextGrid();
  Tiles tiles;
  tiles.global = args.logits + r * args.logits_stride;
  tiles.tiles = args.tiles;
  tiles.vocabulary = args.vocabulary;
  StartRow(tiles, block.cluster);
  WaitUntilAllEntered(block.cluster);
  const int32_t id = args.targets[r];
  bool finite;
  SampleRead read;
  const SampleBest best = FinishRow(tiles, 1, finite, read);
  const SampleTop top =
      ReduceTop(block, PackCandidate(best.logit, best.id), finite, min(args.top, args.vocabulary));
  const bool known = top.finite && id >= 0 && id < args.vocabulary;
  const float target = known ? tiles.global[id] : NAN;
  RawRow raw = {.bound = top.bound, .lane_max = best.logit};
  uint32_t above = 0;
  if (top.finite) {
    const SampleWeight weight = {CandidateLogit(top.best), FactorOf(1)};
    raw.log_sum = weight.maximum + log(RowMass(block, tiles, read, weight, -INFINITY));
    const float bound = LogitOf(KeyOf(target) + 1);
    above = RowMassAbove(block, tiles, weight, bound, bound).count[0];
  }
  WriteLargest(block, tiles, top.finite ? args.top : 0, raw,
               {args.top_ids + r * args.top_ids_stride,
                args.top_logprobs + r * args.top_logprobs_stride, args.top});
  if (block.cluster.rank == 0 && threadIdx.x == 0) {
    args.logprob[r] = known ? static_cast<float>(target - raw.log_sum) : NAN;
    args.rank[r] = known ? static_cast<int32_t>(above) + 1 : 0;
  }
}

template <typename Args>
cudaError_t LaunchRows(void (*const (&kernels)[3])(Args), const SamplePlan& plan, const Args& args,
                       cudaStream_t stream) {
  const int kept = plan.staged ? plan.tiles - plan.register_tiles : 0;
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>(plan.cluster), static_cast<unsigned>(args.num_rows)),
      .block = dim3(kSampleThreads),
      .shared_bytes = sizeof(SampleShared) + static_cast<size_t>(kept) * kSampleRoundLogits * 4,
      .cluster = plan.cluster};
  return Launch(kernels[!plan.staged ? 0 : plan.register_tiles == 0 ? 1 : 2], shape, stream, args);
}

}  // namespace

cudaError_t LaunchSample(const SamplePlan& plan, const SampleKernelArgs& args,
                         cudaStream_t stream) {
  static constexpr void (*kKernels[3])(SampleKernelArgs) = {
      SampleRows<0, false>, SampleRows<0, true>, SampleRows<kSampleRegisterTiles, true>};
  return LaunchRows(kKernels, plan, args, stream);
}

cudaError_t LaunchTokenLogprobs(const SamplePlan& plan, const TokenLogprobsKernelArgs& args,
                                cudaStream_t stream) {
  static constexpr void (*kKernels[3])(TokenLogprobsKernelArgs) = {
      ScoreRows<0, false>, ScoreRows<0, true>, ScoreRows<kSampleRegisterTiles, true>};
  return LaunchRows(kKernels, plan, args, stream);
}

}  // namespace millrace
