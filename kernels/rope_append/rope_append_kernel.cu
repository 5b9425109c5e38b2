// Grid: one block a token. What depends on positions and slots alone, the token's sines and cosines
// and the place of its cache rows, is done before the wait for the kernel ahead. Then thread (x, y)
// takes word x of both halves of the heads y, y + blockDim.y, ... (queries, then keys, then
// values), two heads at a time. Bound by memory;
// at 48 heads of 128 the 192 threads of a block have all its loads in flight at once.
#include <algorithm>

#include "kernels/ptx/early_start.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"
#include "kernels/rope/rotation.cuh"
#include "kernels/rope_append/rope_append_kernel.h"

namespace millrace {
namespace {

constexpr int kThreads = 192;     // a multiple of the words in a half head of 64, 96, 128 and 256
constexpr int kMaxThreads = 256;  // where a half head has more words than that
constexpr int kInFlight = 2;      // heads
constexpr int kBlocks = 5;        // of kMaxThreads to a multiprocessor: bounds the registers

// Where a token's keys and values go.
struct Place {
  bool none;
  uint32_t page;
  uint32_t offset;

  __device__ __forceinline__ Place(const RopeAppendTokens& args, int t) {
    const int64_t slot = args.slots[t];
    none = slot < 0 || slot >= args.slot_limit;
    page = none ? 0 : static_cast<uint32_t>(slot) / static_cast<uint32_t>(args.page_tokens);
    offset = none ? 0 : static_cast<uint32_t>(slot) - page * args.page_tokens;
  }

  template <typename To>
  __device__ __forceinline__ To* Row(const CachePages& cache, int h) const {
    return static_cast<To*>(cache.data) + page * cache.page_stride + h * cache.head_stride +
           offset * cache.slot_stride;
  }
};

// Head h of token t, counted over queries, keys and values.
template <typename From>
__device__ __forceinline__ From* HeadOf(const RopeAppendTokens& args, int t, int h) {
  const TokenHeads* heads = &args.q;
  if (h >= args.q_heads) {
    h -= args.q_heads;
    heads = h < args.kv_heads ? &args.k : &args.v;
    h -= h < args.kv_heads ? 0 : args.kv_heads;
  }
  return static_cast<From*>(heads->data) + t * heads->token_stride + h * heads->head_stride;
}

template <typename T, int kWidth>
__device__ __forceinline__ void StoreHalves(T* to, int half, const Vec<T, kWidth>& low,
                                            const Vec<T, kWidth>& high) {
  StoreVec(to, low);
  StoreVec(to + half, high);
}

template <typename From, typename To, int kWidth>
__global__ void __launch_bounds__(kMaxThreads, kBlocks)
    RotateAndAppendToken(const __grid_constant__ RopeAppendTokens args) {
  __shared__ RotationTable table;
  StartNextGridEarly();
  const int t = static_cast<int>(blockIdx.x);
  const int half = args.dim / 2;
  const Place place(args, t);
  table.Fill(args.positions[t], args.inv_freq, half,
             static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x),
             static_cast<int>(blockDim.x * blockDim.y));
  __syncthreads();
  WaitForPriorGrid();
  StartNextGrid();

  const int first = static_cast<int>(threadIdx.x) * kWidth;
  const int heads = args.q_heads + 2 * args.kv_heads;
  const int step = static_cast<int>(blockDim.y);
#pragma unroll 1
  for (int begin = static_cast<int>(threadIdx.y); begin < heads; begin += kInFlight * step) {
    Vec<From, kWidth> low[kInFlight], high[kInFlight];
#pragma unroll
    for (int n = 0; n < kInFlight; ++n) {
      const int h = begin + n * step;
      if (h >= heads) break;
      const From* from = HeadOf<From>(args, t, h) + first;
      low[n] = LoadVec<kWidth>(from);
      high[n] = LoadVec<kWidth>(from + half);
    }
#pragma unroll
    for (int n = 0; n < kInFlight; ++n) {
      const int h = begin + n * step;
      if (h >= heads) break;
      if (h < args.q_heads) {
        Rotation<kWidth>(table, first).Apply(low[n], high[n], &low[n], &high[n]);
        StoreHalves(HeadOf<From>(args, t, h) + first, half, low[n], high[n]);
      } else if (!place.none) {
        const bool is_key = h < args.q_heads + args.kv_heads;
        const CachePages& cache = is_key ? args.k_cache : args.v_cache;
        const int head = h - args.q_heads - (is_key ? 0 : args.kv_heads);
        To* to = place.Row<To>(cache, head) + first;
        if constexpr (sizeof(To) == 1) {
          Floats<kWidth> a = Widened(low[n]), b = Widened(high[n]);
          if (is_key) Rotation<kWidth>(table, first).Turn(&a, &b);
          const float inverse = __frcp_rn(__ldg(cache.scale + head));
          StoreHalves(to, half, Encoded(a, inverse), Encoded(b, inverse));
        } else {
          Vec<To, kWidth> to_low = Converted<To>(low[n]), to_high = Converted<To>(high[n]);
          if (is_key) Rotation<kWidth>(table, first).Apply(low[n], high[n], &to_low, &to_high);
          StoreHalves(to, half, to_low, to_high);
        }
      }
    }
  }
}

struct Choice {
  void (*kernel)(RopeAppendTokens);
  int width;  // pairs a thread
};

using Bf16 = __nv_bfloat16;
constexpr Choice kChoices[] = {
    {RotateAndAppendToken<float, float, 1>, 1}, {RotateAndAppendToken<float, Bf16, 1>, 1},
    {RotateAndAppendToken<Bf16, float, 1>, 1},  {RotateAndAppendToken<Bf16, Bf16, 1>, 1},
    {RotateAndAppendToken<Bf16, Bf16, 8>, 8},   {RotateAndAppendToken<float, E4M3, 1>, 1},
    {RotateAndAppendToken<Bf16, E4M3, 1>, 1},   {RotateAndAppendToken<Bf16, E4M3, 8>, 8},
};

}  // namespace

cudaError_t LaunchRopeAppend(RopeAppendVariant variant, const RopeAppendTokens& tokens,
                             cudaStream_t stream) {
  const Choice choice = kChoices[static_cast<int>(variant)];
  const int words = tokens.dim / 2 / choice.width;
  const int heads = tokens.q_heads + 2 * tokens.kv_heads;
  const int rows = std::min((heads + kInFlight - 1) / kInFlight, std::max(1, kThreads / words));
  return Launch(choice.kernel,
                {.grid = dim3(static_cast<unsigned>(tokens.tokens)),
                 .block = dim3(static_cast<unsigned>(words), static_cast<unsigned>(rows))},
                stream, tokens);
}

}  // namespace millrace
