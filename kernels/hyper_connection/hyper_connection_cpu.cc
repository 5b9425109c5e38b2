#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/hyper_connection/hyper_connection_impl.h"

namespace millrace {
namespace {

constexpr int64_t kMaxMixes = (2 + kMaxHyperStreams) * kMaxHyperStreams;
// Multiplications that are worth another thread: a few microseconds of work.
constexpr int64_t kProductsPerTask = 65536;
// Partial sums: enough for the compiler to keep vectors of them, and smaller rounding errors than
// one sum over a long row.
constexpr int64_t kLanes = 16;

float Load(float x) { return x; }
float Load(BFloat16 x) { return ToFloat(x); }
void Store(float value, float& out) { out = value; }
void Store(float value, BFloat16& out) { out = ToBFloat16(value); }

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

float Dot(const float* a, const float* b, int64_t size) {
  std::array<float, kLanes> sums = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      sums[static_cast<size_t>(lane)] += a[i + lane] * b[i + lane];
    }
  }
  for (int64_t lane = 0; i < size; ++i, ++lane) sums[static_cast<size_t>(lane)] += a[i] * b[i];
  float sum = 0;
  for (float part : sums) sum += part;
  return sum;
}

template <typename T>
T* Row(const TensorView& t, int64_t token, int64_t stream) {
  return t.as<T>() + token * t.stride(0) + stream * t.stride(1);
}

// A token's streams one after the other.
template <typename T>
void Flatten(const TensorView& streams, int64_t token, float* flat) {
  const int64_t width = streams.dim(2);
  for (int64_t j = 0; j < streams.dim(1); ++j) {
    const T* row = Row<T>(streams, token, j);
    for (int64_t i = 0; i < width; ++i) flat[j * width + i] = Load(row[i]);
  }
}

// m = fn . flat / sqrt(mean(flat^2) + norm_eps)
template <typename Args>
void Mixes(const Args& args, const std::vector<float>& flat, float* m) {
  const auto size = static_cast<int64_t>(flat.size());
  const float mean = Dot(flat.data(), flat.data(), size) / static_cast<float>(size);
  const float norm = 1.0f / std::sqrt(mean + args.norm_eps);
  for (int64_t row = 0; row < args.fn.dim(0); ++row) {
    m[row] = Dot(args.fn.template as<float>() + row * args.fn.stride(0), flat.data(), size) * norm;
  }
}

// y = sum over j of weights[j] * flat[j]
template <typename T>
void Collapse(const std::vector<float>& flat, const float* weights, int64_t streams, T* y) {
  const int64_t width = static_cast<int64_t>(flat.size()) / streams;
  for (int64_t i = 0; i < width; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < streams; ++j) {
      sum += weights[j] * flat[static_cast<size_t>(j * width + i)];
    }
    Store(sum, y[i]);
  }
}

// In place: c[j * size + k] of logits becomes that of the mixing matrix.
void Sinkhorn(float* c, int64_t size, float eps, int32_t iterations) {
  for (float* row = c; row < c + size * size; row += size) {
    const float top = *std::max_element(row, row + size);
    float sum = 0;
    for (int64_t k = 0; k < size; ++k) sum += row[k] = std::exp(row[k] - top);
    for (int64_t k = 0; k < size; ++k) row[k] = row[k] / sum + eps;
  }
  // Divides `size` entries that lie `step` apart by their sum.
  const auto normalise = [size, eps](float* first, int64_t step) {
    float sum = eps;
    for (int64_t i = 0; i < size; ++i) sum += first[i * step];
    for (int64_t i = 0; i < size; ++i) first[i * step] /= sum;
  };
  for (int64_t k = 0; k < size; ++k) normalise(c + k, size);
  for (int32_t iteration = 1; iteration < iterations; ++iteration) {
    for (int64_t j = 0; j < size; ++j) normalise(c + j * size, 1);
    for (int64_t k = 0; k < size; ++k) normalise(c + k, size);
  }
}

template <typename T>
void CopyIn(const HyperConnectionBeginArgs& args, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T* x = args.x.as<T>() + t * args.x.stride(0);
    for (int64_t j = 0; j < args.streams.dim(1); ++j) {
      std::copy_n(x, args.streams.dim(2), Row<T>(args.streams, t, j));
    }
  }
}

template <typename T>
void MixIn(const HyperConnectionInArgs& args, int64_t begin, int64_t end) {
  const int64_t streams = args.streams.dim(1);
  const float* base = args.base.as<float>();
  const float* scale = args.scale.as<float>();
  std::vector<float> flat(static_cast<size_t>(streams * args.streams.dim(2)));
  std::array<float, kMaxMixes> mixes;
  float* m = mixes.data();
  for (int64_t t = begin; t < end; ++t) {
    Flatten<T>(args.streams, t, flat.data());
    Mixes(args, flat, m);
    for (int64_t j = 0; j < streams; ++j) {
      m[j] = Sigmoid(m[j] * scale[0] + base[j]) + args.hc_eps;
      args.post.as<float>()[t * args.post.stride(0) + j] =
          2.0f * Sigmoid(m[streams + j] * scale[1] + base[streams + j]);
    }
    Collapse(flat, m, streams, args.x.as<T>() + t * args.x.stride(0));
    float* c = m + 2 * streams;
    for (int64_t i = 0; i < streams * streams; ++i) c[i] = c[i] * scale[2] + base[2 * streams + i];
    Sinkhorn(c, streams, args.hc_eps, args.sinkhorn_iters);
    for (int64_t j = 0; j < streams; ++j) {
      std::copy_n(c + j * streams, streams, Row<float>(args.comb, t, j));
    }
  }
}

template <typename T>
void MixOut(const HyperConnectionOutArgs& args, int64_t begin, int64_t end) {
  const int64_t streams = args.streams.dim(1);
  const int64_t width = args.streams.dim(2);
  std::array<float, kMaxHyperStreams> old;
  for (int64_t t = begin; t < end; ++t) {
    const T* out = args.out.as<T>() + t * args.out.stride(0);
    const float* post = args.post.as<float>() + t * args.post.stride(0);
    const float* comb = args.comb.as<float>() + t * args.comb.stride(0);
    T* rows = Row<T>(args.streams, t, 0);
    const int64_t step = args.streams.stride(1);
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t j = 0; j < streams; ++j) old[static_cast<size_t>(j)] = Load(rows[j * step + i]);
      for (int64_t k = 0; k < streams; ++k) {
        float sum = post[k] * Load(out[i]);
        for (int64_t j = 0; j < streams; ++j) {
          sum += comb[j * args.comb.stride(1) + k] * old[static_cast<size_t>(j)];
        }
        Store(sum, rows[k * step + i]);
      }
    }
  }
}

template <typename T>
void Head(const HyperConnectionHeadArgs& args, int64_t begin, int64_t end) {
  const int64_t streams = args.streams.dim(1);
  std::vector<float> flat(static_cast<size_t>(streams * args.streams.dim(2)));
  std::array<float, kMaxHyperStreams> m;
  for (int64_t t = begin; t < end; ++t) {
    Flatten<T>(args.streams, t, flat.data());
    Mixes(args, flat, m.data());
    for (int64_t j = 0; j < streams; ++j) {
      float& weight = m[static_cast<size_t>(j)];
      weight = Sigmoid(weight * *args.scale.as<float>() + args.base.as<float>()[j]) + args.hc_eps;
    }
    Collapse(flat, m.data(), streams, args.y.as<T>() + t * args.y.stride(0));
  }
}

// `products`: multiplications a token.
template <typename Args>
absl::Status Run(const OpContext& ctx, const Args& args, int64_t products,
                 void (*body)(const Args&, int64_t, int64_t)) {
  ctx.device.thread_pool()->ParallelFor(
      args.streams.dim(0), std::max<int64_t>(1, kProductsPerTask / products),
      [&](int64_t begin, int64_t end, int) { body(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace

absl::Status HyperConnectionBeginCpu(const OpContext& ctx, const HyperConnectionBeginArgs& args) {
  return Run(ctx, args, args.streams.dim(1) * args.streams.dim(2),
             args.streams.dtype == DType::kBF16 ? CopyIn<BFloat16> : CopyIn<float>);
}

absl::Status HyperConnectionInCpu(const OpContext& ctx, const HyperConnectionInArgs& args) {
  return Run(ctx, args, args.fn.size(),
             args.streams.dtype == DType::kBF16 ? MixIn<BFloat16> : MixIn<float>);
}

absl::Status HyperConnectionOutCpu(const OpContext& ctx, const HyperConnectionOutArgs& args) {
  return Run(ctx, args, args.comb.dim(1) * args.comb.dim(2) * args.out.dim(1),
             args.streams.dtype == DType::kBF16 ? MixOut<BFloat16> : MixOut<float>);
}

absl::Status HyperConnectionHeadCpu(const OpContext& ctx, const HyperConnectionHeadArgs& args) {
  return Run(ctx, args, args.fn.size(),
             args.streams.dtype == DType::kBF16 ? Head<BFloat16> : Head<float>);
}

}  // namespace millrace
