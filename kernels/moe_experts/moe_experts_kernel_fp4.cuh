// NVFP4 experts of few tokens on Hopper: products of a matrix's rows and up to 8 of its tokens at
// once.
//
// Persistent blocks; each takes an even part of the tiles of all items (MoePlan), in a row.
//   warps 0 to 15  multiply: a tile has 16 rows for each of kGroups groups of warps, gate's and
//   up's
//                  by turns of 8, and a group's warps share the inputs, 256 each (kPieces times)
//   warp 16        keeps a ring of tiles full, codes and scales, by the copy engine
//   warps 17 to 19 by turns add up the warps' sums of a tile, and store what comes of them
// Codes are widened to f16 and multiplied by their scale of 16, which is exact; then mma.sync with
// the tokens' FP8 codes as f16, which stay in registers for as long as the item lasts. Bound by
// reading the matrices.
#ifndef KERNELS_MOE_EXPERTS_MOE_EXPERTS_KERNEL_FP4_CUH_
#define KERNELS_MOE_EXPERTS_MOE_EXPERTS_KERNEL_FP4_CUH_

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/moe_experts/moe_experts_kernel.h"
#include "kernels/moe_experts/moe_experts_kernel_gate.cuh"
#include "kernels/ptx/fp8.cuh"
#include "kernels/ptx/fp8_quad.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/registers.cuh"
#include "kernels/ptx/tma.cuh"

namespace millrace::moe_fp4 {

inline constexpr int kPieceBytes = kMoeFp4Piece / 2;    // of a row
inline constexpr int kPieceScales = kMoeFp4Piece / 16;  // bytes of a row
inline constexpr int kScaleBox = 128;                   // bytes of a row, at most
inline constexpr int kMostSlots = 8;
inline constexpr int kFinishers = 3;  // warps, each with sums of its own
inline constexpr int kThreads = 32 * (kMoeFp4Warps + 1 + kFinishers);  // whole warpgroups
inline constexpr float kWidenedScale = 64.0f;  // a widened code is this much smaller

// Of gate and up, or of down alone. Codes: 128 bytes, rows, pieces.
struct Maps {
  CUtensorMap codes[2], scales[2];
};

// How a tile is divided, and the shared memory; bytes and offsets in bytes.
struct Layout {
  int pieces;       // of a row
  int groups;       // of warps, 16 rows each
  int group_warps;  // that share a row's pieces
  int rows;         // of a tile
  int code_bytes;   // of a slot, where the scales begin
  int scale_row;    // what a box of scales has of a row
  int scale_boxes;  // of each matrix
  int scale_box_bytes;
  int slot_bytes, slots;  // of the ring
  int sums;               // behind it, of each finisher
};
inline constexpr int kSumFloats = kMoeFp4Warps * 128;  // of a finisher

struct Barriers {
  uint64_t full[kMostSlots], empty[kMostSlots];
  uint64_t summed[kFinishers], free[kFinishers];  // a finisher's sums are there, are read
};

// Codes of a row at inputs k to k + 7, times the scale, as pairs of inputs (0, 2), (1, 3), (4, 6)
// and (5, 7): first as E4M3, whose bits they fit as they lie, 2^-6 as large, then as f16.
__device__ __forceinline__ void Widen(uint32_t codes, uint32_t scale, uint32_t (&pairs)[4]) {
  constexpr uint32_t kMagnitude = 0x1c1c1c1cu, kSign = 0x80808080u;
  const uint32_t even = (codes << 2 & kMagnitude) | (codes << 4 & kSign);
  const uint32_t odd = (codes >> 2 & kMagnitude) | (codes & kSign);
  const WidenedQuad evens = WidenE4M3Quad(even), odds = WidenE4M3Quad(odd);
  pairs[0] = evens.low, pairs[1] = odds.low, pairs[2] = evens.high, pairs[3] = odds.high;
#pragma unroll
  for (uint32_t& pair : pairs) {
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(pair), "r"(scale));
  }
}

// What a lane has of a piece of one token's row: inputs 64 t to 64 t + 63, t = lane % 4, in the
// order of Widen().
struct TokenPiece {
  uint32_t pairs[32];
};

// Elements 8 i to 8 i + 7 of a row of f32 or bf16; zeros of none.
__device__ __forceinline__ Floats<8> LoadEight(const void* row, bool bf16, int i) {
  Floats<8> x = {};
  if (row == nullptr) return x;
  if (bf16) {
    return Widened(Vec<__nv_bfloat16, 8>{LoadInPlace(static_cast<const uint4*>(row) + i)});
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const void* const from = static_cast<const uint4*>(row) + 2 * i + half;
    const Floats<4> v = Widened(Vec<float, 4>{LoadInPlace(from)});
#pragma unroll
    for (int j = 0; j < 4; ++j) x.v[4 * half + j] = v.v[j];
  }
  return x;
}

// Rounds the lane's 64 inputs of a token's row and keeps the codes; the scale of the piece's two
// groups of 128 is the larger one's, of which the other's is a power of two. All lanes take part.
__device__ __forceinline__ float TakePiece(const void* row, bool bf16, TokenPiece& to) {
  float amax = kMoeSmallestAmax;
#pragma unroll
  for (int i = 0; i < 8; ++i) amax = fmaxf(amax, Amax(LoadEight(row, bf16, i)));
  amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 1));
  const float mine = MoeScaleOf(amax), inverse = InverseOf(mine);
  const float scale = fmaxf(mine, __shfl_xor_sync(0xffffffffu, mine, 2));
  const uint32_t half = __half_as_ushort(__float2half_rn(mine * InverseOf(scale)));
  const uint32_t part = half | half << 16;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const Floats<8> x = LoadEight(row, bf16, i);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int first = j / 2 * 4 + j % 2;
      const uint32_t codes = EncodeE4M3Pair(x.v[first] * inverse, x.v[first + 2] * inverse);
      asm("mul.rn.f16x2 %0, %1, %2;"
          : "=r"(to.pairs[4 * i + j])
          : "r"(WidenE4M3Pair(codes)), "r"(part));
    }
  }
  return scale;
}

// A block's tiles, in order.
template <bool kGateUp>
class Tiles {
 public:
  __device__ __forceinline__ Tiles(const MoeKernelArgs& args, const Layout& layout)
      : items_(args.plan.items),
        matrix_rows_(kGateUp ? args.gate.rows : args.down.rows),
        tile_rows_(kGateUp ? layout.rows / 2 : layout.rows) {
    const int of_item = matrix_rows_ / tile_rows_;
    const int64_t tiles = int64_t{args.plan.sizes[kMoeItems]} * of_item;
    const int64_t first = tiles * blockIdx.x / gridDim.x;
    left_ = static_cast<int>(tiles * (blockIdx.x + 1) / gridDim.x - first);
    if (left_ == 0) return;
    items_ += first / of_item;
    row_ = static_cast<int>(first % of_item) * tile_rows_;
    item_ = *items_;
  }
  __device__ __forceinline__ bool any() const { return left_ > 0; }
  __device__ __forceinline__ const MoeItem& item() const { return item_; }
  // The tile's first row in each matrix of its expert, and in the stack of them.
  __device__ __forceinline__ int row() const { return row_; }
  __device__ __forceinline__ int StackRow() const { return item_.expert * matrix_rows_ + row_; }
  // To the next. Whether it is of another item.
  __device__ __forceinline__ bool Next() {
    --left_;
    row_ += tile_rows_;
    if (row_ < matrix_rows_) return false;
    row_ = 0;
    ++items_;
    if (left_ > 0) item_ = *items_;
    return true;
  }

 private:
  const MoeItem* items_;
  int matrix_rows_, tile_rows_;
  int left_, row_ = 0;
  MoeItem item_ = {};
};

// A place in a ring of `size`.
struct Turn {
  int at = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Next(int size) {
    if (++at == size) at = 0, parity ^= 1;
  }
};

template <bool kGateUp>
__device__ __forceinline__ void Produce(const MoeKernelArgs& args, const Maps& maps,
                                        const Layout& layout, uint8_t* shared, Barriers& barriers) {
  const uint64_t policy = EvictFirst();
  constexpr int kMatrices = kGateUp ? 2 : 1;
  // What a box of scales brings of each row, also where the row ends within it.
  const uint32_t bytes = static_cast<uint32_t>(layout.code_bytes +
                                               layout.rows * layout.scale_row * layout.scale_boxes);
  Turn turn;
  for (Tiles<kGateUp> tiles(args, layout); tiles.any(); tiles.Next(), turn.Next(layout.slots)) {
    uint64_t* const full = &barriers.full[turn.at];
    uint8_t* const slot = shared + turn.at * layout.slot_bytes;
    Wait(&barriers.empty[turn.at], turn.parity ^ 1);
    ArriveExpect(full, bytes);
    uint8_t* scales = slot + layout.code_bytes;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
      LoadBox3(slot + m * layout.code_bytes / kMatrices, maps.codes[m], full, 0, tiles.StackRow(),
               0);
      for (int b = 0; b < layout.scale_boxes; ++b, scales += layout.scale_box_bytes) {
        LoadBox2(scales, maps.scales[m], full, {b * kScaleBox, tiles.StackRow()}, policy);
      }
    }
  }
}

// The bytes at `offset` of a box with rows of 128 bytes, which the copy engine swizzles.
__device__ __forceinline__ int Swizzled(int offset) { return offset ^ (offset >> 3 & 0x70); }

// A multiplying warp.
template <int kPieces, bool kGateUp>
class Multiplier {
 public:
  __device__ __forceinline__ Multiplier(const MoeKernelArgs& args, const Layout& layout,
                                        const uint8_t* shared)
      : args_(args), layout_(layout), shared_(shared) {
    // Where the lane's codes of row g and of row g + 8 of the group's tile begin, and its scales.
    constexpr int kMatrices = kGateUp ? 2 : 1;
    const int rows = layout.rows / kMatrices;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = kGateUp ? group_ * 8 + g_ : group_ * 16 + g_ + 8 * half;
      codes_[half] = (piece_ * rows + row) * kPieceBytes + ((2 * t_) ^ g_) * 16 +
                     (kGateUp ? half * layout.code_bytes / 2 : 0);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const int at = (piece_ + p * layout.group_warps) * kPieceScales;
        const int box = (kGateUp ? half * layout.scale_boxes : 0) + at / kScaleBox;
        const int in_box = row * layout.scale_row + at % kScaleBox;
        scales_[p][half] = layout.code_bytes + box * layout.scale_box_bytes + 4 * t_ +
                           (layout.scale_row == kScaleBox ? Swizzled(in_box) : in_box);
      }
    }
    code_step_ = layout.group_warps * rows * kPieceBytes;
  }

  __device__ __forceinline__ void Run(uint8_t* shared, Barriers& barriers) {
    Tiles<kGateUp> tiles(args_, layout_);
    if (!tiles.any()) return;
    float* const sums_at =
        reinterpret_cast<float*>(shared + layout_.sums) + warp_ * 128 + lane_ * 4;
    Turn slot, finisher;
    const uint8_t* from = shared_;
    TakeItem(tiles.item());
    while (true) {
      float sums[4] = {};
      Wait(&barriers.full[slot.at], slot.parity);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        if (kPieces == 1 || piece_ + p * layout_.group_warps < layout_.pieces) {
          Multiply(from, p, sums);
        }
      }
      Wait(&barriers.free[finisher.at], finisher.parity ^ 1);
      StoreVec(sums_at + finisher.at * kSumFloats,
               Narrowed<float>(Floats<4>{sums[0], sums[1], sums[2], sums[3]}));
      __syncwarp();
      if (lane_ == 0) {
        Arrive(&barriers.summed[finisher.at]);
        Arrive(&barriers.empty[slot.at]);  // what was read of it is in the sums
      }
      slot.Next(layout_.slots);
      from = slot.at == 0 ? shared_ : from + layout_.slot_bytes;
      finisher.Next(kFinishers);
      const bool other = tiles.Next();
      if (!tiles.any()) return;
      if (other) TakeItem(tiles.item());
    }
  }

 private:
  // The item's tokens into registers.
  __device__ __forceinline__ void TakeItem(const MoeItem& item) {
    const uint8_t* const row = g_ < item.choices ? RowOf(item.first + g_) : nullptr;
    const bool bf16 = kGateUp && args_.x_bf16;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int piece = piece_ + p * layout_.group_warps;
      const bool has = row != nullptr && piece < layout_.pieces;
      const int at = (piece * kMoeFp4Piece + 64 * t_) * (bf16 ? 2 : 4);
      const float scale = TakePiece(has ? row + at : nullptr, bf16, x_[p]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        x_scale_[p][i] = __shfl_sync(0xffffffffu, scale, 4 * (2 * t_ + i));
      }
    }
  }

  __device__ __forceinline__ const uint8_t* RowOf(int place) const {
    if constexpr (!kGateUp) {
      return reinterpret_cast<const uint8_t*>(args_.hidden + int64_t{place} * args_.down.cols);
    }
    const int64_t at = args_.plan.order[place] / args_.chosen * args_.x_stride;
    return static_cast<const uint8_t*>(args_.x) + at * (args_.x_bf16 ? 2 : 4);
  }

  __device__ __forceinline__ void Multiply(const uint8_t* from, int p, float (&sums)[4]) {
    float part[2][4] = {};
    uint32_t scale_codes[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scale_codes[half] = *reinterpret_cast<const uint32_t*>(from + scales_[p][half]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t words[2][4], scale[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = (codes_[half] ^ i * 16) + p * code_step_;
        const uint4 v = *reinterpret_cast<const uint4*>(from + at);
        words[half][0] = v.x, words[half][1] = v.y, words[half][2] = v.z, words[half][3] = v.w;
        scale[half] = WidenE4M3Pair(scale_codes[half] >> 16 * i);
      }
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        uint32_t wide[2][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Widen(words[half][q], __byte_perm(scale[half], 0, q < 2 ? 0x1010 : 0x3232), wide[half]);
        }
        const uint32_t* const x = x_[p].pairs + 16 * i + 4 * q;
        MmaF16(part[0], wide[0][0], wide[1][0], wide[0][1], wide[1][1], x[0], x[1]);
        MmaF16(part[1], wide[0][2], wide[1][2], wide[0][3], wide[1][3], x[2], x[3]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += (part[0][i] + part[1][i]) * x_scale_[p][i % 2];
  }

  const MoeKernelArgs& args_;
  const Layout& layout_;
  const uint8_t* const shared_;
  const int warp_ = static_cast<int>(threadIdx.x) / 32;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  const int g_ = lane_ / 4, t_ = lane_ % 4;
  const int group_ = warp_ / layout_.group_warps, piece_ = warp_ % layout_.group_warps;
  int codes_[2], scales_[kPieces][2];  // offsets in a slot
  int code_step_;                      // to the warp's next piece
  TokenPiece x_[kPieces];
  float x_scale_[kPieces][2];  // of tokens 2t and 2t + 1
};

// A warp that adds up and stores.
template <bool kGateUp>
class Finisher {
 public:
  __device__ __forceinline__ Finisher(const MoeKernelArgs& args, const Layout& layout,
                                      const uint8_t* shared, int index)
      : args_(args),
        layout_(layout),
        index_(index),
        sums_(reinterpret_cast<const float*>(shared + layout.sums) + index * kSumFloats +
              lane_ * 4) {}

  __device__ __forceinline__ void Run(Barriers& barriers) {
    bool other = true;
    int turn = 0;
    uint32_t parity = 0;
    for (Tiles<kGateUp> tiles(args_, layout_); tiles.any(); turn = (turn + 1) % kFinishers) {
      if (turn == index_) {
        if (other) TakeItem(tiles.item());
        other = false;
        Wait(&barriers.summed[index_], parity);
        for (int group = 0; group < layout_.groups; ++group) Store(tiles, group, Sum(group));
        __syncwarp();
        if (lane_ == 0) Arrive(&barriers.free[index_]);  // what was read is stored
        parity ^= 1;
      }
      other |= tiles.Next();
    }
  }

 private:
  __device__ __forceinline__ void TakeItem(const MoeItem& item) {
    const auto factor = [&](const MoeMatrices& m) {
      const float stored = m.factors[item.expert];
      return kWidenedScale * (m.divides ? 1 / stored : stored);
    };
    factor_[0] = factor(kGateUp ? args_.gate : args_.down);
    if constexpr (!kGateUp) return;
    factor_[1] = factor(args_.up);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = lane_ % 4 * 2 + i;
      if (token >= item.choices) continue;
      const int choice = args_.plan.order[item.first + token];
      weight_[i] =
          args_.weights[choice / args_.chosen * args_.weights_stride + choice % args_.chosen];
    }
  }

  // Of the group's warps: rows g and g + 8 of tokens 2t and 2t + 1.
  __device__ __forceinline__ Floats<4> Sum(int group) const {
    const float* from = sums_ + group * layout_.group_warps * 128;
    Floats<4> sum = {};
#pragma unroll 8
    for (int w = 0; w < layout_.group_warps; ++w, from += 128) {
      const Floats<4> one = Widened(LoadVec<4>(from));
#pragma unroll
      for (int i = 0; i < 4; ++i) sum.v[i] += one.v[i];
    }
    return sum;
  }

  __device__ __forceinline__ void Store(const Tiles<kGateUp>& tiles, int group,
                                        const Floats<4>& sum) const {
    const int row = tiles.row() + group * (kGateUp ? 8 : 16) + lane_ / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = lane_ % 4 * 2 + i;
      if (token >= tiles.item().choices) continue;
      const int64_t place = tiles.item().first + token;
      if constexpr (kGateUp) {
        args_.hidden[place * args_.gate.rows + row] =
            MoeGated(sum.v[i] * factor_[0], sum.v[i + 2] * factor_[1], args_.limit) * weight_[i];
      } else {
        float* const to = args_.sums + place * args_.down.rows + row;
        to[0] = sum.v[i] * factor_[0];
        to[8] = sum.v[i + 2] * factor_[0];
      }
    }
  }

  const MoeKernelArgs& args_;
  const Layout& layout_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  const int index_;
  const float* const sums_;
  float factor_[2] = {};
  float weight_[2] = {};  // of tokens 2t and 2t + 1
};

template <int kPieces, bool kGateUp>
__global__ void __launch_bounds__(kThreads, 1)
    MoeFp4Kernel(const __grid_constant__ MoeKernelArgs args, const __grid_constant__ Maps maps,
                 const __grid_constant__ Layout layout) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ Barriers barriers;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = layout.groups * layout.group_warps;
  if (threadIdx.x == 0) {
    for (int m = 0; m < (kGateUp ? 2 : 1); ++m) {
      PrefetchMap(maps.codes[m]);
      PrefetchMap(maps.scales[m]);
    }
    for (int i = 0; i < layout.slots; ++i) {
      InitBarrier(&barriers.full[i], 1);
      InitBarrier(&barriers.empty[i], warps);
    }
    for (int i = 0; i < kFinishers; ++i) {
      InitBarrier(&barriers.summed[i], warps);
      InitBarrier(&barriers.free[i], 1);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  WaitForPriorGrid();
  StartNextGrid();
  if (warp >= kMoeFp4Warps) {
    ReleaseRegisters<64>();
    if (threadIdx.x == 32 * kMoeFp4Warps) Produce<kGateUp>(args, maps, layout, shared, barriers);
    if (warp > kMoeFp4Warps) {
      Finisher<kGateUp>(args, layout, shared, warp - kMoeFp4Warps - 1).Run(barriers);
    }
  } else {
    ClaimRegisters<104>();
    if (warp < warps) Multiplier<kPieces, kGateUp>(args, layout, shared).Run(shared, barriers);
  }
#else
  __trap();  // compiled for another architecture, or for sm_90 without its own instructions
#endif
}

}  // namespace millrace::moe_fp4

#endif  // KERNELS_MOE_EXPERTS_MOE_EXPERTS_KERNEL_FP4_CUH_
