// Swiglu for one vector width. Included inside an anonymous namespace of millrace by one file per
// instruction set, after swiglu_impl.h and simd.h.

template <int kLanes>
[[gnu::always_inline]] inline simd::F<kLanes> SiluTimes(simd::F<kLanes> gate, simd::F<kLanes> up) {
  // Exp() ends at 88. Beyond, the gate divided by infinity is 0, or NaN for an infinite gate.
  const simd::F<kLanes> x = -gate;
  const simd::F<kLanes> e = x > 88.0f ? simd::Set<kLanes>(__builtin_inff()) : simd::Exp(x);
  return gate / (1.0f + e) * up;
}

template <int kLanes, typename T>
void Rows(const T* gate, const T* up, int64_t width, T* out) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    simd::Store<kLanes>(out + i, SiluTimes<kLanes>(simd::Load<kLanes>(gate + i),
                                                   simd::Load<kLanes>(up + i)));
  }
  if (i == width) return;
  T last_gate[kLanes] = {}, last_up[kLanes] = {}, last_out[kLanes];
  for (int64_t j = i; j < width; ++j) {
    last_gate[j - i] = gate[j];
    last_up[j - i] = up[j];
  }
  simd::Store<kLanes>(last_out, SiluTimes<kLanes>(simd::Load<kLanes>(last_gate),
                                                  simd::Load<kLanes>(last_up)));
  for (int64_t j = i; j < width; ++j) out[j] = last_out[j - i];
}

template <int kLanes>
inline constexpr SwigluKernels kKernels = {Rows<kLanes, float>, Rows<kLanes, BFloat16>};
