// RmsNorm for one vector width. Included inside an anonymous namespace of millrace by one file per
// instruction set, after rms_norm_impl.h and simd.h.

// The last, partial vector of a row goes through a copy padded with zeros.
template <int kLanes, typename T>
[[gnu::always_inline]] inline simd::F<kLanes> LoadPart(const T* p, int64_t count) {
  T part[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) part[i] = p[i];
  return simd::Load<kLanes>(part);
}

template <int kLanes, typename T>
[[gnu::always_inline]] inline void StorePart(T* p, int64_t count, simd::F<kLanes> v) {
  T part[kLanes];
  simd::Store<kLanes>(part, v);
  for (int64_t i = 0; i < count; ++i) p[i] = part[i];
}

// x plus the residual, which is replaced by it; what is summed is the rounded value.
template <int kLanes, typename T>
[[gnu::always_inline]] inline simd::F<kLanes> AddResidual(simd::F<kLanes> x, T* residual) {
  simd::Store<kLanes>(residual, simd::Load<kLanes>(residual) + x);
  return simd::Load<kLanes>(residual);
}

template <int kLanes, typename T>
[[gnu::always_inline]] inline float SumSquares(const T* x, T* residual, int64_t width) {
  simd::F<kLanes> sum = {};
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    simd::F<kLanes> h = simd::Load<kLanes>(x + i);
    if (residual != nullptr) h = AddResidual<kLanes>(h, residual + i);
    sum += h * h;
  }
  if (i < width) {
    simd::F<kLanes> h = LoadPart<kLanes>(x + i, width - i);
    if (residual != nullptr) {
      T part[kLanes];
      simd::Store<kLanes>(part, LoadPart<kLanes>(residual + i, width - i) + h);
      for (int64_t j = i; j < width; ++j) residual[j] = part[j - i];
      h = LoadPart<kLanes>(part, width - i);
    }
    sum += h * h;
  }
  return simd::Sum(sum);
}

template <int kLanes, typename T, typename W>
[[gnu::always_inline]] inline void Scale(const T* h, const W* weight, int64_t width, float scale,
                                         T* y) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    simd::Store<kLanes>(y + i, simd::Load<kLanes>(h + i) * scale * simd::Load<kLanes>(weight + i));
  }
  if (i < width) {
    const int64_t count = width - i;
    StorePart<kLanes>(y + i, count,
                      LoadPart<kLanes>(h + i, count) * scale * LoadPart<kLanes>(weight + i, count));
  }
}

template <int kLanes, typename T, typename W>
void Norm(const RmsNormTokens& a) {
  for (int64_t t = 0; t < a.tokens; ++t) {
    const T* x = static_cast<const T*>(a.x) + t * a.x_stride;
    T* residual = a.residual == nullptr ? nullptr
                                        : static_cast<T*>(a.residual) + t * a.residual_stride;
    const float mean = SumSquares<kLanes>(x, residual, a.width) / static_cast<float>(a.width);
    const float scale = 1.0f / __builtin_sqrtf(mean + a.eps);
    Scale<kLanes>(residual == nullptr ? x : residual, static_cast<const W*>(a.weight), a.width,
                  scale, static_cast<T*>(a.y) + t * a.y_stride);
  }
}

template <int kLanes>
inline constexpr RmsNormKernels kKernels = {
    {{Norm<kLanes, float, float>, Norm<kLanes, float, BFloat16>},
     {Norm<kLanes, BFloat16, float>, Norm<kLanes, BFloat16, BFloat16>}}};
