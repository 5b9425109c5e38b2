// Reads rows of the latent cache on the CPU, compiled once per instruction set: include it inside
// an anonymous namespace of millrace, after latent_row.h, latent_rows_cpu.h and simd.h. No include
// guard, and no includes, on purpose.

// value = code * 2^(scale - 127), as latent_row.h has it, whose scales are never below 2^-22.
inline float FloatOfBits(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}

inline void ReadFp8Group(const uint8_t* codes, uint8_t scale, float* to) {
  constexpr uint32_t kNanBits = 0x7fc00000;
  const float factor = FloatOfBits(scale == 255 ? kNanBits : uint32_t{scale} << 23);
  for (int i = 0; i < kFp8LatentGroup; ++i) {
    // Exponent and mantissa where a float has them are the value times 2^-120, subnormals included.
    const uint32_t code = codes[i];
    to[i] = FloatOfBits((code & 0x80) << 24 | (code & 0x7f) << 20) * 0x1p120f * factor;
  }
}

template <int kLanes>
void ReadBf16(const char* from, int64_t dim, float* to) {
  const BFloat16* row = reinterpret_cast<const BFloat16*>(from);
  for (int64_t d = 0; d < dim; d += kLanes) {
    simd::Store<kLanes>(to + d, simd::Load<kLanes>(row + d));
  }
}

// Row `row` of page `page`, `dim` channels. REQUIRES: dim % kLanes == 0.
template <int kLanes>
void ReadLatentRow(const LatentRows& rows, int64_t page, int64_t row, int64_t dim, float* to) {
  const char* begin = rows.data + page * rows.page_bytes;
  switch (rows.dtype) {
    case DType::kF32:
      __builtin_memcpy(to, begin + row * dim * 4, static_cast<size_t>(dim) * 4);
      return;
    case DType::kBF16:
      ReadBf16<kLanes>(begin + row * dim * 2, dim, to);
      return;
    default:
      break;
  }
  const uint8_t* codes = reinterpret_cast<const uint8_t*>(begin) + row * kFp8LatentDataBytes;
  const uint8_t* scales = reinterpret_cast<const uint8_t*>(begin) +
                          rows.page_rows * kFp8LatentDataBytes + row * kFp8LatentScaleBytes;
  for (int64_t g = 0; g < kFp8LatentCodes / kFp8LatentGroup; ++g) {
    ReadFp8Group(codes + g * kFp8LatentGroup, scales[g], to + g * kFp8LatentGroup);
  }
  ReadBf16<kLanes>(reinterpret_cast<const char*>(codes + kFp8LatentCodes), kFp8LatentRopeDim,
                   to + kFp8LatentCodes);
}
