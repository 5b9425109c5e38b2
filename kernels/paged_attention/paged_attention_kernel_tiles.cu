// Tiles of 64 query rows (tokens x query heads of a kv head) against a range of keys: prefill and
// many-query decode where no faster kernel is. One warp has 16 rows; keys and values come in blocks
// of 64 through two stages of shared memory (cp.async). Any page size; head sizes up to kDim, the
// rest is zeros.
#include "kernels/paged_attention/paged_attention_kernel_join.cuh"
#include "kernels/ptx/copy_async.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/matrix.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kRows = 16 * kWarps;
constexpr int kKeys = 64;

template <int kDim>
struct Shared {
  // 16 bytes more than the elements need: eight rows of a matrix load meet different banks.
  static constexpr int kPitch = kDim + 8;
  using Tile = __nv_bfloat16[kKeys][kPitch];
  Tile q;
  Tile k[2];
  Tile v[2];
};

template <int kDim>
__device__ __forceinline__ void LoadQueries(const PagedAttentionKernelArgs& args,
                                            const PagedAttentionWork& work, int head,
                                            Shared<kDim>& shared) {
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
    CopyAsync(&shared.q[r][d], from, inside);
  }
}

// The keys, or the values, of one sequence and head up to `end`.
struct Side {
  const __nv_bfloat16* head;
  int64_t page, token;
  const int32_t* table;
  Divisor page_tokens;
  int end, head_dim;
};

// Starts copying 64 keys (or values) from `begin` on; zeros from the end on.
template <int kDim>
__device__ __forceinline__ void LoadBlock(const Side& side, int begin,
                                          typename Shared<kDim>::Tile& to) {
  constexpr int kPieces = kDim / 8;
  constexpr int kStep = kThreads / kPieces;
  const int d = threadIdx.x % kPieces * 8;
#pragma unroll 4
  for (int r = threadIdx.x / kPieces; r < kKeys; r += kStep) {
    const int key = begin + r;
    const bool inside = key < side.end && d < side.head_dim;
    const __nv_bfloat16* from = side.head;
    if (inside) {
      const int page = side.page_tokens.Divide(key);
      from +=
          __ldg(side.table + page) * side.page + (key - page * side.page_tokens.n) * side.token + d;
    }
    CopyAsync(&to[r][d], from, inside);
  }
}

// Rows g and g + 8 of a warp's 16.
template <int kDim>
struct WarpRows {
  float o[kDim / 8][4] = {};
  float top[2] = {-INFINITY, -INFINITY};
  float total[2] = {};
  int visible[2];  // keys, of this part at most

  // s = Q K^T for the warp's rows and 64 keys.
  __device__ __forceinline__ void Score(const __nv_bfloat16* q_rows,
                                        const typename Shared<kDim>::Tile& k,
                                        float (&s)[kKeys / 8][4]) {
    constexpr int kPitch = Shared<kDim>::kPitch;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int d = 0; d < kDim; d += 16) {
      uint32_t a[4];
      LoadMatrices(q_rows + lane % 16 * kPitch + d + lane / 16 * 8, a);
#pragma unroll
      for (int j = 0; j < kKeys; j += 16) {
        uint32_t b[4];
        LoadMatrices(&k[j + lane / 16 * 8 + lane % 8][d + lane / 8 % 2 * 8], b);
        MmaBf16(s[j / 8], a[0], a[1], a[2], a[3], b[0], b[1]);
        MmaBf16(s[j / 8 + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
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
          x = Exp2(fmaf(x, scale_log2, -base));
          total[half] += x;
        }
      }
    }
  }

  // O += P V.
  __device__ __forceinline__ void AddValues(const float (&s)[kKeys / 8][4],
                                            const typename Shared<kDim>::Tile& v) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < kKeys; j += 16) {
      const auto& left = s[j / 8];
      const auto& right = s[j / 8 + 1];
      const uint32_t a0 = PackBf16(left[0], left[1]), a1 = PackBf16(left[2], left[3]);
      const uint32_t a2 = PackBf16(right[0], right[1]), a3 = PackBf16(right[2], right[3]);
#pragma unroll
      for (int d = 0; d < kDim; d += 16) {
        uint32_t b[4];
        LoadMatricesTransposed(&v[j + lane % 16][d + lane / 16 * 8], b);
        MmaBf16(o[d / 8], a0, a1, a2, a3, b[0], b[1]);
        MmaBf16(o[d / 8 + 1], a0, a1, a2, a3, b[2], b[3]);
      }
    }
  }

  // Writes the rows' output, or their part of it.
  __device__ __forceinline__ void Store(const PagedAttentionKernelArgs& args,
                                        const PagedAttentionWork& work, int head, int first_row) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const PartialTile part = PartOf(args, work, head, work.part);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      total[half] += __shfl_xor_sync(~0u, total[half], 1);
      total[half] += __shfl_xor_sync(~0u, total[half], 2);
      const int r = first_row + g + 8 * half;
      if (r >= work.queries * args.group) continue;
      const float inverse = 1 / total[half];
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        const int d = 8 * i + 2 * t;
        if (d >= args.head_dim) break;
        const float x = o[i][2 * half], y = o[i][2 * half + 1];
        if (work.parts == 1) {
          *reinterpret_cast<uint32_t*>(OutRow(args, work, head, r) + d) =
              PackBf16(x * inverse, y * inverse);
        } else {
          *reinterpret_cast<float2*>(part.sums + r * args.head_dim + d) = {x, y};
        }
      }
      if (work.parts > 1 && t == 0) part.stats[r] = {top[half], total[half]};
    }
  }
};

template <int kDim>
__global__ void __launch_bounds__(kThreads, kDim <= 128 ? 2 : 1)
    PagedTiles(const __grid_constant__ PagedAttentionKernelArgs args, const Divisor page_tokens) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<kDim>*>(memory);
  const int item = blockIdx.x / args.kv_heads, head = blockIdx.x % args.kv_heads;
  const PagedAttentionWork work = LoadWork(args.work + item);
  if (work.parts == 0) {
    WaitForPriorGrid();
    StartNextGrid();
    return;
  }
  const int32_t* table = args.page_table + work.sequence * args.table_row;
  const auto side = [&](const void* cache, int64_t page, int64_t head_stride, int64_t token) {
    return Side{static_cast<const __nv_bfloat16*>(cache) + head * head_stride,
                page,
                token,
                table,
                page_tokens,
                work.kv_end,
                args.head_dim};
  };
  const Side k = side(args.k_cache, args.k_page, args.k_head, args.k_token);
  const Side v = side(args.v_cache, args.v_page, args.v_head, args.v_token);
  const auto load = [](const Side& from, int begin, typename Shared<kDim>::Tile& to) {
    LoadBlock<kDim>(from, begin, to);
  };
  // Groups of copies, in this order: keys and values of the first block, then for each further one.
  const bool settled = work.kv_begin + kKeys <= work.settled;
  if (settled) load(k, work.kv_begin, shared.k[0]);
  WaitForPriorGrid();
  StartNextGrid();
  LoadQueries<kDim>(args, work, head, shared);
  if (!settled) load(k, work.kv_begin, shared.k[0]);
  CommitCopies();
  load(v, work.kv_begin, shared.v[0]);
  CommitCopies();

  const int first_row = threadIdx.x / 32 * 16;
  const int rows = work.queries * args.group;
  WarpRows<kDim> warp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = first_row + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
    warp.visible[half] = min(work.visible + r / args.group, work.kv_end);
  }
  const float scale_log2 = args.scale * kLog2E;
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

template <int kDim>
cudaError_t LaunchFor(const PagedAttentionKernelArgs& args, cudaStream_t stream) {
  int device = 0, limit = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) return error;
  if (static_cast<size_t>(limit) < sizeof(Shared<kDim>)) return cudaErrorNotSupported;
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(args.items * args.kv_heads)),
                             .block = dim3(kThreads),
                             .shared_bytes = sizeof(Shared<kDim>)};
  return Launch(PagedTiles<kDim>, shape, stream, args, Divisor(args.page_tokens));
}

}  // namespace

cudaError_t LaunchPagedTiles(const PagedAttentionKernelArgs& args, cudaStream_t stream) {
  if (args.head_dim <= 64) return LaunchFor<64>(args, stream);
  if (args.head_dim <= 128) return LaunchFor<128>(args, stream);
  return LaunchFor<256>(args, stream);
}

}  // namespace millrace
