// A row's way into the cache on the CPU, for kv_append and rope_append, which compiles it once per
// instruction set: include it inside an anonymous namespace of millrace, after e4m3.h and
// <cstring>. No include guard, and no includes, on purpose.

// T to T is a copy, f32 to bf16 rounds to nearest even, bf16 to f32 is exact.
template <int kLanes>
void CopyRow(const float* from, float* to, int64_t dim) {
  std::memcpy(to, from, static_cast<size_t>(dim) * sizeof(float));
}
template <int kLanes>
void CopyRow(const BFloat16* from, BFloat16* to, int64_t dim) {
  std::memcpy(to, from, static_cast<size_t>(dim) * sizeof(BFloat16));
}
template <int kLanes>
void CopyRow(const float* from, BFloat16* to, int64_t dim) {
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) simd::Store<kLanes>(to + i, simd::Load<kLanes>(from + i));
  for (; i < dim; ++i) to[i] = ToBFloat16(from[i]);
}
template <int kLanes>
void CopyRow(const BFloat16* from, float* to, int64_t dim) {
  for (int64_t i = 0; i < dim; ++i) to[i] = ToFloat(from[i]);
}

// The codes of from * inverse.
template <int kLanes, typename From>
void EncodeRow(const From* from, E4M3* to, int64_t dim, float inverse) {
  const auto by = simd::Set<kLanes>(inverse);
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    simd::Store<kLanes>(to + i, simd::Load<kLanes>(from + i) * by);
  }
  if (i == dim) return;
  From rest[kLanes] = {};
  E4M3 codes[kLanes];
  std::memcpy(rest, from + i, static_cast<size_t>(dim - i) * sizeof(From));
  simd::Store<kLanes>(codes, simd::Load<kLanes>(rest) * by);
  std::memcpy(to + i, codes, static_cast<size_t>(dim - i));
}

template <int kLanes, typename From, typename To>
void AppendRow(const From* from, To* to, int64_t dim, float inverse) {
  if constexpr (sizeof(To) == 1) {
    EncodeRow<kLanes>(from, to, dim, inverse);
  } else {
    CopyRow<kLanes>(from, to, dim);
  }
}

// What rows of head n are multiplied by on their way into the cache.
template <typename To>
float InverseScale(const float* scale, int64_t n) {
  return sizeof(To) == 1 ? 1.0f / scale[n] : 1.0f;
}
