// The two products of attention on small blocks, compiled once per instruction set: include it
// inside an anonymous namespace of millrace, after simd.h. No include guard, and no includes, on
// purpose.
//
// Pages lie anywhere, so the hardware's prefetch starts anew at each: the products over few rows
// ask for rows of cache ahead of their use.
//
// Two ways to score, by the number of query rows:
// - few rows (decode): a key's elements lie along the lanes, each row is a dot product. A key is
//   loaded once for all rows and nothing is transposed.
// - many rows (prefill): rows lie along the lanes of a transposed tile of queries, and one element
// of
//   a key is spread over them. Softmax then runs down the lanes without crossing them.

constexpr int kBlock = 64;  // keys of a block, and the stride of its scores

template <typename T>
[[gnu::always_inline]] inline void Prefetch(const T* row, int head_dim) {
  for (int d = 0; d < head_dim; d += 64 / static_cast<int>(sizeof(T))) __builtin_prefetch(row + d);
}

// scores[r][0..3] of kRows rows with four keys. q is in the order of simd::LoadPair(const T*).
template <int kLanes, int kRows, typename T>
[[gnu::always_inline]] inline void DotFourKeys(const float* q, int head_dim, const T* const* k,
                                               float* scores) {
  simd::F<kLanes> acc[kRows][4] = {};
  int d = 0;
  for (; d + 2 * kLanes <= head_dim; d += 2 * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      simd::F<kLanes> a, b;
      simd::LoadPair<kLanes>(k[j] + d, &a, &b);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        acc[r][j] += a * simd::Load<kLanes>(q + r * head_dim + d);
        acc[r][j] += b * simd::Load<kLanes>(q + r * head_dim + d + kLanes);
      }
    }
  }
  if (d < head_dim) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const auto key = simd::Load<kLanes>(k[j] + d);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) acc[r][j] += key * simd::Load<kLanes>(q + r * head_dim + d);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    simd::Store<4>(scores + r * kBlock, simd::Sum4(acc[r][0], acc[r][1], acc[r][2], acc[r][3]));
  }
}

// scores[j][rows] of kKeys keys with one panel of 2 * kLanes rows; q is the panel, [D][2 * kLanes].
template <int kLanes, int kKeys>
void ScorePanel(const float* q, int head_dim, const float* const* k, float* scores) {
  simd::F<kLanes> acc[kKeys][2] = {};
  for (int d = 0; d < head_dim; ++d) {
    const auto q0 = simd::Load<kLanes>(q + d * 2 * kLanes);
    const auto q1 = simd::Load<kLanes>(q + d * 2 * kLanes + kLanes);
#pragma GCC unroll 8
    for (int j = 0; j < kKeys; ++j) {
      const auto key = simd::Set<kLanes>(k[j][d]);
      acc[j][0] += key * q0;
      acc[j][1] += key * q1;
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kKeys; ++j) {
    simd::Store<kLanes>(scores + j * kBlock, acc[j][0]);
    simd::Store<kLanes>(scores + j * kBlock + kLanes, acc[j][1]);
  }
}

template <typename T>
struct Mix {
  const float* w;     // weights of the block
  const T* const* v;  // [keys] values
  int keys;
  const float* rescale;  // [rows]
  float* acc;            // [rows][D]
};

// acc[r] <- acc[r] * rescale[r] + sum over keys of weight(r, j) * v[j], for kRows rows and kVectors
// vectors of columns from `column` on. weight(r, j) is w[j][r] after ScorePanel (kKeyMajor), else
// w[r][j]. The columns are in the order of simd::LoadPair(const T*). Meanwhile brings in the rows
// of `ahead`, unless null.
template <int kLanes, int kRows, int kVectors, bool kKeyMajor, typename T>
[[gnu::always_inline]] inline void MixColumns(const Mix<T>& m, int head_dim, int column,
                                              const T* const* ahead) {
  simd::F<kLanes> sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      sum[r][c] = simd::Load<kLanes>(m.acc + r * head_dim + column + c * kLanes) *
                  simd::Set<kLanes>(m.rescale[r]);
    }
  }
  for (int j = 0; j < m.keys; ++j) {
    if (ahead != nullptr) Prefetch(ahead[j], head_dim);
    const T* row = m.v[j] + column;
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; c += 2) {
      simd::F<kLanes> a, b;
      if constexpr (kVectors > 1) {
        simd::LoadPair<kLanes>(row + c * kLanes, &a, &b);
      } else {
        a = simd::Load<kLanes>(row);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const auto weight =
            simd::Set<kLanes>(kKeyMajor ? m.w[j * kBlock + r] : m.w[r * kBlock + j]);
        sum[r][c] += weight * a;
        if constexpr (kVectors > 1) sum[r][c + 1] += weight * b;
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      simd::Store<kLanes>(m.acc + r * head_dim + column + c * kLanes, sum[r][c]);
    }
  }
}

// MixColumns over all columns of a head.
template <int kLanes, int kRows, int kVectors, bool kKeyMajor, typename T>
void MixRows(const Mix<T>& m, int head_dim, const T* const* ahead = nullptr) {
  int d = 0;
  for (; d + kVectors * kLanes <= head_dim; d += kVectors * kLanes) {
    MixColumns<kLanes, kRows, kVectors, kKeyMajor>(m, head_dim, d, ahead);
    ahead = nullptr;
  }
  for (; d + 2 * kLanes <= head_dim; d += 2 * kLanes) {
    MixColumns<kLanes, kRows, 2, kKeyMajor>(m, head_dim, d, ahead);
    ahead = nullptr;
  }
  if (d < head_dim) MixColumns<kLanes, kRows, 1, kKeyMajor>(m, head_dim, d, ahead);
}
