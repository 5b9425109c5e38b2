// One warp a token, four tokens a block; a lane has neighbouring channels of 16 bytes, 512 channels
// of the row in flight at once (an FP8 row has no more). The slot is asked for before the wait for
// the kernel ahead, and the row does not wait for it. Bound by memory.
#include <cstring>

#include "kernels/latent_append/latent_append_kernel.h"
#include "kernels/latent_cache/latent_store.cuh"
#include "kernels/ptx/early_start.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"

namespace millrace {
namespace {

constexpr int kWarps = 4;
constexpr int kInFlight = 512;  // channels of a warp

// One lane's channels, as they lie in memory.
template <typename From>
struct Channels {
  static constexpr int kWidth = 16 / static_cast<int>(sizeof(From));
  From x[kWidth];

  // The first `count` of them, zeros behind.
  __device__ __forceinline__ void Load(const From* from, int count, bool aligned) {
    if (aligned && count >= kWidth) {
      const uint4 word = LoadInPlace(static_cast<const void*>(from));
      memcpy(x, &word, sizeof(word));
      return;
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) x[j] = j < count ? from[j] : From(0.0f);
  }

  __device__ __forceinline__ Floats<kWidth> Widen() const {
    Floats<kWidth> wide;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) wide.v[j] = static_cast<float>(x[j]);
    return wide;
  }
};

// To a row of floats or bf16.
template <typename To, typename From>
__device__ __forceinline__ void StoreAs(const LatentStoreArgs& store, LatentPlace place,
                                        int channel, const Channels<From>& from) {
  if constexpr (std::is_same_v<To, From>) {
    StoreChannels(store, place, channel, from.x);
  } else {
    To x[Channels<From>::kWidth];
#pragma unroll
    for (int j = 0; j < Channels<From>::kWidth; ++j) x[j] = To(static_cast<float>(from.x[j]));
    StoreChannels(store, place, channel, x);
  }
}

// The place of a token's row, or none.
__device__ __forceinline__ LatentPlace PlaceOf(const LatentAppendKernelArgs& args, int token) {
  const int64_t limit = int64_t{args.store.pages} * args.store.page_rows;
  const int64_t slot = token < args.tokens ? args.slots[token] : -1;
  if (slot < 0 || slot >= limit) return {};
  const uint32_t page = static_cast<uint32_t>(slot) / static_cast<uint32_t>(args.store.page_rows);
  return {.page = static_cast<int32_t>(page),
          .row = static_cast<int32_t>(static_cast<uint32_t>(slot) - page * args.store.page_rows)};
}

template <typename From, LatentRowType kTo>
__global__ void __launch_bounds__(kWarps * 32)
    AppendRows(const __grid_constant__ LatentAppendKernelArgs args) {
  constexpr int kWidth = Channels<From>::kWidth;
  constexpr int kWords = kInFlight / 32 / kWidth;
  StartNextGridEarly();
  const int token = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
  const int first = static_cast<int>(threadIdx.x % 32) * kWidth;
  const LatentPlace place = PlaceOf(args, token);
  WaitForPriorGrid();
  StartNextGrid();
  if (token >= args.tokens) return;
  const From* const row = static_cast<const From*>(args.rows) + token * args.row_stride;
  const int dim = kTo == LatentRowType::kFp8 ? kInFlight : args.store.dim;
  for (int begin = 0; begin < dim; begin += kInFlight) {
    Channels<From> x[kWords];
#pragma unroll
    for (int n = 0; n < kWords; ++n) {
      const int channel = begin + n * 32 * kWidth + first;
      x[n].Load(row + channel, dim - channel, args.rows_aligned);
    }
    if (!place.IsIn(args.store)) return;
#pragma unroll
    for (int n = 0; n < kWords; ++n) {
      const int channel = begin + n * 32 * kWidth + first;
      if constexpr (kTo == LatentRowType::kFp8) {
        StoreFp8Channels(args.store, place, channel, x[n].Widen(), true);
      } else if constexpr (kTo == LatentRowType::kBf16) {
        StoreAs<__nv_bfloat16>(args.store, place, channel, x[n]);
      } else {
        StoreAs<float>(args.store, place, channel, x[n]);
      }
    }
  }
}

using Kernel = void (*)(LatentAppendKernelArgs);

// [rows are bf16][type of the store]
constexpr Kernel kKernels[2][3] = {
    {AppendRows<float, LatentRowType::kF32>, AppendRows<float, LatentRowType::kBf16>,
     AppendRows<float, LatentRowType::kFp8>},
    {AppendRows<__nv_bfloat16, LatentRowType::kF32>,
     AppendRows<__nv_bfloat16, LatentRowType::kBf16>,
     AppendRows<__nv_bfloat16, LatentRowType::kFp8>},
};

}  // namespace

cudaError_t LaunchLatentAppend(const LatentAppendKernelArgs& args, cudaStream_t stream) {
  const int blocks = (args.tokens + kWarps - 1) / kWarps;
  return Launch(kKernels[args.rows_bf16 ? 1 : 0][static_cast<int>(args.store.type)],
                {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kWarps * 32)}, stream,
                args);
}

}  // namespace millrace
