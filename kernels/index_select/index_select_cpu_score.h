// The CPU kernel's text, compiled once per instruction set: include it inside an anonymous
// namespace of millrace, after index_select_cpu_scores.h and simd.h. No include guard on purpose.
//
// Heads lie along the lanes of a panel, padded with heads of weight zero; a score is a sum over
// panels, then over lanes, so it depends on its token and key alone.

#include "kernels/paged_attention/paged_attention_cpu_products.h"

template <int kLanes>
constexpr int kPanel = 2 * kLanes;

// Panels of queries, [dim][kPanel] each, and behind them the weights.
template <int kLanes>
void PackQueries(const IndexScores& s) {
  const int64_t heads = IndexPaddedHeads(s.heads);
  float* weights = s.scratch + heads * s.dim;
  for (int64_t n = 0; n < heads; ++n) {
    const bool is_head = n < s.heads;
    float* to = s.scratch + n / kPanel<kLanes> * kPanel<kLanes> * s.dim + n % kPanel<kLanes>;
    for (int64_t d = 0; d < s.dim; ++d) {
      to[d * kPanel<kLanes>] = is_head ? s.q[n * s.dim + d] : 0.0f;
    }
    weights[n] = is_head ? s.weights[n] : 0.0f;
  }
}

inline const float* AsFloats(const float* row, int64_t, float*) { return row; }
inline const float* AsFloats(const BFloat16* row, int64_t dim, float* to) {
  for (int64_t d = 0; d < dim; ++d) to[d] = ToFloat(row[d]);
  return to;
}

// NaN stays.
template <typename V>
[[gnu::always_inline]] inline V Relu(V x) {
  return x < 0.0f ? V{} : x;
}

template <int kLanes>
void ScoreKeys(const IndexScores& s, const float* const* keys, float* scores) {
  const float* weights = s.scratch + IndexPaddedHeads(s.heads) * s.dim;
  simd::F<kLanes> sums[kIndexKeysTogether] = {};
  for (int64_t n = 0; n < s.heads; n += kPanel<kLanes>) {
    float dots[kIndexKeysTogether * kBlock];
    ScorePanel<kLanes, kIndexKeysTogether>(s.scratch + n * s.dim, static_cast<int>(s.dim), keys,
                                           dots);
    const auto low = simd::Load<kLanes>(weights + n);
    const auto high = simd::Load<kLanes>(weights + n + kLanes);
    for (int64_t j = 0; j < kIndexKeysTogether; ++j) {
      sums[j] += Relu(simd::Load<kLanes>(dots + j * kBlock)) * low;
      sums[j] += Relu(simd::Load<kLanes>(dots + j * kBlock + kLanes)) * high;
    }
  }
  for (int64_t j = 0; j < kIndexKeysTogether; ++j) scores[j] = simd::Sum(sums[j]);
}

template <int kLanes, typename T>
void ScoreEntries(const IndexScores& s) {
  PackQueries<kLanes>(s);
  float* widened = s.scratch + IndexPaddedHeads(s.heads) * (s.dim + 1);
  for (int64_t first = s.begin; first < s.end; first += kIndexKeysTogether) {
    const float* keys[kIndexKeysTogether];
    for (int64_t j = 0; j < kIndexKeysTogether; ++j) {
      const int64_t entry = first + j < s.end ? first + j : s.end - 1;
      const T* row = static_cast<const T*>(s.keys) +
                     s.pages[entry / s.page_entries] * s.page_stride +
                     entry % s.page_entries * s.key_stride;
      keys[j] = AsFloats(row, s.dim, widened + j * s.dim);
    }
    float scores[kIndexKeysTogether];
    ScoreKeys<kLanes>(s, keys, scores);
    for (int64_t j = 0; j < kIndexKeysTogether && first + j < s.end; ++j) {
      s.scores[first + j] = scores[j];
    }
  }
}

template <int kLanes>
void Score(const IndexScores& s) {
  if (s.keys_dtype == DType::kF32) {
    ScoreEntries<kLanes, float>(s);
  } else {
    ScoreEntries<kLanes, BFloat16>(s);
  }
}
