// The passes' text, compiled once per instruction set: include it inside an anonymous namespace of
// millrace, after sample_cpu_passes.h and simd.h. No include guard, and no includes, on purpose.

// Calls block(index, x) with kSampleBlock logits for each block; those past the row's end are
// `fill`.
template <typename Block>
[[gnu::always_inline]] inline void ForEachBlock(const SampleRange& range, float fill,
                                                const Block& block) {
  for (int64_t i = range.begin; i < range.end; ++i) {
    const float* x = range.logits + i * kSampleBlock;
    const int64_t left = range.size - i * kSampleBlock;
    if (left >= kSampleBlock) {
      block(i, x);
      continue;
    }
    float padded[kSampleBlock];
    for (int64_t j = 0; j < kSampleBlock; ++j) padded[j] = j < left ? x[j] : fill;
    block(i, padded);
  }
}

template <int kLanes>
bool Maxima(const SampleRange& range, float* maxima) {
  simd::F<kLanes> zeros = {};  // x * 0 is NaN for what is not finite
  ForEachBlock(range, range.logits[range.size - 1], [&](int64_t i, const float* x) {
    auto top = simd::Load<kLanes>(x);
    zeros += top * 0.0f;
#pragma GCC unroll 16
    for (int j = kLanes; j < kSampleBlock; j += kLanes) {
      const auto v = simd::Load<kLanes>(x + j);
      zeros += v * 0.0f;
      top = simd::Max(top, v);
    }
    maxima[i] = simd::MaxLane(top);
  });
  return simd::Sum(zeros) == 0.0f;
}

template <int kLanes>
void Sums(const SampleRange& range, float base, float factor, float* sums) {
  const float nothing = -__builtin_inff();
  const auto b = simd::Set<kLanes>(base);
  ForEachBlock(range, nothing, [&](int64_t i, const float* x) {
    simd::F<kLanes> sum = {};
    for (int j = 0; j < kSampleBlock; j += kLanes) {
      sum += simd::Exp((simd::Load<kLanes>(x + j) - b) * factor);
    }
    sums[i] = simd::Sum(sum);
  });
}

template <int kLanes>
void Exponentials(float* x, int64_t n, float base, float factor) {
  const auto b = simd::Set<kLanes>(base);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    simd::Store<kLanes>(x + i, simd::Exp((simd::Load<kLanes>(x + i) - b) * factor));
  }
  for (; i < n; ++i) x[i] = simd::Exp((simd::Set<kLanes>(x[i]) - b) * factor)[0];
}

template <int kLanes>
int64_t CountAbove(const SampleRange& range, float bound) {
  int64_t count = 0;
  ForEachBlock(range, bound, [&](int64_t, const float* x) {
    simd::I<kLanes> above = {};
    for (int j = 0; j < kSampleBlock; j += kLanes) {
      above -= simd::Load<kLanes>(x + j) > simd::Set<kLanes>(bound);
    }
    for (int lane = 0; lane < kLanes; ++lane) count += above[lane];
  });
  return count;
}
