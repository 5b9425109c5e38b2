#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/core/dtype.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/lowp/small_float.h"
#include "kernels/quantize/quantize_impl.h"

namespace millrace {
namespace {

// Elements that are worth another thread: some microseconds of work.
constexpr int64_t kElementsPerTask = 8192;
// Columns that are done together where units lie along them: a cache line of bf16.
constexpr int64_t kStrip = 32;

float Widen(float x) { return x; }
float Widen(BFloat16 x) { return ToFloat(x); }

template <typename T>
float Amax(const T* x, int64_t count) {
  float amax = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::abs(Widen(x[i]));
    if (magnitude > amax) amax = magnitude;  // false for NaN
  }
  return amax;
}

template <typename T>
class Quantizer {
 public:
  Quantizer(ThreadPool& pool, const QuantizeArgs& args) : pool_(pool), args_(args) {}

  void Run() const {
    const bool group = args_.unit == QuantizeUnit::kGroup;
    if (args_.unit == QuantizeUnit::kTensor) return Tensor();
    if (args_.unit == QuantizeUnit::kChannel || args_.transposed) return Strips();
    ForTokens([&](int64_t t) { group ? Groups(t) : Token(t); });
  }

 private:
  void Groups(int64_t t) const {
    for (int64_t g = 0; g * kQuantizeGroup < size_; ++g) {
      const int64_t first = g * kQuantizeGroup;
      const int64_t count = std::min(kQuantizeGroup, size_ - first);
      const float scale = ScaleOf(Amax(Row(t) + first, count));
      scales_[g * args_.scale.stride(0) + t] = scale;
      Encode(t, first, first + count, 1.0f / scale);
    }
  }

  void Token(int64_t t) const {
    scales_[t] = ScaleOf(Amax(Row(t), size_));
    Encode(t, 0, size_, 1.0f / scales_[t]);
  }

  void Tensor() const {
    if (args_.rounding != QuantizeScale::kGiven) {
      float amax = 0;
      for (int64_t t = 0; t < tokens_; ++t) amax = std::max(amax, Amax(Row(t), size_));
      scales_[0] = ScaleOf(amax);
    }
    const float inverse = 1.0f / scales_[0];
    ForTokens([&](int64_t t) { Encode(t, 0, size_, inverse); });
  }

  // Units of some or all tokens of a column.
  void Strips() const {
    const int64_t height = args_.unit == QuantizeUnit::kGroup ? kQuantizeGroup : tokens_;
    pool_.ParallelFor((size_ + kStrip - 1) / kStrip, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t strip = begin; strip < end; ++strip) {
        int64_t t = 0;
        do {  // once even of no tokens: their scales are those of zeros
          Strip(strip * kStrip, t, std::min(t + height, tokens_));
          t += height;
        } while (t < tokens_);
      }
    });
  }

  void Strip(int64_t column, int64_t begin, int64_t end) const {
    const int64_t count = std::min(kStrip, size_ - column);
    float amax[kStrip] = {}, inverse[kStrip];
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t i = 0; i < count; ++i) {
        amax[i] = std::max(amax[i], Amax(Row(t) + column + i, 1));
      }
    }
    const bool group = args_.unit == QuantizeUnit::kGroup;
    float* const scales = scales_ + (group ? begin / kQuantizeGroup * args_.scale.stride(0) : 0);
    for (int64_t i = 0; i < count; ++i) {
      scales[column + i] = ScaleOf(amax[i]);
      inverse[i] = 1.0f / scales[column + i];
    }
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t i = 0; i < count; ++i) Encode(t, column + i, column + i + 1, inverse[i]);
    }
  }

  float ScaleOf(float amax) const {
    constexpr float kLeast = 0x1p-126f;
    const auto max = static_cast<float>(e5m2_ ? kE5M2.max : kE4M3.max);
    amax = std::min(amax, std::numeric_limits<float>::max());
    if (args_.rounding == QuantizeScale::kF32) return std::max(amax / max, kLeast);
    const uint8_t code = EncodeE8M0RoundUp(double{amax} / static_cast<double>(max));
    return std::max(kE8M0Values[code], kLeast);
  }

  // Elements [begin, end) of a token.
  void Encode(int64_t t, int64_t begin, int64_t end, float inverse) const {
    const T* const x = Row(t);
    const int64_t stride = args_.codes.stride(0);
    for (int64_t i = begin; i < end; ++i) {
      codes_[args_.transposed ? i * stride + t : t * stride + i] = CodeOf(Widen(x[i]) * inverse);
    }
  }
  uint8_t CodeOf(float value) const {
    if (value != value) return kE4M3.positive_nan;  // also E5M2's
    const double exact = double{value};
    return e5m2_ ? EncodeE5M2(exact) : EncodeE4M3(exact);
  }

  template <typename Body>
  void ForTokens(Body body) const {
    pool_.ParallelFor(tokens_, std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, size_)),
                      [&](int64_t begin, int64_t end, int) {
                        for (int64_t t = begin; t < end; ++t) body(t);
                      });
  }
  const T* Row(int64_t t) const { return args_.x.as<T>() + t * args_.x.stride(0); }

  ThreadPool& pool_;
  const QuantizeArgs& args_;
  const int64_t tokens_ = args_.x.dim(0);
  const int64_t size_ = args_.x.dim(1);
  const bool e5m2_ = args_.format == QuantizeFormat::kE5M2;
  uint8_t* const codes_ = args_.codes.as<uint8_t>();
  float* const scales_ = args_.scale.as<float>();
};

}  // namespace

absl::Status QuantizeCpu(const OpContext& ctx, const QuantizeArgs& args) {
  ThreadPool& pool = *ctx.device.thread_pool();
  if (args.x.dtype == DType::kBF16) {
    Quantizer<BFloat16>(pool, args).Run();
  } else {
    Quantizer<float>(pool, args).Run();
  }
  return absl::OkStatus();
}

}  // namespace millrace
