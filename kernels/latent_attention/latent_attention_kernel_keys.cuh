// The keys of one token, as its block goes through them: the window's rows, then the compressed
// ones that it sees, in an order and in tiles that depend on the token's own list alone.
#ifndef KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_KERNEL_KEYS_CUH_
#define KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_KERNEL_KEYS_CUH_

#include <cstdint>

#include "kernels/latent_attention/latent_attention_kernel.h"
#include "kernels/latent_cache/latent_store.cuh"

namespace millrace {

inline constexpr int kLatentThreads = 256;
inline constexpr int kLatentWarps = kLatentThreads / 32;

template <LatentRowType kType>
inline constexpr int kLatentElementBytes = kType == LatentRowType::kF32    ? 4
                                           : kType == LatentRowType::kBf16 ? 2
                                                                           : 1;

// A row in a store.
struct LatentKey {
  const uint8_t* row;
  int32_t scales;  // FP8: bytes from the row to its scales
};

// What a group's codes are times.
__device__ __forceinline__ float LatentFactor(uint32_t scale) {
  constexpr uint32_t kNan = 0x7fc00000;
  return __uint_as_float(scale == 0xff ? kNan : scale << 23);
}

// A code's value. Its exponent and mantissa where a float has them are the value times 2^-120,
// subnormals included.
__device__ __forceinline__ float WidenE4M3(uint32_t code, float factor) {
  return __uint_as_float((code & 0x80) << 24 | (code & 0x7f) << 20) * 0x1p120f * factor;
}

// Keys ahead of their use: as many as one filling finds, and a tile less one that were left.
struct alignas(16) LatentKeyRing {
  static constexpr int kKeys = 2 * kLatentThreads;
  LatentKey keys[kKeys];
  int found[kLatentWarps];
  int sequence;
};

// Block-uniform. All threads of the block call every function.
template <LatentRowType kType>
class LatentKeyStream final {
 public:
  // `token` < args.tokens. Waits for the block once.
  __device__ __forceinline__ LatentKeyStream(const LatentAttentionKernelArgs& args, int token,
                                             LatentKeyRing& ring)
      : args_(args), ring_(ring) {
    if (threadIdx.x == 0) ring.sequence = -1;
    __syncthreads();
    for (int b = static_cast<int>(threadIdx.x); b < args.sequences; b += kLatentThreads) {
      if (args.q_start[b] <= token && token < args.q_start[b + 1]) ring.sequence = b;
    }
    __syncthreads();
    const int b = ring.sequence;
    if (b < 0) return;
    const int position = args.kv_len[b] - args.q_start[b + 1] + token;
    pages_ = args.page_table + b * args.page_table_stride;
    first_ = max(0, position - args.window + 1);
    near_ = position - first_ + 1;
    visible_ = args.ratio > 0 ? (position + 1) / args.ratio : 0;
    selected_ = args.selected == nullptr ? nullptr : args.selected + token * args.selected_stride;
    total_ = near_ + (selected_ == nullptr ? visible_ : args.num_selected);
  }

  // Whether the token belongs to a sequence; nothing else may be called where not.
  __device__ __forceinline__ bool has_token() const { return pages_ != nullptr; }

  // Goes on to the next keys, `most` of them where there are so many; returns how many. All that
  // the block read of the ones before must be behind a barrier.
  __device__ __forceinline__ int Next(int most) {
    begin_ += count_;
    while (end_ - begin_ < most && next_ < total_) Fill();
    count_ = min(most, end_ - begin_);
    return count_;
  }

  // Of the current keys.
  __device__ __forceinline__ LatentKey key(int i) const {
    return ring_.keys[(begin_ + i) % LatentKeyRing::kKeys];
  }

 private:
  __device__ __forceinline__ LatentKey Find(const LatentStoreArgs& store, int row) const {
    const int page = row / store.page_rows;
    const int offset = row - page * store.page_rows;
    const uint8_t* const begin = static_cast<const uint8_t*>(store.data) +
                                 pages_[page] * store.page_stride * kLatentElementBytes<kType>;
    if constexpr (kType == LatentRowType::kFp8) {
      const uint8_t* const codes = begin + int64_t{offset} * kDeviceLatentDataBytes;
      const uint8_t* const scales = begin + int64_t{store.page_rows} * kDeviceLatentDataBytes +
                                    int64_t{offset} * kDeviceLatentScaleBytes;
      return {codes, static_cast<int32_t>(scales - codes)};
    } else {
      return {begin + int64_t{offset} * store.dim * kLatentElementBytes<kType>, 0};
    }
  }

  // One more candidate a thread.
  __device__ __forceinline__ void Fill() {
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int i = next_ + static_cast<int>(threadIdx.x);
    const bool is_near = i < near_;
    int row = is_near ? first_ + i : i - near_;
    bool is_key = i < total_;
    if (is_key && !is_near && selected_ != nullptr) {
      row = selected_[row];
      is_key = row >= 0 && row < visible_;
    }
    LatentKey key = {};
    if (is_key) key = Find(is_near ? args_.window_rows : args_.compressed_rows, row);
    const uint32_t keys = __ballot_sync(0xffffffffu, is_key);
    if (threadIdx.x % 32 == 0) ring_.found[warp] = __popc(keys);
    __syncthreads();
    int at = end_ + __popc(keys & ((1u << (threadIdx.x % 32)) - 1));
#pragma unroll
    for (int w = 0; w < kLatentWarps; ++w) {
      const int found = ring_.found[w];
      if (w < warp) at += found;
      end_ += found;
    }
    if (is_key) ring_.keys[at % LatentKeyRing::kKeys] = key;
    next_ += kLatentThreads;
    __syncthreads();
  }

  const LatentAttentionKernelArgs& args_;
  LatentKeyRing& ring_;
  const int32_t* pages_ = nullptr;
  const int32_t* selected_ = nullptr;
  int first_ = 0;    // position of the window's first row
  int near_ = 0;     // rows of the window
  int visible_ = 0;  // entries that the token sees
  int total_ = 0;    // candidates: rows of the window and entries
  int next_ = 0;     // the next candidate
  int end_ = 0;      // keys found so far
  int begin_ = 0;    // the first of the current ones
  int count_ = 0;    // current ones
};

}  // namespace millrace

#endif  // KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_KERNEL_KEYS_CUH_
