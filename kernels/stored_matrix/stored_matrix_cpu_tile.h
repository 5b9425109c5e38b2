// The CPU kernel's text, compiled once per instruction set: include it inside an anonymous
// namespace of millrace, after stored_matrix_cpu.h, small_float.h and simd.h. No include guard, and
// no includes, on purpose.

template <int kLanes>
using U = typename simd::Types<kLanes>::U;

// Both codecs put a code's exponent and mantissa at the top of a float's mantissa and raise the
// exponent by the difference of biases. A subnormal code then reads as 2^e (1 + m) where 2^(e+1) m
// is meant, which is twice it less 2^(e+1). No float on the way is subnormal, which would be slow.
template <int kLanes>
[[gnu::always_inline]] inline simd::F<kLanes> FromCodes(U<kLanes> magnitude, uint32_t rebias,
                                                        float step) {
  constexpr uint32_t kSmallestNormal = 0x00800000;
  const simd::F<kLanes> f = reinterpret_cast<simd::F<kLanes>>(magnitude + rebias);
  return magnitude < kSmallestNormal ? 2.0f * f - step : f;
}

template <int kLanes>
[[gnu::always_inline]] inline simd::F<kLanes> WithSign(simd::F<kLanes> f, U<kLanes> sign) {
  return reinterpret_cast<simd::F<kLanes>>(reinterpret_cast<U<kLanes>>(f) | sign);
}

// kLanes bytes as integers. Eight and sixteen go through 16 bits, with zeros put in between: left
// to itself the compiler goes byte by byte.
typedef uint8_t Bytes8 __attribute__((vector_size(8)));
typedef uint8_t Bytes16 __attribute__((vector_size(16)));

template <int kLanes>
[[gnu::always_inline]] inline U<kLanes> LoadBytes(const uint8_t* p) {
  using H = typename simd::Types<kLanes>::H;
  if constexpr (kLanes == 8) {
    Bytes8 b, zero = {};
    __builtin_memcpy(&b, p, sizeof(b));
    const auto wide =
        __builtin_shufflevector(b, zero, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    return __builtin_convertvector(reinterpret_cast<H>(wide), U<kLanes>);
  } else if constexpr (kLanes == 16) {
    Bytes16 b, zero = {};
    __builtin_memcpy(&b, p, sizeof(b));
    const auto wide =
        __builtin_shufflevector(b, zero, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8,
                                24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return __builtin_convertvector(reinterpret_cast<H>(wide), U<kLanes>);
  } else {
    typedef uint8_t Bytes __attribute__((vector_size(kLanes)));
    Bytes b;
    __builtin_memcpy(&b, p, sizeof(b));
    return __builtin_convertvector(b, U<kLanes>);
  }
}

template <int kLanes>
[[gnu::always_inline]] inline simd::F<kLanes> LoadE4M3(const uint8_t* codes) {
  constexpr uint32_t kNan = 0x07f00000;
  const U<kLanes> code = LoadBytes<kLanes>(codes);
  const U<kLanes> magnitude = (code & 0x7fu) << 20;
  const simd::F<kLanes> finite = FromCodes<kLanes>(magnitude, 120u << 23, 0x1p-6f);
  const simd::F<kLanes> nan = simd::Set<kLanes>(__builtin_nanf(""));
  return WithSign<kLanes>(magnitude == kNan ? nan : finite, (code & 0x80u) << 24);
}

// kLanes values from kLanes / 2 bytes: column i is nibble i of a little-endian word.
template <int kLanes>
[[gnu::always_inline]] inline simd::F<kLanes> LoadE2M1(const uint8_t* packed) {
  constexpr int kWordLanes = 8;
  U<kLanes> word = {}, shift = {}, lane = {};
  for (int i = 0; i < kLanes; ++i) {
    lane[i] = static_cast<uint32_t>(i);
    shift[i] = static_cast<uint32_t>(i % kWordLanes * 4);
  }
  if constexpr (kLanes < kWordLanes) {
    uint16_t half = 0;
    __builtin_memcpy(&half, packed, sizeof(half));
    word += half;
  } else {
    uint32_t words[kLanes / kWordLanes];
    __builtin_memcpy(words, packed, sizeof(words));
    word += words[0];
    if constexpr (kLanes > kWordLanes) word = lane < kWordLanes ? word : U<kLanes>{} + words[1];
  }
  const U<kLanes> nibble = word >> shift;
  const simd::F<kLanes> f = FromCodes<kLanes>((nibble & 7u) << 22, 126u << 23, 1.0f);
  return WithSign<kLanes>(f, (nibble & 8u) << 28);
}

// One row of one matrix.
struct StoredRow {
  const StoredMatrix& m;
  int64_t index = 0;
  int64_t row = 0;

  template <typename T>
  const T* In(const TensorView& t, int64_t at) const {
    return t.as<T>() + index * t.stride(0) + at * t.stride(1);
  }
};

template <int kLanes, typename T>
void WidenPlain(const StoredRow& r, float* w) {
  const T* from = r.In<T>(r.m.values, r.row);
  int64_t i = 0;
  for (; i + kLanes <= r.m.cols; i += kLanes) {
    simd::Store<kLanes>(w + i, simd::Load<kLanes>(from + i));
  }
  T rest[kLanes] = {};
  if (i == r.m.cols) return;
  __builtin_memcpy(static_cast<void*>(rest), from + i,
                   static_cast<size_t>(r.m.cols - i) * sizeof(T));
  simd::Store<kLanes>(w + i, simd::Load<kLanes>(rest));
}

template <int kLanes>
void WidenFp8(const StoredRow& r, float* w) {
  constexpr int64_t kTile = 128;
  const uint8_t* codes = r.In<uint8_t>(r.m.values, r.row);
  const int64_t tile_row = (r.m.tile_row + r.row) / kTile;
  const bool wide = r.m.scales.dtype == DType::kF32;
  for (int64_t i = 0, tile = 0; i < r.m.cols; ++tile) {
    const float scale = wide ? r.In<float>(r.m.scales, tile_row)[tile]
                             : kE8M0Values[r.In<uint8_t>(r.m.scales, tile_row)[tile]];
    const int64_t tile_end = (tile + 1) * kTile - r.m.tile_col;
    const int64_t end = tile_end < r.m.cols ? tile_end : r.m.cols;
    for (; i + kLanes <= end; i += kLanes) {
      simd::Store<kLanes>(w + i, LoadE4M3<kLanes>(codes + i) * scale);
    }
    for (; i < end; ++i) w[i] = kE4M3Values[codes[i]] * scale;
  }
}

template <int kLanes>
void WidenMxFp4(const StoredRow& r, float* w) {
  constexpr int64_t kBlock = 32;
  const uint8_t* packed = r.In<uint8_t>(r.m.values, r.row);
  const uint8_t* scales = r.In<uint8_t>(r.m.scales, r.row);
  for (int64_t begin = 0; begin < r.m.cols; begin += kBlock) {
    const float scale = kE8M0Values[scales[begin / kBlock]];
    for (int64_t i = begin; i < begin + kBlock; i += kLanes) {
      simd::Store<kLanes>(w + i, LoadE2M1<kLanes>(packed + i / 2) * scale);
    }
  }
}

template <int kLanes>
void WidenNvFp4(const StoredRow& r, float* w) {
  constexpr int64_t kBlock = 16;
  const uint8_t* packed = r.In<uint8_t>(r.m.values, r.row);
  const uint8_t* scales = r.In<uint8_t>(r.m.scales, r.row);
  const float factor = r.m.factors.as<float>()[r.index];
  for (int64_t begin = 0; begin < r.m.cols; begin += kBlock) {
    const float scale = kE4M3Values[scales[begin / kBlock]];
    for (int64_t i = begin; i < begin + kBlock; i += kLanes) {
      const simd::F<kLanes> scaled = LoadE2M1<kLanes>(packed + i / 2) * scale;  // exact
      simd::Store<kLanes>(w + i, r.m.divide_by_factor ? scaled / factor : scaled * factor);
    }
  }
}

template <int kLanes>
void WidenRow(const StoredRow& r, int64_t padded, float* w) {
  // Zeros first: what follows may write over some of the padding.
  for (int64_t i = padded - kLanes; i >= 0 && i + kLanes > r.m.cols; i -= kLanes) {
    simd::Store<kLanes>(w + i, simd::F<kLanes>{});
  }
  switch (r.m.format) {
    case StoredFormat::kF32:
      return WidenPlain<kLanes, float>(r, w);
    case StoredFormat::kBF16:
      return WidenPlain<kLanes, BFloat16>(r, w);
    case StoredFormat::kFp8:
      return WidenFp8<kLanes>(r, w);
    case StoredFormat::kMxFp4:
      return WidenMxFp4<kLanes>(r, w);
    case StoredFormat::kNvFp4:
      return WidenNvFp4<kLanes>(r, w);
  }
}

// Every (token, row) has a vector of sums of its own, so that how many are done at once cannot be
// seen in any.
template <int kLanes, int kTokens>
[[gnu::always_inline]] inline void Products(const float* const (&x)[kTokens], const float* w,
                                            int64_t padded, float* out) {
  constexpr int kRows = static_cast<int>(kStoredTileRows);
  simd::F<kLanes> sums[kTokens][kRows] = {};
  for (int64_t i = 0; i < padded; i += kLanes) {
    simd::F<kLanes> v[kTokens];
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) v[t] = simd::Load<kLanes>(x[t] + i);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const simd::F<kLanes> row = simd::Load<kLanes>(w + r * padded + i);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) sums[t][r] += v[t] * row;
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    simd::Store<4>(out + t * kRows, simd::Sum4(sums[t][0], sums[t][1], sums[t][2], sums[t][3]));
  }
}

template <int kLanes>
void Tile(const StoredTile& tile) {
  constexpr int kTokens = 3;
  const int64_t padded = StoredPaddedCols(tile.matrix->cols);
  for (int64_t r = 0; r < kStoredTileRows; ++r) {
    // Rows past the last take its place: their sums are nobody's.
    const int64_t row = tile.row + (r < tile.rows ? r : tile.rows - 1);
    WidenRow<kLanes>({*tile.matrix, tile.index, row}, padded, tile.widened + r * padded);
  }
  const auto token = [&](int64_t t) {
    return tile.x + (tile.order == nullptr ? t : tile.order[t]) * padded;
  };
  int64_t t = 0;
  for (; t + kTokens <= tile.tokens; t += kTokens) {
    const float* const x[kTokens] = {token(t), token(t + 1), token(t + 2)};
    Products<kLanes, kTokens>(x, tile.widened, padded, tile.out + t * kStoredTileRows);
  }
  for (; t < tile.tokens; ++t) {
    const float* const x[1] = {token(t)};
    Products<kLanes, 1>(x, tile.widened, padded, tile.out + t * kStoredTileRows);
  }
}
