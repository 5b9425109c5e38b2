#include "kernels/lowp/block_formats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/lowp/small_float.h"

namespace millrace {
namespace {

constexpr double kMaxE4M3 = kE4M3.max;
constexpr double kMaxE2M1 = kE2M1.max;
// No scale is a subnormal float, which devices flush to zero; a block of zeros gets the smallest.
constexpr float kMinScale = std::numeric_limits<float>::min();
constexpr double kMinNvfp4Scale = 0x1p-9;  // the smallest E4M3 above zero

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

float Amax(const float* x, int64_t count) {
  float amax = 0;
  for (int64_t i = 0; i < count; ++i) amax = std::max(amax, std::fabs(x[i]));
  return amax;
}

// Scales of either type: from the wanted value, and back.
void SetScale(double wanted, float& scale) {
  scale = std::max(static_cast<float>(wanted), kMinScale);
}
void SetScale(double wanted, uint8_t& scale) {
  scale = EncodeE8M0RoundUp(std::max(wanted, static_cast<double>(kMinScale)));
}
float ScaleValue(float scale) { return scale; }
float ScaleValue(uint8_t scale) { return kE8M0Values[scale]; }

// Calls body(first element, elements, scale index) for each row of each tile.
template <typename Body>
void ForEachTileRow(MatrixShape shape, Body body) {
  const int64_t tiles_across = CeilDiv(shape.cols, kFp8Tile);
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t tile = 0; tile < tiles_across; ++tile) {
      const int64_t col = tile * kFp8Tile;
      body(row * shape.cols + col, std::min(kFp8Tile, shape.cols - col),
           row / kFp8Tile * tiles_across + tile);
    }
  }
}

void CheckFp8Sizes(MatrixShape shape, size_t elements, size_t codes, size_t scales) {
  const MatrixShape scale_shape = Fp8ScaleShape(shape);
  MR_CHECK_EQ(elements, static_cast<size_t>(shape.rows * shape.cols));
  MR_CHECK_EQ(codes, elements);
  MR_CHECK_EQ(scales, static_cast<size_t>(scale_shape.rows * scale_shape.cols));
}

template <typename Scale>
void QuantizeTiles(MatrixShape shape, absl::Span<const float> x, absl::Span<uint8_t> codes,
                   absl::Span<Scale> scales) {
  CheckFp8Sizes(shape, x.size(), codes.size(), scales.size());
  const int64_t tiles_across = CeilDiv(shape.cols, kFp8Tile);
  std::vector<float> amax(static_cast<size_t>(tiles_across));
  for (int64_t top = 0; top < shape.rows; top += kFp8Tile) {
    const MatrixShape band = {std::min(kFp8Tile, shape.rows - top), shape.cols};
    const int64_t first = top * shape.cols;
    std::fill(amax.begin(), amax.end(), 0.0f);
    ForEachTileRow(band, [&](int64_t begin, int64_t count, int64_t tile) {
      const auto t = static_cast<size_t>(tile);
      amax[t] = std::max(amax[t], Amax(x.data() + first + begin, count));
    });
    Scale* const band_scales = scales.data() + top / kFp8Tile * tiles_across;
    for (int64_t tile = 0; tile < tiles_across; ++tile) {
      SetScale(static_cast<double>(amax[static_cast<size_t>(tile)]) / kMaxE4M3, band_scales[tile]);
    }
    ForEachTileRow(band, [&](int64_t begin, int64_t count, int64_t tile) {
      const auto scale = static_cast<double>(ScaleValue(band_scales[tile]));
      for (int64_t i = first + begin; i < first + begin + count; ++i) {
        codes[static_cast<size_t>(i)] =
            EncodeE4M3(static_cast<double>(x[static_cast<size_t>(i)]) / scale);
      }
    });
  }
}

template <typename Scale>
void DequantizeTiles(MatrixShape shape, absl::Span<const uint8_t> codes,
                     absl::Span<const Scale> scales, absl::Span<float> w) {
  CheckFp8Sizes(shape, w.size(), codes.size(), scales.size());
  ForEachTileRow(shape, [&](int64_t begin, int64_t count, int64_t tile) {
    const float scale = ScaleValue(scales[static_cast<size_t>(tile)]);
    const uint8_t* const code = codes.data() + begin;
    for (int64_t i = 0; i < count; ++i)
      w[static_cast<size_t>(begin + i)] = kE4M3Values[code[i]] * scale;
  });
}

void CheckFp4Sizes(MatrixShape shape, int64_t block, size_t packed, size_t scales) {
  MR_CHECK_EQ(shape.cols % block, 0);
  MR_CHECK_EQ(packed, static_cast<size_t>(shape.rows * shape.cols / 2));
  MR_CHECK_EQ(scales, static_cast<size_t>(shape.rows * shape.cols / block));
}

// What a block is divided by, as a fraction: then numbers and ties that are equal exactly stay so.
// The product of a float and `up` is exact, and so is `down`.
struct Step {
  double up = 1;
  double down = 1;
};

// `count`, even, of x * up / down into count / 2 bytes.
void PackFp4(const float* x, int64_t count, Step step, uint8_t* packed) {
  for (int64_t i = 0; i < count; i += 2) {
    const uint8_t even = EncodeE2M1(static_cast<double>(x[i]) * step.up / step.down);
    const uint8_t odd = EncodeE2M1(static_cast<double>(x[i + 1]) * step.up / step.down);
    packed[i / 2] = static_cast<uint8_t>(even | odd << 4);
  }
}

void UnpackFp4(const uint8_t* packed, int64_t count, float* values) {
  for (int64_t i = 0; i < count; i += 2) {
    values[i] = kE2M1Values[packed[i / 2] & 0xf];
    values[i + 1] = kE2M1Values[packed[i / 2] >> 4];
  }
}

}  // namespace

MatrixShape Fp8ScaleShape(MatrixShape shape) {
  return {CeilDiv(shape.rows, kFp8Tile), CeilDiv(shape.cols, kFp8Tile)};
}

void QuantizeFp8(MatrixShape shape, absl::Span<const float> x, absl::Span<uint8_t> codes,
                 absl::Span<float> scales) {
  QuantizeTiles(shape, x, codes, scales);
}

void QuantizeFp8(MatrixShape shape, absl::Span<const float> x, absl::Span<uint8_t> codes,
                 absl::Span<uint8_t> e8m0_scales) {
  QuantizeTiles(shape, x, codes, e8m0_scales);
}

void DequantizeFp8(MatrixShape shape, absl::Span<const uint8_t> codes,
                   absl::Span<const float> scales, absl::Span<float> w) {
  DequantizeTiles(shape, codes, scales, w);
}

void DequantizeFp8(MatrixShape shape, absl::Span<const uint8_t> codes,
                   absl::Span<const uint8_t> e8m0_scales, absl::Span<float> w) {
  DequantizeTiles(shape, codes, e8m0_scales, w);
}

float Fp8ScaleOf(float amax) {
  float scale = 0;
  SetScale(static_cast<double>(amax) / kMaxE4M3, scale);
  return scale;
}

void QuantizeFp8(absl::Span<const float> x, float scale, absl::Span<uint8_t> codes) {
  MR_CHECK_EQ(codes.size(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    codes[i] = EncodeE4M3(static_cast<double>(x[i]) / static_cast<double>(scale));
  }
}

void DequantizeFp8(absl::Span<const uint8_t> codes, float scale, absl::Span<float> w) {
  MR_CHECK_EQ(codes.size(), w.size());
  for (size_t i = 0; i < w.size(); ++i) w[i] = kE4M3Values[codes[i]] * scale;
}

void QuantizeFp8Rows(MatrixShape shape, absl::Span<const float> x, absl::Span<uint8_t> codes,
                     absl::Span<float> scales) {
  MR_CHECK_EQ(scales.size(), static_cast<size_t>(shape.rows));
  const auto cols = static_cast<size_t>(shape.cols);
  for (size_t row = 0; row < scales.size(); ++row) {
    const absl::Span<const float> values = x.subspan(row * cols, cols);
    scales[row] = Fp8ScaleOf(Amax(values.data(), shape.cols));
    QuantizeFp8(values, scales[row], codes.subspan(row * cols, cols));
  }
}

void QuantizeMxfp4(MatrixShape shape, absl::Span<const float> x, absl::Span<uint8_t> packed,
                   absl::Span<uint8_t> e8m0_scales) {
  CheckFp4Sizes(shape, kMxfp4Block, packed.size(), e8m0_scales.size());
  MR_CHECK_EQ(x.size(), 2 * packed.size());
  for (size_t block = 0; block < e8m0_scales.size(); ++block) {
    const float* const values = x.data() + block * kMxfp4Block;
    SetScale(static_cast<double>(Amax(values, kMxfp4Block)) / kMaxE2M1, e8m0_scales[block]);
    const Step step = {.down = static_cast<double>(ScaleValue(e8m0_scales[block]))};
    PackFp4(values, kMxfp4Block, step, packed.data() + block * kMxfp4Block / 2);
  }
}

void DequantizeMxfp4(MatrixShape shape, absl::Span<const uint8_t> packed,
                     absl::Span<const uint8_t> e8m0_scales, absl::Span<float> w) {
  CheckFp4Sizes(shape, kMxfp4Block, packed.size(), e8m0_scales.size());
  MR_CHECK_EQ(w.size(), 2 * packed.size());
  for (size_t block = 0; block < e8m0_scales.size(); ++block) {
    float* const values = w.data() + block * kMxfp4Block;
    UnpackFp4(packed.data() + block * kMxfp4Block / 2, kMxfp4Block, values);
    const float scale = kE8M0Values[e8m0_scales[block]];
    for (int64_t i = 0; i < kMxfp4Block; ++i) values[i] *= scale;
  }
}

Nvfp4Global Nvfp4GlobalOf(float amax, bool reciprocal) {
  const double factor =
      std::max(static_cast<double>(amax) / (kMaxE2M1 * kMaxE4M3), static_cast<double>(kMinScale));
  return {.stored = static_cast<float>(reciprocal ? 1 / factor : factor), .reciprocal = reciprocal};
}

void QuantizeNvfp4(MatrixShape shape, absl::Span<const float> x, Nvfp4Global global,
                   absl::Span<uint8_t> packed, absl::Span<uint8_t> e4m3_scales) {
  CheckFp4Sizes(shape, kNvfp4Block, packed.size(), e4m3_scales.size());
  MR_CHECK_EQ(x.size(), 2 * packed.size());
  const auto stored = static_cast<double>(global.stored);
  const Step factor = {.up = global.reciprocal ? stored : 1,
                       .down = global.reciprocal ? 1 : stored};
  for (size_t block = 0; block < e4m3_scales.size(); ++block) {
    const float* const values = x.data() + block * kNvfp4Block;
    const auto amax = static_cast<double>(Amax(values, kNvfp4Block));
    const double wanted = amax * factor.up / (kMaxE2M1 * factor.down);
    e4m3_scales[block] = EncodeE4M3(amax == 0 ? 1.0 : std::max(wanted, kMinNvfp4Scale));
    const auto scale = static_cast<double>(kE4M3Values[e4m3_scales[block]]);
    PackFp4(values, kNvfp4Block, {.up = factor.up, .down = scale * factor.down},
            packed.data() + block * kNvfp4Block / 2);
  }
}

void DequantizeNvfp4(MatrixShape shape, absl::Span<const uint8_t> packed,
                     absl::Span<const uint8_t> e4m3_scales, Nvfp4Global global,
                     absl::Span<float> w) {
  CheckFp4Sizes(shape, kNvfp4Block, packed.size(), e4m3_scales.size());
  MR_CHECK_EQ(w.size(), 2 * packed.size());
  for (size_t block = 0; block < e4m3_scales.size(); ++block) {
    float* const values = w.data() + block * kNvfp4Block;
    UnpackFp4(packed.data() + block * kNvfp4Block / 2, kNvfp4Block, values);
    const float scale = kE4M3Values[e4m3_scales[block]];
    for (int64_t i = 0; i < kNvfp4Block; ++i) {
      const float scaled = values[i] * scale;  // exact
      values[i] = global.reciprocal ? scaled / global.stored : scaled * global.stored;
    }
  }
}

float FiniteAmax(absl::Span<const float> x) {
  // In integers, where NaNs are the largest of all.
  uint32_t amax = 0;
  for (const float v : x) amax = std::max(amax, std::bit_cast<uint32_t>(v) & 0x7fffffffu);
  constexpr uint32_t kInfinity = 0x7f800000;
  return std::bit_cast<float>(std::min(amax, kInfinity));
}

}  // namespace millrace
