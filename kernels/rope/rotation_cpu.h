// The rotation of heads on the CPU, for rope and rope_append, compiled once per instruction set:
// include it inside an anonymous namespace of millrace, after rotation.h and simd.h. No include
// guard, and no includes, on purpose.

// One token's sines and cosines, padded to whole vectors.
template <int kLanes>
struct RopeTable {
  static constexpr int kSize = static_cast<int>(kMaxRopeDim / 2);
  alignas(64) float inv_freq[kSize] = {};
  alignas(64) float sin[kSize];
  alignas(64) float cos[kSize];

  RopeTable(const float* frequencies, int half) {
    for (int i = 0; i < half; ++i) inv_freq[i] = frequencies[i];
  }

  void Fill(int32_t position, int half) {
    for (int i = 0; i < half; i += kLanes) {
      simd::F<kLanes> s, c;
      simd::SinCos<kLanes>(position, simd::Load<kLanes>(inv_freq + i), &s, &c);
      simd::Store<kLanes>(sin + i, s);
      simd::Store<kLanes>(cos + i, c);
    }
  }
};

inline float Widen(float x) { return x; }
inline float Widen(BFloat16 x) { return ToFloat(x); }
inline void Narrow(float x, float* to) { *to = x; }
inline void Narrow(float x, BFloat16* to) { *to = ToBFloat16(x); }

// Rotates the pairs (i, i + half) of one head. `to` may be `from`.
template <int kLanes, typename From, typename To>
void RotateHead(const From* from, To* to, int half, const RopeTable<kLanes>& table) {
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const auto a = simd::Load<kLanes>(from + i);
    const auto b = simd::Load<kLanes>(from + half + i);
    const auto s = simd::Load<kLanes>(table.sin + i);
    const auto c = simd::Load<kLanes>(table.cos + i);
    simd::Store<kLanes>(to + i, a * c - b * s);
    simd::Store<kLanes>(to + half + i, b * c + a * s);
  }
  for (; i < half; ++i) {
    const float a = Widen(from[i]);
    const float b = Widen(from[half + i]);
    Narrow(a * table.cos[i] - b * table.sin[i], to + i);
    Narrow(b * table.cos[i] + a * table.sin[i], to + half + i);
  }
}
