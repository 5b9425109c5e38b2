#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/thread_pool.h"
#include "kernels/latent_cache/rotate_pairs_cpu.h"
#include "kernels/latent_rope/latent_rope_impl.h"

namespace millrace {
namespace {

// Elements that are worth another thread: about 2 us of work.
constexpr int64_t kElementsPerTask = 16384;

float Widen(float x) { return x; }
float Widen(BFloat16 x) { return ToFloat(x); }
void Narrow(float x, float* to) { *to = x; }
void Narrow(float x, BFloat16* to) { *to = ToBFloat16(x); }

// The channels [begin, end) of a head, in parts that fit a small buffer: sum of their squares.
class HeadRotation final {
 public:
  HeadRotation(const LatentRopeArgs& args, int64_t pairs)
      : args_(args), dim_(args.x.dim(2)), rotated_(2 * pairs) {}

  template <typename T>
  void Apply(T* head, const PairRotation& rotation) const {
    const float factor = args_.norm_eps ? Normaliser(head) : 1.0f;
    const int64_t plain = dim_ - rotated_;
    if (args_.norm_eps) {
      for (int64_t i = 0; i < plain; ++i) Narrow(Widen(head[i]) * factor, head + i);
    }
    float buffer[2 * kMaxRotatedPairs];
    for (int64_t i = 0; i < rotated_; ++i) buffer[i] = Widen(head[plain + i]) * factor;
    rotation.Rotate(buffer);
    for (int64_t i = 0; i < rotated_; ++i) Narrow(buffer[i], head + plain + i);
  }

 private:
  template <typename T>
  float Normaliser(const T* head) const {
    float sum = 0;
    for (int64_t i = 0; i < dim_; i += kPart) {
      float part[kPart];
      const int64_t size = std::min(kPart, dim_ - i);
      for (int64_t j = 0; j < size; ++j) part[j] = Widen(head[i + j]);
      sum += SumOfSquares(part, size);
    }
    return 1.0f / std::sqrt(sum / static_cast<float>(dim_) + *args_.norm_eps);
  }

  static constexpr int64_t kPart = 512;

  const LatentRopeArgs& args_;
  const int64_t dim_;
  const int64_t rotated_;
};

template <typename T>
void RotateTokens(const LatentRopeArgs& args, int64_t begin, int64_t end) {
  const int64_t pairs = args.inv_freq.dim(0);
  const HeadRotation head(args, pairs);
  PairRotation rotation(args.inv_freq.as<float>(), pairs);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t position = args.positions.as<int32_t>()[t];
    rotation.MoveTo(args.inverse ? -position : position);
    for (int64_t n = 0; n < args.x.dim(1); ++n) {
      head.Apply(args.x.as<T>() + t * args.x.stride(0) + n * args.x.stride(1), rotation);
    }
  }
}

}  // namespace

absl::Status LatentRopeCpu(const OpContext& ctx, const LatentRopeArgs& args) {
  const auto rotate = args.x.dtype == DType::kF32 ? RotateTokens<float> : RotateTokens<BFloat16>;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / (args.x.dim(1) * args.x.dim(2)));
  ctx.device.thread_pool()->ParallelFor(
      args.x.dim(0), grain, [&](int64_t begin, int64_t end, int) { rotate(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace millrace
