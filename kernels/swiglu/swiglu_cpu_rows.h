// The CPU kernel's text, compiled once per instruction set: include it inside an anonymous
// namespace of millrace, after swiglu_impl.h and simd.h. No include guard, and no includes, on
// purpose.

template <int kLanes>
[[gnu::always_inline]] inline simd::F<kLanes> Gated(simd::F<kLanes> gate, simd::F<kLanes> up,
                                                    float limit) {
  // NaN fails every comparison and stays.
  gate = gate > limit ? simd::Set<kLanes>(limit) : gate;
  up = up > limit ? simd::Set<kLanes>(limit) : up;
  up = up < -limit ? simd::Set<kLanes>(-limit) : up;
  // exp(-|g|) never overflows: silu(g) = g * s with s = 1 / (1 + e) or e / (1 + e).
  const simd::F<kLanes> magnitude = gate < 0.0f ? gate : -gate;
  const simd::F<kLanes> e = simd::Exp(magnitude);
  const simd::F<kLanes> one = simd::Set<kLanes>(1.0f);
  const simd::F<kLanes> numerator = gate < 0.0f ? e : one;
  return gate * (numerator / (one + e)) * up;
}

// `size` gates, and as many ups behind them.
template <int kLanes, typename T>
void GatedBlock(const T* gate, int64_t size, float limit, T* y) {
  const T* up = gate + size;
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    simd::Store<kLanes>(
        y + i, Gated<kLanes>(simd::Load<kLanes>(gate + i), simd::Load<kLanes>(up + i), limit));
  }
  if (i == size) return;
  // The rest through a padded copy, so that every element gets the same arithmetic.
  T g[kLanes] = {}, u[kLanes] = {}, out[kLanes];
  const auto bytes = static_cast<size_t>(size - i) * sizeof(T);
  __builtin_memcpy(g, gate + i, bytes);
  __builtin_memcpy(u, up + i, bytes);
  simd::Store<kLanes>(out, Gated<kLanes>(simd::Load<kLanes>(g), simd::Load<kLanes>(u), limit));
  __builtin_memcpy(static_cast<void*>(y + i), out, bytes);
}

template <int kLanes, typename T>
void GatedRows(const SwigluRows& args) {
  for (int64_t t = 0; t < args.rows; ++t) {
    const T* x = static_cast<const T*>(args.x) + t * args.x_stride;
    T* y = static_cast<T*>(args.y) + t * args.y_stride;
    for (int64_t i = 0; i < args.size; i += args.block) {
      GatedBlock<kLanes>(x + 2 * i, args.block, args.limit, y + i);
    }
  }
}
