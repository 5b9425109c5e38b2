#include <algorithm>
#include <bit>
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

float Widen(float x) { return x; }
float Widen(BFloat16 x) { return ToFloat(x); }

template <typename T>
float Amax(const T* x, int64_t count) {
  float amax = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::abs(Widen(x[i]));
    if (magnitude > amax) amax = magnitude;  // false for NaN
  }
  return std::min(amax, std::numeric_limits<float>::max());
}

float ScaleOf(float amax, QuantizeScale rounding) {
  constexpr float kLeast = 0x1p-126f;
  if (rounding == QuantizeScale::kF32) return std::max(amax / 448.0f, kLeast);
  const uint8_t code = EncodeE8M0RoundUp(double{amax} / 448);
  return std::max(kE8M0Values[code], kLeast);
}

template <typename T>
void Encode(const T* x, int64_t count, float scale, uint8_t* codes) {
  const float inverse = 1.0f / scale;
  for (int64_t i = 0; i < count; ++i) {
    const float value = Widen(x[i]) * inverse;
    codes[i] = value == value ? EncodeE4M3(value) : kE4M3.positive_nan;
  }
}

template <typename T>
class Quantizer {
 public:
  Quantizer(ThreadPool& pool, const QuantizeArgs& args) : pool_(pool), args_(args) {}

  void Groups() const {
    ForTokens([&](int64_t t) {
      for (int64_t g = 0; g * kQuantizeGroup < size_; ++g) {
        const int64_t first = g * kQuantizeGroup;
        const int64_t count = std::min(kQuantizeGroup, size_ - first);
        const float scale = ScaleOf(Amax(Row(t) + first, count), args_.rounding);
        scales_[g * args_.scale.stride(0) + t] = scale;
        Encode(Row(t) + first, count, scale, Codes(t) + first);
      }
    });
  }

  void Tokens() const {
    ForTokens([&](int64_t t) {
      scales_[t] = ScaleOf(Amax(Row(t), size_), args_.rounding);
      Encode(Row(t), size_, scales_[t], Codes(t));
    });
  }

  void Tensor() const {
    float amax = 0;
    for (int64_t t = 0; t < args_.x.dim(0); ++t) amax = std::max(amax, Amax(Row(t), size_));
    const float scale = ScaleOf(amax, args_.rounding);
    scales_[0] = scale;
    ForTokens([&](int64_t t) { Encode(Row(t), size_, scale, Codes(t)); });
  }

 private:
  template <typename Body>
  void ForTokens(Body body) const {
    pool_.ParallelFor(args_.x.dim(0),
                      std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, size_)),
                      [&](int64_t begin, int64_t end, int) {
                        for (int64_t t = begin; t < end; ++t) body(t);
                      });
  }
  const T* Row(int64_t t) const { return args_.x.as<T>() + t * args_.x.stride(0); }
  uint8_t* Codes(int64_t t) const { return args_.codes.as<uint8_t>() + t * args_.codes.stride(0); }

  ThreadPool& pool_;
  const QuantizeArgs& args_;
  const int64_t size_ = args_.x.dim(1);
  float* const scales_ = args_.scale.as<float>();
};

template <typename T>
void Run(ThreadPool& pool, const QuantizeArgs& args) {
  const Quantizer<T> quantizer(pool, args);
  switch (args.unit) {
    case QuantizeUnit::kGroup:
      return quantizer.Groups();
    case QuantizeUnit::kToken:
      return quantizer.Tokens();
    case QuantizeUnit::kTensor:
      return quantizer.Tensor();
  }
}

}  // namespace

absl::Status QuantizeCpu(const OpContext& ctx, const QuantizeArgs& args) {
  ThreadPool& pool = *ctx.device.thread_pool();
  if (args.x.dtype == DType::kBF16) {
    Run<BFloat16>(pool, args);
  } else {
    Run<float>(pool, args);
  }
  return absl::OkStatus();
}

}  // namespace millrace
