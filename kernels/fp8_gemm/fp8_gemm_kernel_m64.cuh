// 33 to 64 tokens, on Hopper: y [M, N] = x [M, K] w [N, K]', E4M3, scales of blocks, with the
// tokens on the 64-row side of the tensor cores: of a stage's sums a thread has two tokens', so two
// factors scale them.
//
// Grid: groups of 1, 2, 3 or 6 blocks, each a cluster. A block has `own` tiles of kOutputs outputs
// to itself; one more tile the blocks of a group share by K, in equal parts.
//   warpgroups    64 outputs each
//   three warps   keep a ring of stages full: weights, x, scales of x. One thread that asked for
//                 all three would be slower than memory (few_tokens.md)
// The first weights are asked for before the block meets, let alone the step's inputs exist. The
// next kernel is let start when few weights are left to ask for; the ring leaves it half of the SM,
// and its first weights come under this one's end. The sums of a shared tile are exchanged as in
// fp8_gemm_kernel_split.cuh.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_M64_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_M64_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel_m64_store.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma_fp8.cuh"

namespace millrace::fp8_m64 {

template <int kOutputsOfTile>
struct Traits {
  static constexpr int kOutputs = kOutputsOfTile;

  static constexpr int kTokens = 64;
  static constexpr int kDepth = 128;  // of K, a stage
  static constexpr int kWidth = 64;   // outputs of a warpgroup
  static constexpr int kConsumers = 128 * (kOutputs / kWidth);
  static constexpr int kWarps = kConsumers / 32;
  static constexpr int kThreads = kConsumers + 96;
  static constexpr int kSums = kWidth / 2;  // a thread
  // Half of the SM, so that the next kernel fits beside it.
  static constexpr int kBlocksPerSm = 2;
  static constexpr int kStages = 108 * 1024 / ((kOutputs + kTokens) * kDepth);
  // Stages of weights still to ask for when the next kernel may start (few_tokens.md).
  static constexpr int kNextStartsAt = kOutputs == 64 ? 5 : 2;
  // Most blocks of a group.
  static constexpr int kMostSplits = kOutputs == 64 ? 6 : 2;
  // The sums that a block's share of a tile comes from, 16 tokens x 8 outputs a piece, and the
  // stages of w that they take up.
  static constexpr int kPieceBytes = 512;
  static constexpr int kPieces = kWidth / 8;  // of a warp
  static constexpr int kPiecesOfStage = kOutputs * kDepth / kPieceBytes;
  static constexpr int kSumStages = kMostSplits > 2 ? 3 : 2;
  static_assert(kStages > kSumStages);

  struct Smem {
    alignas(1024) uint8_t w[kStages][kOutputs * kDepth];
    alignas(1024) uint8_t x[kStages][kTokens * kDepth];
    alignas(128) float x_scale[kStages][kTokens];
    uint64_t full[kStages];
    uint64_t empty[kStages];
    uint64_t ready;  // every block of the group takes sums
    uint64_t sent;   // the others' sums of this block's share are there
  };
  static_assert(sizeof(Smem) <= 228 * 1024 / kBlocksPerSm - 1024);  // 1 KiB a block is the system's
  static constexpr uint32_t kStageBytes = (kOutputs + kTokens) * kDepth + kTokens * 4;
};

struct Maps {
  CUtensorMap w, x, x_scale;
};

// Pieces of a warp's sums that are a block's share where `splits` blocks have a tile: the first
// blocks have as many, the last ones what is left.
constexpr int MostOfShare(int pieces, int splits) { return (pieces + splits - 1) / splits; }

// What a block does, in this order: tiles of its own, with all of K, then its part of the shared
// one.
struct Work {
  __device__ __forceinline__ Work(const Fp8GemmGroups& shape, int inputs)
      : splits(shape.splits),
        rank(static_cast<int>(blockIdx.x) % splits),
        own(shape.own),
        segments(own + 1),
        depth((inputs + 127) / 128),
        begin(depth * rank / splits),
        end(depth * (rank + 1) / splits) {
    const int tile = static_cast<int>(blockIdx.x) / splits * (own * splits + 1);
    first = tile + rank * own;
    shared = tile + own * splits;
  }
  // A segment's tile and its part of K, in blocks of 128.
  __device__ __forceinline__ int Tile(int i) const { return i < own ? first + i : shared; }
  __device__ __forceinline__ int Begin(int i) const { return i < own ? 0 : begin; }
  __device__ __forceinline__ int End(int i) const { return i < own ? depth : end; }
  __device__ __forceinline__ int Stages() const { return own * depth + end - begin; }
  // Of another block of a group of kSplits.
  template <int kSplits>
  __device__ __forceinline__ int StagesOf(int of) const {
    return own * depth + depth * (of + 1) / kSplits - depth * of / kSplits;
  }

  const int splits, rank, own, segments, depth, begin, end;
  int first, shared;
};

// The stages of a block in their order, from the first one.
struct Walk {
  __device__ __forceinline__ explicit Walk(const Work& work) : work(work) { Enter(0); }
  __device__ __forceinline__ void Next() {
    if (++k == end) Enter(segment + 1);
  }
  __device__ __forceinline__ void Enter(int i) {
    segment = i;
    tile = work.Tile(i);
    k = work.Begin(i);
    end = work.End(i);
  }
  const Work& work;
  int segment, tile, k, end;
};

// One lane of the warp, known as such to the compiler.
__device__ __forceinline__ bool Elected() {
  uint32_t is;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(is));
  return is != 0;
}

enum Role : int { kWeights, kInputs, kScales };

// A warp that fills one part of the stages.
template <typename T, Role kRole>
class Producer {
 public:
  __device__ __forceinline__ Producer(const Maps& maps, typename T::Smem& smem, const Work& work)
      : maps_(maps), smem_(smem), at_(work), count_(work.Stages()) {}

  __device__ __forceinline__ void Prefetch() const {
    if (Elected()) PrefetchMap(Map());
  }

  // The first time around the ring.
  __device__ __forceinline__ void Start() {
    const bool elected = Elected();
    for (; i_ < T::kStages && i_ < count_; ++i_) {
      if (elected) Load(i_);
      at_.Next();
    }
  }

  __device__ __forceinline__ void Run() {
    const bool elected = Elected();
    for (; i_ < count_; ++i_) {
      if (kRole == kWeights && i_ + T::kNextStartsAt >= count_) StartNextGrid();
      Wait(&smem_.empty[slot_], parity_);
      if (elected) Load(slot_);
      at_.Next();
      Advance();
    }
    if (kRole == kWeights) StartNextGrid();
  }

  // When the stages that take up sums are read, tells the group.
  __device__ __forceinline__ void Open(int splits) {
    for (; i_ < count_ + T::kSumStages; ++i_) {
      if (i_ >= T::kStages) {
        Wait(&smem_.empty[slot_], parity_);
        Advance();
      }
    }
    if (Elected()) {
      for (int r = 0; r < splits; ++r) ArriveRemote(&smem_.ready, r);
    }
  }

 private:
  __device__ __forceinline__ const CUtensorMap& Map() const {
    return kRole == kWeights ? maps_.w : kRole == kInputs ? maps_.x : maps_.x_scale;
  }
  __device__ __forceinline__ void Advance() {
    if (++slot_ == T::kStages) {
      slot_ = 0;
      parity_ ^= 1;
    }
  }
  __device__ __forceinline__ void Load(int slot) const {
    if constexpr (kRole == kWeights) {
      ArriveExpect(&smem_.full[slot], T::kStageBytes);
      LoadBox2(smem_.w[slot], Map(), &smem_.full[slot], at_.k * T::kDepth, at_.tile * T::kOutputs);
    } else if constexpr (kRole == kInputs) {
      LoadBox2(smem_.x[slot], Map(), &smem_.full[slot], at_.k * T::kDepth, 0);
    } else {
      LoadBox2(smem_.x_scale[slot], Map(), &smem_.full[slot], 0, at_.k);
    }
  }

  const Maps& maps_;
  typename T::Smem& smem_;
  Walk at_;
  const int count_;
  int i_ = 0;
  int slot_ = 0;
  uint32_t parity_ = 0;
};

// All that a warp does for one of the step's inputs.
template <typename T, Role kRole>
__device__ __forceinline__ void Fill(const Maps& maps, typename T::Smem& smem, const Work& work) {
  Producer<T, kRole> producer(maps, smem, work);
  producer.Prefetch();
  WaitForPriorGrid();
  producer.Start();
  producer.Run();
}

// 64 outputs of the tile.
template <typename T>
class Consumer {
 public:
  // Asks for the scales of the weights of the block's first stages; may come before the step's
  // inputs exist.
  __device__ __forceinline__ Consumer(const Fp8GemmKernelArgs& args, typename T::Smem& smem,
                                      const Work& work, int warp)
      : args_(args),
        smem_(smem),
        work_(work),
        warp_(warp),
        wg_(warp / 4),
        last_(work.Stages() - 1),
        w_scale_(WeightScales(0)),
        w_scale_next_(WeightScales(32)) {}

  __device__ __forceinline__ void Run(int segment) {
#pragma unroll
    for (float& sum : total_) sum = 0;
    const int end = stage_ + work_.End(segment) - work_.Begin(segment);
    for (; stage_ < end; ++stage_) {
      const int i = stage_ % 32;
      if (i == 0 && stage_ > 0) {
        w_scale_ = w_scale_next_;
        w_scale_next_ = WeightScales(stage_ + 32);
      }
      Step(__shfl_sync(0xffffffffu, w_scale_, i));
    }
  }

  // A tile of the block's own.
  __device__ __forceinline__ void StoreOwn(int tile) {
    StoreSums(args_, tile * T::kOutputs + wg_ * T::kWidth, warp_ % 4 * 16, total_);
  }

  // Sends the others their shares of the shared tile, adds up and stores its own: of a warp's
  // outputs some that lie side by side.
  template <int kSplits>
  __device__ __forceinline__ void Share() {
    constexpr int kMost = MostOfShare(T::kPieces, kSplits);
    static_assert(kSplits * T::kWarps * kMost <= T::kSumStages * T::kPiecesOfStage);
    if (warp_ % 4 * 16 >= args_.tokens) return;
    Wait(&smem_.ready, 0);
#pragma unroll
    for (int i = 0; i < T::kPieces; ++i) {
      const int owner = i / kMost;
      const float* const s = total_ + 4 * i;
      float4* const to =
          At(work_.StagesOf<kSplits>(owner), (work_.rank * T::kWarps + warp_) * kMost + i % kMost);
      const float4 sums = {s[0], s[1], s[2], s[3]};
      if (owner == work_.rank) {
        *to = sums;
      } else {
        SendRemote(to, sums, &smem_.sent, owner);
      }
    }
    constexpr int kWhole = T::kPieces / kMost, kLast = T::kPieces % kMost;
    if (work_.rank < kWhole) {
      AddUpAndStore<kSplits, kMost>();
    } else if constexpr (kLast > 0) {
      if (work_.rank == kWhole) AddUpAndStore<kSplits, kLast>();
    }
  }

 private:
  // A share of kCount pieces of each warp.
  template <int kSplits, int kCount>
  __device__ __forceinline__ void AddUpAndStore() {
    constexpr int kMost = MostOfShare(T::kPieces, kSplits);
    Wait(&smem_.sent, 0);
    float share[4 * kCount] = {};
#pragma unroll
    for (int r = 0; r < kSplits; ++r) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float4 v = *At(last_ + 1, (r * T::kWarps + warp_) * kMost + i);
        share[4 * i] += v.x;
        share[4 * i + 1] += v.y;
        share[4 * i + 2] += v.z;
        share[4 * i + 3] += v.w;
      }
    }
    const int output = work_.shared * T::kOutputs + wg_ * T::kWidth + work_.rank * kMost * 8;
    StoreSums(args_, output, warp_ % 4 * 16, share);
  }

  // One stage.
  __device__ __forceinline__ void Step(float w_scale) {
    Wait(&smem_.full[slot_], parity_);
    // Read and used ahead of the wait for the products: an arrival does not wait for loads that
    // nobody has used yet (fp8_gemm_kernel_token_scales.cuh).
    const float* const scales = smem_.x_scale[slot_] + warp_ % 4 * 16 + lane_ / 4;
    float scale[2] = {scales[0] * w_scale, scales[8] * w_scale};
    WgmmaHold(scale);
    float part[T::kSums];
    const uint64_t x = WgmmaMatrix128(smem_.x[slot_], 1024, 0);
    const uint64_t w = WgmmaMatrix128(smem_.w[slot_] + wg_ * T::kWidth * T::kDepth, 1024, 0);
    WgmmaFence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      WgmmaE4M3<T::kWidth>::FromShared(part, WgmmaAdvance(x, 32 * i), WgmmaAdvance(w, 32 * i),
                                       i > 0);
    }
    WgmmaCommit();
    WgmmaWait<0>();
    WgmmaHold(part);
    __syncwarp();
    if (lane_ == 0) Arrive(&smem_.empty[slot_]);
    if (++slot_ == T::kStages) {
      slot_ = 0;
      parity_ ^= 1;
    }
#pragma unroll
    for (int i = 0; i < T::kSums; ++i) total_[i] += part[i] * scale[i / 2 % 2];
  }

  // Of 32 of the block's stages from this one on, one in each lane. Not of a segment's: its first
  // products would wait for them.
  __device__ __forceinline__ float WeightScales(int from) const {
    const int stage = min(from + lane_, last_);
    const int segment = min(stage / work_.depth, work_.own);
    const int k = work_.Begin(segment) + stage - segment * work_.depth;
    const int output = work_.Tile(segment) * T::kOutputs + wg_ * T::kWidth;
    return __ldg(args_.weight_scale +
                 min(output, args_.outputs - 1) / 128 * args_.weight_scale_stride + k);
  }

  // Where a block that has so many stages takes up a piece of sums.
  __device__ __forceinline__ float4* At(int stages, int piece) const {
    const int slot = (stages + piece / T::kPiecesOfStage) % T::kStages;
    return reinterpret_cast<float4*>(smem_.w[slot] + piece % T::kPiecesOfStage * T::kPieceBytes) +
           lane_;
  }

  const Fp8GemmKernelArgs& args_;
  typename T::Smem& smem_;
  const Work& work_;
  const int warp_;  // the same in all lanes, to the compiler too
  const int wg_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  const int last_;  // stage of the block
  int stage_ = 0;
  int slot_ = 0;
  uint32_t parity_ = 0;
  float w_scale_, w_scale_next_;
  float total_[T::kSums];
};

// One thread, before any other uses them.
template <typename T>
__device__ __forceinline__ void InitBarriers(typename T::Smem& smem, const Work& work, int tokens) {
  for (int i = 0; i < T::kStages; ++i) {
    InitBarrier(&smem.full[i], 1);
    InitBarrier(&smem.empty[i], T::kWarps);
  }
  InitBarrier(&smem.ready, work.splits);
  InitBarrier(&smem.sent, 1);
  FenceBarrierInit();
  const int warps = (tokens + 15) / 16 * (T::kWarps / 4);
  const int most = MostOfShare(T::kPieces, work.splits);
  const int pieces = max(0, min(most, T::kPieces - work.rank * most));
  ArriveExpect(&smem.sent, (work.splits - 1) * warps * pieces * T::kPieceBytes);
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads, T::kBlocksPerSm)
    Fp8GemmM64(const __grid_constant__ Fp8GemmKernelArgs args, const Fp8GemmGroups shape,
               const __grid_constant__ Maps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t raw[];
  typename T::Smem& smem = *reinterpret_cast<typename T::Smem*>(raw);
  // Uniform, so that what follows from it stays in uniform registers.
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  const Work work(shape, args.inputs);
  Producer<T, kWeights> weights(maps, smem, work);
  if (warp == T::kWarps) {
    weights.Prefetch();
    if (Elected()) InitBarriers<T>(smem, work, args.tokens);
    __syncwarp();
    weights.Start();
  }
  __syncthreads();
  if (shape.splits > 1) ClusterMeet();  // the barriers that others arrive at exist
  if (warp == T::kWarps) {
    WaitForPriorGrid();
    weights.Run();
    if (shape.splits > 1) weights.Open(shape.splits);
  } else if (warp == T::kWarps + 1) {
    Fill<T, kInputs>(maps, smem, work);
  } else if (warp == T::kWarps + 2) {
    Fill<T, kScales>(maps, smem, work);
  } else {
    Consumer<T> consumer(args, smem, work, warp);
    WaitForPriorGrid();
    for (int i = 0; i < work.segments; ++i) {
      consumer.Run(i);
      if (shape.splits == 1 || i < work.own) consumer.StoreOwn(work.Tile(i));
    }
    // Nobody reaches into a block that has ended: it waits for all that others do to it.
    if (shape.splits == 2) consumer.template Share<2>();
    if constexpr (T::kMostSplits > 2) {
      if (shape.splits == 3) consumer.template Share<3>();
      if (shape.splits == 6) consumer.template Share<6>();
    }
  }
#else
  __trap();  // compiled for another architecture, or for sm_90 without its own instructions
#endif
}

}  // namespace millrace::fp8_m64

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_M64_CUH_
