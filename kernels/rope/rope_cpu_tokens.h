// The CPU kernel's text, compiled once per instruction set: include it inside an anonymous
// namespace of millrace, after rope_impl.h and simd.h. No include guard, and no includes, on
// purpose.

// One token's sines and cosines, padded to whole vectors.
template <int kLanes>
struct RopeTable {
  static constexpr int kSize = static_cast<int>(kMaxRopeDim / 2);
  alignas(64) float inv_freq[kSize] = {};
  alignas(64) float sin[kSize];
  alignas(64) float cos[kSize];

  void Fill(int32_t position, int half) {
    for (int i = 0; i < half; i += kLanes) {
      simd::F<kLanes> s, c;
      simd::SinCos<kLanes>(position, simd::Load<kLanes>(inv_freq + i), &s, &c);
      simd::Store<kLanes>(sin + i, s);
      simd::Store<kLanes>(cos + i, c);
    }
  }
};

template <int kLanes, typename T>
[[gnu::always_inline]] inline void RotatePairs(T* low, T* high, const float* sin,
                                               const float* cos) {
  const auto a = simd::Load<kLanes>(low);
  const auto b = simd::Load<kLanes>(high);
  const auto s = simd::Load<kLanes>(sin);
  const auto c = simd::Load<kLanes>(cos);
  simd::Store<kLanes>(low, a * c - b * s);
  simd::Store<kLanes>(high, b * c + a * s);
}

inline float Widen(float x) { return x; }
inline float Widen(BFloat16 x) { return ToFloat(x); }
inline void Narrow(float x, float* to) { *to = x; }
inline void Narrow(float x, BFloat16* to) { *to = ToBFloat16(x); }

template <int kLanes, typename T>
void RotateHead(T* x, int half, const RopeTable<kLanes>& table) {
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    RotatePairs<kLanes>(x + i, x + half + i, table.sin + i, table.cos + i);
  }
  for (; i < half; ++i) {
    const float a = Widen(x[i]);
    const float b = Widen(x[half + i]);
    Narrow(a * table.cos[i] - b * table.sin[i], x + i);
    Narrow(b * table.cos[i] + a * table.sin[i], x + half + i);
  }
}

template <int kLanes, typename T>
void RotateTokens(const RopeTokens& args) {
  RopeTable<kLanes> table;
  const int half = args.dim / 2;
  for (int i = 0; i < half; ++i) table.inv_freq[i] = args.inv_freq[i];
  for (int64_t t = 0; t < args.tokens; ++t) {
    table.Fill(args.positions[t], half);
    T* x = static_cast<T*>(args.x) + t * args.token_stride;
    for (int h = 0; h < args.heads; ++h) RotateHead<kLanes>(x + h * args.head_stride, half, table);
  }
}
