// Tiles of 64 query rows (tokens x query heads of a kv head) against a range of keys: prefill and
// many-query decode where no faster kernel is. One warp has 16 rows; keys and values come in blocks
// of 64 through two stages of shared memory (cp.async), as they lie in the cache. Any page size;
// head sizes up to kDim, the rest is zeros. What becomes of them in registers depends on the cache:
// Bf16Tile and Fp8Tile.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_TILES_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_TILES_CUH_

#include "kernels/paged_attention/paged_attention_kernel_join.cuh"
#include "kernels/ptx/copy_async.cuh"
#include "kernels/ptx/fp8.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/matrix.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace::tiles {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kRows = 16 * kWarps;
constexpr int kKeys = 64;

// The keys and values of a bf16 cache, by ldmatrix.
struct Bf16Tile {
  static constexpr int kBytes = 2;     // of an element
  static constexpr int kHeadroom = 0;  // see Fp8Tile
  static constexpr int kRun = 2;       // neighbouring columns that a lane ends up with

  __device__ __forceinline__ static void CopyQuery(const __nv_bfloat16* from, bool inside,
                                                   uint16_t* chunk16, int column) {
    CopyAsync(chunk16 + column, from, inside);
  }
  // B operands of 16 keys from row 0 on and 16 elements: two each of the first and second eight.
  template <int kPitch>
  __device__ __forceinline__ static void Keys(const uint8_t* rows, int d, uint32_t (&b)[4]) {
    const int lane = threadIdx.x % 32;
    LoadMatrices(rows + (lane / 16 * 8 + lane % 8) * kPitch + 2 * (d + lane / 8 % 2 * 8), b);
  }
  // B operands of 16 keys and 32 columns: of four instructions with eight columns each.
  template <int kPitch>
  __device__ __forceinline__ static void Values(const uint8_t* rows, int d, uint32_t (&b)[4][2]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t m[4];
      LoadMatricesTransposed(rows + lane % 16 * kPitch + 2 * (d + 16 * i + lane / 16 * 8), m);
      b[2 * i][0] = m[0], b[2 * i][1] = m[1];
      b[2 * i + 1][0] = m[2], b[2 * i + 1][1] = m[3];
    }
  }
  __device__ __forceinline__ static void Multiply(float (&d)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
    MmaBf16(d, a[0], a[1], a[2], a[3], b0, b1);
  }
  __device__ __forceinline__ static uint32_t Pack(float low, float high) {
    return PackBf16(low, high);
  }
  // Run r of a row's results in 32 columns: its first column, and element m.
  __device__ __forceinline__ static int Column(int r) { return 8 * r + threadIdx.x % 4 * 2; }
  __device__ __forceinline__ static float Element(const float (*o)[4], int half, int r, int m) {
    return o[r][2 * half + m];
  }
};

// Those of a cache of codes, widened to f16 in registers. Four codes of a key are operands of one
// instruction, against the same four elements of the query, whose order in shared memory is
// ldmatrix's; of values the bytes of two keys are interleaved first.
struct Fp8Tile {
  static constexpr int kBytes = 1;
  // f16 loses precision below 2^-14, so a row's largest weight is 2^7.
  static constexpr int kHeadroom = 7;
  static constexpr int kRun = 8;

  // Of each 16 elements the pairs 0, 2, 4, 6 come first.
  __device__ __forceinline__ static void CopyQuery(const __nv_bfloat16* from, bool inside,
                                                   uint16_t* chunk16, int column) {
    const uint4 x = inside ? __ldg(reinterpret_cast<const uint4*>(from)) : uint4{};
    auto* to = reinterpret_cast<uint2*>(chunk16 + column / 2);
    to[0] = {Bf16ToF16(x.x), Bf16ToF16(x.z)};
    to[2] = {Bf16ToF16(x.y), Bf16ToF16(x.w)};
  }
  template <int kPitch>
  __device__ __forceinline__ static void Keys(const uint8_t* rows, int d, uint32_t (&b)[4]) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t codes = WordAt(rows + (8 * i + g) * kPitch + d + 4 * t);
      b[2 * i] = WidenE4M3Pair(codes);
      b[2 * i + 1] = WidenE4M3Pair(codes >> 16);
    }
  }
  template <int kPitch>
  __device__ __forceinline__ static void Values(const uint8_t* rows, int d, uint32_t (&b)[4][2]) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint8_t* from = rows + 2 * t * kPitch + d + 4 * g;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t even = WordAt(from + 8 * i * kPitch);
      const uint32_t odd = WordAt(from + (8 * i + 1) * kPitch);
      const uint32_t low = __byte_perm(even, odd, 0x5140), high = __byte_perm(even, odd, 0x7362);
      b[0][i] = WidenE4M3Pair(low);
      b[1][i] = WidenE4M3Pair(low >> 16);
      b[2][i] = WidenE4M3Pair(high);
      b[3][i] = WidenE4M3Pair(high >> 16);
    }
  }
  __device__ __forceinline__ static void Multiply(float (&d)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
    MmaF16(d, a[0], a[1], a[2], a[3], b0, b1);
  }
  __device__ __forceinline__ static uint32_t Pack(float low, float high) {
    return PackF16(low, high);
  }
  __device__ __forceinline__ static int Column(int) { return threadIdx.x % 4 * 8; }
  __device__ __forceinline__ static float Element(const float (*o)[4], int half, int, int m) {
    return o[m % 4][2 * half + m / 4];
  }

 private:
  __device__ __forceinline__ static uint32_t WordAt(const uint8_t* from) {
    return *reinterpret_cast<const uint32_t*>(from);
  }
};

template <typename C, int kDim>
struct Shared {
  // 16 bytes more than the elements need: eight rows of a matrix load meet different banks.
  static constexpr int kPitch = kDim * C::kBytes + 16;  // bytes
  static constexpr int kQueryPitch = kDim + 8;          // elements
  using Tile = uint8_t[kKeys][kPitch];
  alignas(16) uint16_t q[kRows][kQueryPitch];  // bf16 or f16
  alignas(16) Tile k[2];
  alignas(16) Tile v[2];
};

template <typename C, int kDim>
__device__ __forceinline__ void LoadQueries(const PagedAttentionKernelArgs& args,
                                            const PagedAttentionWork& work, int head,
                                            Shared<C, kDim>& shared) {
  constexpr int kPieces = kDim / 8;
  const int rows = work.queries * args.group;
  for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
    const int r = i / kPieces, d = i % kPieces * 8;
    const bool inside = r < rows && d < args.head_dim;
    const auto* from = static_cast<const __nv_bfloat16*>(args.q);
    if (inside) {
      from += (work.token + r / args.group) * args.q_token +
              (head * args.group + r % args.group) * args.q_head + d;
    }
    C::CopyQuery(from, inside, &shared.q[r][d / 16 * 16], d % 16);
  }
}

// The keys, or the values, of one sequence and head up to `end`. In bytes.
struct Side {
  const uint8_t* head;
  int64_t page, token;
  const int32_t* table;
  Divisor page_tokens;
  int end, row;
};

// Starts copying 64 keys (or values) from `begin` on; zeros from the end on.
template <typename C, int kDim>
__device__ __forceinline__ void LoadBlock(const Side& side, int begin,
                                          typename Shared<C, kDim>::Tile& to) {
  constexpr int kPieces = kDim * C::kBytes / 16;
  constexpr int kStep = kThreads / kPieces;
  const int d = threadIdx.x % kPieces * 16;
#pragma unroll 4
  for (int r = threadIdx.x / kPieces; r < kKeys; r += kStep) {
    const int key = begin + r;
    const bool inside = key < side.end && d < side.row;
    const uint8_t* from = side.head;
    if (inside) {
      const int page = side.page_tokens.Divide(key);
      from +=
          __ldg(side.table + page) * side.page + (key - page * side.page_tokens.n) * side.token + d;
    }
    CopyAsync(&to[r][d], from, inside);
  }
}

template <int kRun>
__device__ __forceinline__ void StoreRun(const float (&x)[kRun], __nv_bfloat16* to) {
  uint32_t words[kRun / 2];
#pragma unroll
  for (int i = 0; i < kRun / 2; ++i) words[i] = PackBf16(x[2 * i], x[2 * i + 1]);
  if constexpr (kRun == 2) {
    *reinterpret_cast<uint32_t*>(to) = words[0];
  } else {
    *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
  }
}

template <int kRun>
__device__ __forceinline__ void StoreRun(const float (&x)[kRun], float* to) {
#pragma unroll
  for (int i = 0; i < kRun; i += 2) *reinterpret_cast<float2*>(to + i) = {x[i], x[i + 1]};
}

// Rows g and g + 8 of a warp's 16.
template <typename C, int kDim>
struct WarpRows {
  using Memory = Shared<C, kDim>;

  float o[kDim / 8][4] = {};
  float top[2] = {-INFINITY, -INFINITY};
  float total[2] = {};
  int visible[2];  // keys, of this part at most

  // s = Q K^T for the warp's rows and 64 keys.
  __device__ __forceinline__ void Score(const uint16_t* q_rows, const typename Memory::Tile& k,
                                        float (&s)[kKeys / 8][4]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int d = 0; d < kDim; d += 16) {
      uint32_t a[4];
      LoadMatrices(q_rows + lane % 16 * Memory::kQueryPitch + d + lane / 16 * 8, a);
#pragma unroll
      for (int j = 0; j < kKeys; j += 16) {
        uint32_t b[4];
        C::template Keys<Memory::kPitch>(k[j], d, b);
        C::Multiply(s[j / 8], a, b[0], b[1]);
        C::Multiply(s[j / 8 + 1], a, b[2], b[3]);
      }
    }
  }

  // Scores of the keys from `begin` on become weights.
  __device__ __forceinline__ void Weigh(float scale_log2, int begin, float (&s)[kKeys / 8][4]) {
    const int column = begin + threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = -INFINITY;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = s[j][2 * half + i];
          if (column + 8 * j + i >= visible[half]) x = -INFINITY;
          most = fmaxf(most, x);
        }
      }
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      most = fmaxf(top[half], most * scale_log2);
      // A row that has seen no key yet has maximum -inf, from which nothing can be subtracted.
      const float base = most == -INFINITY ? 0 : most;
      const float rescale = Exp2(top[half] - base);
      top[half] = most;
      total[half] *= rescale;
#pragma unroll
      for (auto& part : o) {
        part[2 * half] *= rescale;
        part[2 * half + 1] *= rescale;
      }
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = s[j][2 * half + i];
          x = Exp2(fmaf(x, scale_log2, C::kHeadroom - base));
          total[half] += x;
        }
      }
    }
  }

  // O += P V.
  __device__ __forceinline__ void AddValues(const float (&s)[kKeys / 8][4],
                                            const typename Memory::Tile& v) {
#pragma unroll
    for (int j = 0; j < kKeys; j += 16) {
      const auto& left = s[j / 8];
      const auto& right = s[j / 8 + 1];
      const uint32_t a[4] = {C::Pack(left[0], left[1]), C::Pack(left[2], left[3]),
                             C::Pack(right[0], right[1]), C::Pack(right[2], right[3])};
#pragma unroll
      for (int d = 0; d < kDim; d += 32) {
        uint32_t b[4][2];
        C::template Values<Memory::kPitch>(v[j], d, b);
#pragma unroll
        for (int i = 0; i < 4; ++i) C::Multiply(o[d / 8 + i], a, b[i][0], b[i][1]);
      }
    }
  }

  // Writes the rows' output, or their part of it.
  __device__ __forceinline__ void Store(const PagedAttentionKernelArgs& args,
                                        const PagedAttentionWork& work, int head, int first_row) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const PartialTile part = PartOf(args, work, head, work.part);
    const float v_scale = ScaleOf(args.v_scale, head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      total[half] += __shfl_xor_sync(~0u, total[half], 1);
      total[half] += __shfl_xor_sync(~0u, total[half], 2);
      const int r = first_row + g + 8 * half;
      if (r >= work.queries * args.group) continue;
      const float by = work.parts == 1 ? v_scale / total[half] : 1;
#pragma unroll
      for (int i = 0; i < kDim / 4 / C::kRun; ++i) {
        constexpr int kRuns = 8 / C::kRun;  // of a lane in 32 columns
        const int d = i / kRuns * 32 + C::Column(i % kRuns);
        if (d >= args.head_dim) break;
        float x[C::kRun];
#pragma unroll
        for (int m = 0; m < C::kRun; ++m) {
          x[m] = by * C::Element(o + i / kRuns * 4, half, i % kRuns, m);
        }
        if (work.parts == 1) {
          StoreRun(x, OutRow(args, work, head, r) + d);
        } else {
          StoreRun(x, part.sums + r * args.head_dim + d);
        }
      }
      if (work.parts > 1 && t == 0) part.stats[r] = {top[half] - C::kHeadroom, total[half]};
    }
  }
};

template <typename C, int kDim>
__global__ void __launch_bounds__(kThreads, kDim <= 128 ? 2 : 1)
    PagedTiles(const __grid_constant__ PagedAttentionKernelArgs args, const Divisor page_tokens) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<C, kDim>*>(memory);
  const int item = blockIdx.x / args.kv_heads, head = blockIdx.x % args.kv_heads;
  const PagedAttentionWork work = LoadWork(args.work + item);
  if (work.parts == 0) {
    WaitForPriorGrid();
    StartNextGrid();
    return;
  }
  const int32_t* table = args.page_table + work.sequence * args.table_row;
  const auto side = [&](const void* cache, int64_t page, int64_t head_stride, int64_t token) {
    return Side{static_cast<const uint8_t*>(cache) + C::kBytes * (head * head_stride),
                C::kBytes * page,
                C::kBytes * token,
                table,
                page_tokens,
                work.kv_end,
                C::kBytes * args.head_dim};
  };
  const Side k = side(args.k_cache, args.k_page, args.k_head, args.k_token);
  const Side v = side(args.v_cache, args.v_page, args.v_head, args.v_token);
  const auto load = [](const Side& from, int begin, typename Shared<C, kDim>::Tile& to) {
    LoadBlock<C, kDim>(from, begin, to);
  };
  // Groups of copies, in this order: keys and values of the first block, then for each further one.
  const bool settled = work.kv_begin + kKeys <= work.settled;
  if (settled) load(k, work.kv_begin, shared.k[0]);
  WaitForPriorGrid();
  StartNextGrid();
  LoadQueries<C, kDim>(args, work, head, shared);
  if (!settled) load(k, work.kv_begin, shared.k[0]);
  CommitCopies();
  load(v, work.kv_begin, shared.v[0]);
  CommitCopies();

  const int first_row = threadIdx.x / 32 * 16;
  const int rows = work.queries * args.group;
  WarpRows<C, kDim> warp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = first_row + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
    warp.visible[half] = min(work.visible + r / args.group, work.kv_end);
  }
  const float scale_log2 = args.scale * ScaleOf(args.k_scale, head) * kLog2E;
  int stage = 0;
  for (int begin = work.kv_begin; begin < work.kv_end; begin += kKeys, stage ^= 1) {
    const int next = begin + kKeys;
    if (next < work.kv_end) load(k, next, shared.k[stage ^ 1]);
    CommitCopies();
    if (next < work.kv_end) load(v, next, shared.v[stage ^ 1]);
    CommitCopies();
    WaitForCopies<3>();
    __syncthreads();
    float s[kKeys / 8][4] = {};
    if (first_row < rows) {
      warp.Score(&shared.q[first_row][0], shared.k[stage], s);
      warp.Weigh(scale_log2, begin, s);
    }
    WaitForCopies<2>();
    __syncthreads();
    if (first_row < rows) warp.AddValues(s, shared.v[stage]);
    __syncthreads();  // before the next block's copies overwrite this one
  }
  if (first_row < rows) warp.Store(args, work, head, first_row);
  if (work.parts > 1 && IsLastPart(args, work, head)) JoinParts(args, work, head);
}

template <typename C, int kDim>
cudaError_t LaunchFor(const PagedAttentionKernelArgs& args, cudaStream_t stream) {
  int device = 0, limit = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) return error;
  if (static_cast<size_t>(limit) < sizeof(Shared<C, kDim>)) return cudaErrorNotSupported;
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(args.items * args.kv_heads)),
                             .block = dim3(kThreads),
                             .shared_bytes = sizeof(Shared<C, kDim>)};
  return Launch(PagedTiles<C, kDim>, shape, stream, args, Divisor(args.page_tokens));
}

template <typename C>
cudaError_t LaunchOn(const PagedAttentionKernelArgs& args, cudaStream_t stream) {
  if (args.head_dim <= 64) return LaunchFor<C, 64>(args, stream);
  if (args.head_dim <= 128) return LaunchFor<C, 128>(args, stream);
  return LaunchFor<C, 256>(args, stream);
}

}  // namespace millrace::tiles

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_TILES_CUH_
