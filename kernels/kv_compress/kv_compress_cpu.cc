#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/kv_compress/kv_compress_impl.h"
#include "kernels/latent_cache/hadamard_fp4.h"
#include "kernels/latent_cache/latent_row.h"
#include "kernels/latent_cache/paged_batch_cpu.h"
#include "kernels/latent_cache/rotate_pairs_cpu.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {

constexpr int kLanes = 4;  // of the baseline: the projections before cost far more
// Projected channels that are worth another thread: some microseconds of exponentials.
constexpr int64_t kChannelsPerTask = 4096;

absl::Status CheckSlots(const KvCompressArgs& args) {
  const int32_t* q_start = args.batch.q_start.as<int32_t>();
  for (int64_t b = 0; b < args.state_slots.dim(0); ++b) {
    const int64_t slot = args.state_slots.as<int32_t>()[b];
    if (q_start[b] == q_start[b + 1] || (slot >= 0 && slot < args.state.dim(0))) continue;
    return absl::InvalidArgumentError(absl::StrCat("KvCompress: state_slots[", b, "] = ", slot,
                                                   ", want 0 to ", args.state.dim(0) - 1));
  }
  return absl::OkStatus();
}

// Channels of one token that go into an entry.
struct TokenPart {
  const float* kv = nullptr;
  const float* score = nullptr;
  const float* ape = nullptr;  // null where the score has it already
};

// The softmax of one entry, channel by channel: all tokens through Raise, then all through Add.
class Pool final {
 public:
  explicit Pool(int64_t dim) : dim_(dim) {
    std::fill_n(maximum_, dim, -std::numeric_limits<float>::infinity());
  }

  void Raise(const TokenPart& token) {
    for (int64_t i = 0; i < dim_; i += kLanes) {
      Put(maximum_ + i, simd::Max(Get(maximum_ + i), Score(token, i)));
    }
  }

  void Add(const TokenPart& token) {
    for (int64_t i = 0; i < dim_; i += kLanes) {
      const auto weight = simd::Exp(Score(token, i) - Get(maximum_ + i));
      Put(sum_ + i, Get(sum_ + i) + weight);
      Put(mixed_ + i, Get(mixed_ + i) + weight * Get(token.kv + i));
    }
  }

  void Finish(float* pooled) const {
    for (int64_t i = 0; i < dim_; ++i) pooled[i] = mixed_[i] / sum_[i];
  }

 private:
  static simd::F<kLanes> Get(const float* p) { return simd::Load<kLanes>(p); }
  static void Put(float* p, simd::F<kLanes> v) { simd::Store<kLanes>(p, v); }
  static simd::F<kLanes> Score(const TokenPart& token, int64_t i) {
    return token.ape == nullptr ? Get(token.score + i) : Get(token.score + i) + Get(token.ape + i);
  }

  const int64_t dim_;
  alignas(16) float maximum_[kMaxCompressedDim];
  alignas(16) float sum_[kMaxCompressedDim] = {};
  alignas(16) float mixed_[kMaxCompressedDim] = {};
};

// One call, its values checked. What several tokens of a step write are different rows.
class Compressor final {
 public:
  explicit Compressor(const KvCompressArgs& args)
      : args_(args),
        batch_(args.batch),
        shape_(KvCompressShapeOf(args)),
        page_entries_(args.store.dim(2)),
        page_tokens_(page_entries_ * shape_.ratio),
        block_tokens_(args.carry ? page_tokens_ / args.carry->dim(2) : 0) {}

  // The entries that tokens [begin, end) complete.
  void MakeEntries(int64_t begin, int64_t end) const {
    PairRotation rotation(args_.inv_freq.as<float>(), args_.inv_freq.dim(0));
    for (int64_t t = begin; t < end; ++t) {
      const int64_t b = batch_.SequenceOf(t);
      const int64_t position = batch_.PositionOf(t, b);
      if ((position + 1) % shape_.ratio == 0) MakeEntry(b, position / shape_.ratio, rotation);
    }
  }

  // What later steps need of tokens [begin, end).
  void Keep(int64_t begin, int64_t end) const {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t b = batch_.SequenceOf(t);
      const int64_t position = batch_.PositionOf(t, b);
      const int64_t unfinished = batch_.EndPosition(b) / shape_.ratio * shape_.ratio;
      const int64_t first_kept = shape_.overlap ? unfinished - shape_.ratio : unfinished;
      const TokenPart token = FromStep(t, position, 0);
      if (position >= first_kept) {
        float* to = State(b, position);
        Copy(token, shape_.projected(), to, to + shape_.projected());
      }
      if (shape_.overlap && position % block_tokens_ >= block_tokens_ - shape_.ratio) {
        float* to = Carry(b, position);
        Copy(token, shape_.dim, to, to + shape_.dim);
      }
    }
  }

 private:
  void MakeEntry(int64_t b, int64_t entry, PairRotation& rotation) const {
    Pool pool(shape_.dim);
    ForEachToken(b, entry, [&](const TokenPart& token) { pool.Raise(token); });
    ForEachToken(b, entry, [&](const TokenPart& token) { pool.Add(token); });
    float row[kMaxCompressedDim];
    pool.Finish(row);
    const float mean = SumOfSquares(row, shape_.dim) / static_cast<float>(shape_.dim);
    const float factor = 1.0f / std::sqrt(mean + args_.norm_eps);
    for (int64_t i = 0; i < shape_.dim; ++i) row[i] = row[i] * factor * NormWeight(i);
    rotation.MoveTo(entry * shape_.ratio);
    rotation.Rotate(row + shape_.dim - 2 * args_.inv_freq.dim(0));
    if (args_.hadamard_fp4) ApplyHadamardFp4(row, shape_.dim);
    WriteLatentRow(row, shape_.dim, args_.store, batch_.Pages(b)[entry / page_entries_],
                   entry % page_entries_);
  }

  float NormWeight(int64_t i) const {
    return args_.norm_weight.dtype == DType::kF32 ? args_.norm_weight.as<float>()[i]
                                                  : ToFloat(args_.norm_weight.as<BFloat16>()[i]);
  }

  // In the order of their positions, whatever their source.
  template <typename Fn>
  void ForEachToken(int64_t b, int64_t entry, Fn fn) const {
    const int64_t begin = entry * shape_.ratio;
    if (shape_.overlap && entry > 0) {
      for (int64_t p = begin - shape_.ratio; p < begin; ++p) fn(Earlier(b, p, begin));
    }
    const int64_t channel = shape_.overlap ? shape_.dim : 0;
    for (int64_t p = begin; p < begin + shape_.ratio; ++p) {
      fn(IsInStep(b, p) ? FromStep(batch_.TokenOfZero(b) + p, p, channel)
                        : FromState(b, p, channel));
    }
  }

  // A token of the window before the one that begins at `begin`.
  TokenPart Earlier(int64_t b, int64_t p, int64_t begin) const {
    if (IsInStep(b, p)) return FromStep(batch_.TokenOfZero(b) + p, p, 0);
    if (begin % block_tokens_ != 0) return FromState(b, p, 0);
    const float* carry = Carry(b, p);
    return {.kv = carry, .score = carry + shape_.dim};
  }

  bool IsInStep(int64_t b, int64_t p) const { return p >= batch_.FirstPosition(b); }

  TokenPart FromStep(int64_t t, int64_t p, int64_t channel) const {
    return {.kv = args_.kv.as<float>() + t * args_.kv.stride(0) + channel,
            .score = args_.score.as<float>() + t * args_.score.stride(0) + channel,
            .ape = args_.ape.as<float>() + p % shape_.ratio * args_.ape.stride(0) + channel};
  }

  TokenPart FromState(int64_t b, int64_t p, int64_t channel) const {
    const float* kv = State(b, p) + channel;
    return {.kv = kv, .score = kv + shape_.projected()};
  }

  float* State(int64_t b, int64_t p) const {
    const int64_t slot = args_.state_slots.as<int32_t>()[b];
    return args_.state.as<float>() + slot * args_.state.stride(0) +
           p % shape_.state_rows() * args_.state.stride(1);
  }

  float* Carry(int64_t b, int64_t p) const {
    const int64_t page = batch_.Pages(b)[p / page_tokens_];
    return args_.carry->as<float>() + page * args_.carry->stride(0) +
           p % page_tokens_ / block_tokens_ * args_.carry->stride(2) +
           p % shape_.ratio * 2 * shape_.dim;
  }

  static void Copy(const TokenPart& token, int64_t channels, float* kv, float* score) {
    for (int64_t i = 0; i < channels; ++i) {
      kv[i] = token.kv[i];
      score[i] = token.score[i] + token.ape[i];
    }
  }

  const KvCompressArgs& args_;
  const PagedBatchCpu batch_;
  const KvCompressShape shape_;
  const int64_t page_entries_;
  const int64_t page_tokens_;
  const int64_t block_tokens_;  // 0 without overlap
};

}  // namespace

absl::Status KvCompressCpu(const OpContext& ctx, const KvCompressArgs& args) {
  RETURN_IF_ERROR(CheckPagedBatchValues("KvCompress", args.batch,
                                        {.tokens = args.kv.dim(0),
                                         .pages = args.store.dim(0),
                                         .page_tokens = args.store.dim(2) * args.ape.dim(0)}));
  RETURN_IF_ERROR(CheckSlots(args));
  const Compressor compressor(args);
  const int64_t tokens = args.batch.q_start.as<int32_t>()[args.batch.kv_len.dim(0)];
  const int64_t grain = std::max<int64_t>(1, kChannelsPerTask / args.kv.dim(1));
  ThreadPool& pool = *ctx.device.thread_pool();
  pool.ParallelFor(tokens, grain,
                   [&](int64_t begin, int64_t end, int) { compressor.MakeEntries(begin, end); });
  // After all entries: it overwrites rows that they read.
  pool.ParallelFor(tokens, grain,
                   [&](int64_t begin, int64_t end, int) { compressor.Keep(begin, end); });
  return absl::OkStatus();
}

}  // namespace millrace
