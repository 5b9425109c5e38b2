// The CPU kernel's text, compiled once per instruction set: include it inside an anonymous
// namespace of millrace, after rms_norm_impl.h and simd.h. No include guard, and no includes, on
// purpose.

inline float Widen(float x) { return x; }
inline float Widen(BFloat16 x) { return ToFloat(x); }
inline void Narrow(float x, float* to) { *to = x; }
inline void Narrow(float x, BFloat16* to) { *to = ToBFloat16(x); }

// residual += x.
template <int kLanes, typename T>
void AddRow(const T* x, T* residual, int64_t size) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    simd::Store<kLanes>(residual + i, simd::Load<kLanes>(residual + i) + simd::Load<kLanes>(x + i));
  }
  for (; i < size; ++i) Narrow(Widen(residual[i]) + Widen(x[i]), residual + i);
}

template <int kLanes, typename T>
float SumOfSquares(const T* h, int64_t size) {
  simd::F<kLanes> a = {}, b = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= size; i += 2 * kLanes) {
    const auto u = simd::Load<kLanes>(h + i);
    const auto v = simd::Load<kLanes>(h + i + kLanes);
    a += u * u;
    b += v * v;
  }
  float sum = simd::Sum(a + b);
  for (; i < size; ++i) sum += Widen(h[i]) * Widen(h[i]);
  return sum;
}

template <int kLanes, typename T, typename W>
void ScaleRow(const T* h, const W* weight, float scale, T* y, int64_t size) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    simd::Store<kLanes>(y + i, simd::Load<kLanes>(h + i) * scale * simd::Load<kLanes>(weight + i));
  }
  for (; i < size; ++i) Narrow(Widen(h[i]) * scale * Widen(weight[i]), y + i);
}

template <int kLanes, typename T, typename W>
void NormRows(const RmsNormRows& args) {
  for (int64_t t = 0; t < args.rows; ++t) {
    const T* h = static_cast<const T*>(args.x) + t * args.x_stride;
    if (args.residual != nullptr) {
      T* residual = static_cast<T*>(args.residual) + t * args.residual_stride;
      AddRow<kLanes>(h, residual, args.size);
      h = residual;
    }
    const float mean = SumOfSquares<kLanes>(h, args.size) / static_cast<float>(args.size);
    const float scale = 1.0f / __builtin_sqrtf(mean + args.eps);
    ScaleRow<kLanes>(h, static_cast<const W*>(args.weight), scale,
                     static_cast<T*>(args.y) + t * args.y_stride, args.size);
  }
}
