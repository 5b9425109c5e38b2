// A row's way into the cache on the CPU, for kv_append and rope_append, which compiles it once per
// instruction set: include it inside an anonymous namespace of millrace, after simd.h and
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
