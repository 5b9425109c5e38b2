// Matrices of small floats with a scale per block, as checkpoints store them. All are row-major and
// dense; blocks lie along a row. Quantisers round x / scale exactly once, to nearest even.
// REQUIRES of all: the spans have the sizes that the shape gives, and |x| < 2^127 (a NaN or an
// infinity has no place in these formats, and beyond that a rounded value may overflow: callers
// refuse them). Any thread.
#ifndef KERNELS_LOWP_BLOCK_FORMATS_H_
#define KERNELS_LOWP_BLOCK_FORMATS_H_

#include <cstdint>

#include "absl/types/span.h"

namespace millrace {

struct MatrixShape {
  int64_t rows = 0;
  int64_t cols = 0;
};

// FP8 E4M3 in tiles of 128 x 128, cut short at the right and lower edge: w = e4m3 * scale.
inline constexpr int64_t kFp8Tile = 128;
// [ceil(rows / 128), ceil(cols / 128)]
MatrixShape Fp8ScaleShape(MatrixShape shape);

// Scale of a tile: its largest magnitude / 448.
void QuantizeFp8(MatrixShape shape, absl::Span<const float> x, absl::Span<uint8_t> codes,
                 absl::Span<float> scales);
// Scale of a tile, E8M0: 2^ceil(log2(its largest magnitude / 448)).
void QuantizeFp8(MatrixShape shape, absl::Span<const float> x, absl::Span<uint8_t> codes,
                 absl::Span<uint8_t> e8m0_scales);
void DequantizeFp8(MatrixShape shape, absl::Span<const uint8_t> codes,
                   absl::Span<const float> scales, absl::Span<float> w);
void DequantizeFp8(MatrixShape shape, absl::Span<const uint8_t> codes,
                   absl::Span<const uint8_t> e8m0_scales, absl::Span<float> w);

// FP8 E4M3 with a scale for more than a tile: amax / 448 of a row (an output), or of a whole
// matrix, whose `x` may then come in pieces.
float Fp8ScaleOf(float amax);
void QuantizeFp8(absl::Span<const float> x, float scale, absl::Span<uint8_t> codes);
void DequantizeFp8(absl::Span<const uint8_t> codes, float scale, absl::Span<float> w);
// scales: [rows]
void QuantizeFp8Rows(MatrixShape shape, absl::Span<const float> x, absl::Span<uint8_t> codes,
                     absl::Span<float> scales);

// FP4 E2M1, two to a byte: the even column in the low nibble, the odd one in the high nibble.

// MXFP4: an E8M0 scale for each 32 columns, 2^ceil(log2(largest magnitude / 6)), w = e2m1 * scale.
// REQUIRES: cols % 32 == 0.
inline constexpr int64_t kMxfp4Block = 32;
void QuantizeMxfp4(MatrixShape shape, absl::Span<const float> x, absl::Span<uint8_t> packed,
                   absl::Span<uint8_t> e8m0_scales);
void DequantizeMxfp4(MatrixShape shape, absl::Span<const uint8_t> packed,
                     absl::Span<const uint8_t> e8m0_scales, absl::Span<float> w);

// The one scale of an NVFP4 tensor as it is stored: a factor (weight_scale_2), or its reciprocal
// (compressed-tensors' weight_global_scale), which is rounded on its own.
struct Nvfp4Global {
  float stored = 1;
  bool reciprocal = false;
};
// amax / (6 * 448), of the largest magnitude of all tensors that share the scale.
Nvfp4Global Nvfp4GlobalOf(float amax, bool reciprocal);

// NVFP4: an E4M3 scale for each 16 columns, the block's largest magnitude / 6 / factor, within
// [2^-9, 448], and 1 for a block of zeros; w = e2m1 * scale * factor, rounded to float once.
// REQUIRES: cols % 16 == 0.
inline constexpr int64_t kNvfp4Block = 16;
void QuantizeNvfp4(MatrixShape shape, absl::Span<const float> x, Nvfp4Global global,
                   absl::Span<uint8_t> packed, absl::Span<uint8_t> e4m3_scales);
void DequantizeNvfp4(MatrixShape shape, absl::Span<const uint8_t> packed,
                     absl::Span<const uint8_t> e4m3_scales, Nvfp4Global global,
                     absl::Span<float> w);

// The largest magnitude; infinity when some element is NaN or infinite, 0 of nothing.
float FiniteAmax(absl::Span<const float> x);

}  // namespace millrace

#endif  // KERNELS_LOWP_BLOCK_FORMATS_H_
