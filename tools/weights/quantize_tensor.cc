#include "tools/weights/quantize_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/weights/safetensors_header.h"
#include "kernels/core/check.h"
#include "kernels/core/dtype.h"
#include "kernels/core/status.h"
#include "kernels/lowp/block_formats.h"

namespace millrace {
namespace {

// Of float32: large enough for the threads, small enough for the caches of a large machine.
constexpr int64_t kBandElements = 4 << 20;
// Threads take rows in these units: tiles of FP8 are as high, and sums of errors are formed within
// a unit first, so that they do not depend on the number of threads.
constexpr int64_t kUnitRows = kFp8Tile;
constexpr float kMagnitudeLimit = 0x1p127f;

void LoadFloats(const TensorInfo& tensor, int64_t first, absl::Span<float> x) {
  if (tensor.dtype == FileDType::kF32) {
    std::memcpy(x.data(), tensor.data.data() + first * 4, x.size() * 4);
    return;
  }
  const std::byte* bytes = tensor.data.data() + first * 2;
  for (float& value : x) {
    BFloat16 stored;
    std::memcpy(&stored.bits, bytes, sizeof(stored.bits));  // files need not be aligned
    value = ToFloat(stored);
    bytes += sizeof(stored.bits);
  }
}

absl::Status OutOfRange(const TensorInfo& tensor) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", QuotedTensor(tensor.name),
                   " has elements that are NaN, infinite or beyond 2^127"));
}

// Block scales of a whole tensor, in the one of the two vectors that its encoding uses.
struct Scales {
  std::vector<float> f32;
  std::vector<uint8_t> bytes;
};

struct Unit {
  MatrixShape shape;
  int64_t first_row = 0;
  absl::Span<const float> x;
  absl::Span<uint8_t> codes;
  absl::Span<float> restored;
};

// Also dequantises, for the report.
void EncodeUnit(Encoding encoding, Nvfp4Global global, const Unit& unit, Scales& scales) {
  const auto cols = static_cast<size_t>(unit.shape.cols);
  const MatrixShape fp8 = Fp8ScaleShape(unit.shape);
  const int64_t tile = unit.first_row / kFp8Tile * fp8.cols;
  const int64_t tiles = fp8.rows * fp8.cols;
  const auto block_scales = [&](int64_t block) {
    const int64_t per_row = unit.shape.cols / block;
    return absl::MakeSpan(scales.bytes)
        .subspan(unit.first_row * per_row, unit.shape.rows * per_row);
  };
  switch (encoding) {
    case Encoding::kCopy:
      MR_CHECK(false);
      return;
    case Encoding::kFp8F32: {
      const absl::Span<float> out = absl::MakeSpan(scales.f32).subspan(tile, tiles);
      QuantizeFp8(unit.shape, unit.x, unit.codes, out);
      return DequantizeFp8(unit.shape, unit.codes, absl::Span<const float>(out), unit.restored);
    }
    case Encoding::kFp8E8m0: {
      const absl::Span<uint8_t> out = absl::MakeSpan(scales.bytes).subspan(tile, tiles);
      QuantizeFp8(unit.shape, unit.x, unit.codes, out);
      return DequantizeFp8(unit.shape, unit.codes, absl::Span<const uint8_t>(out), unit.restored);
    }
    case Encoding::kFp8Channel: {
      const absl::Span<float> out =
          absl::MakeSpan(scales.f32)
              .subspan(static_cast<size_t>(unit.first_row), static_cast<size_t>(unit.shape.rows));
      QuantizeFp8Rows(unit.shape, unit.x, unit.codes, out);
      for (size_t row = 0; row < out.size(); ++row) {
        DequantizeFp8(unit.codes.subspan(row * cols, cols), out[row],
                      unit.restored.subspan(row * cols, cols));
      }
      return;
    }
    case Encoding::kFp8Tensor:
      QuantizeFp8(unit.x, scales.f32[0], unit.codes);
      return DequantizeFp8(unit.codes, scales.f32[0], unit.restored);
    case Encoding::kMxfp4: {
      const absl::Span<uint8_t> out = block_scales(kMxfp4Block);
      QuantizeMxfp4(unit.shape, unit.x, unit.codes, out);
      return DequantizeMxfp4(unit.shape, unit.codes, out, unit.restored);
    }
    case Encoding::kNvfp4:
    case Encoding::kNvfp4Reciprocal: {
      const absl::Span<uint8_t> out = block_scales(kNvfp4Block);
      QuantizeNvfp4(unit.shape, unit.x, global, unit.codes, out);
      return DequantizeNvfp4(unit.shape, unit.codes, out, global, unit.restored);
    }
  }
}

QuantError ErrorOf(absl::Span<const float> x, absl::Span<const float> restored) {
  QuantError error;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto weight = static_cast<double>(x[i]);
    const double difference = static_cast<double>(restored[i]) - weight;
    error.max = std::max(error.max, std::fabs(difference));
    error.squared_error += difference * difference;
    error.squared_weight += weight * weight;
  }
  return error;
}

// Quantises a matrix band by band. Lives for one tensor.
class MatrixQuantizer final {
 public:
  MatrixQuantizer(const PlannedTensor& tensor, const Magnitudes& magnitudes)
      : tensor_(tensor),
        magnitudes_(magnitudes),
        rows_(tensor.source->shape[0]),
        cols_(tensor.source->shape[1]),
        codes_per_row_(tensor.outputs[0].bytes() / rows_),
        band_rows_(
            std::min(rows_, std::max(kBandElements / cols_ / kUnitRows, int64_t{1}) * kUnitRows)),
        global_(Nvfp4GlobalOf(magnitudes.weights, tensor.encoding == Encoding::kNvfp4Reciprocal)) {
    const auto band = static_cast<size_t>(band_rows_ * cols_);
    x_.resize(band);
    restored_.resize(band);
    codes_.resize(static_cast<size_t>(band_rows_ * codes_per_row_));
    const auto scale_bytes = static_cast<size_t>(tensor.outputs[1].bytes());
    if (tensor.outputs[1].dtype == FileDType::kF32) {
      scales_.f32.resize(scale_bytes / sizeof(float));
      // Of a tile or row: set as it is encoded.
      scales_.f32[0] = Fp8ScaleOf(magnitudes.weights);
    } else {
      scales_.bytes.resize(scale_bytes);
    }
  }

  absl::StatusOr<QuantError> Run(ThreadPool& pool, ByteSink sink) {
    QuantError total;
    for (int64_t row = 0; row < rows_; row += band_rows_) {
      const int64_t rows = std::min(band_rows_, rows_ - row);
      std::vector<QuantError> errors(static_cast<size_t>((rows + kUnitRows - 1) / kUnitRows));
      std::vector<char> in_range(errors.size());  // not bool: written by several threads
      pool.ParallelFor(
          static_cast<int64_t>(errors.size()), 1, [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; ++i) {
              const int64_t offset = i * kUnitRows;
              in_range[static_cast<size_t>(i)] = EncodeRows(
                  row, offset, std::min(kUnitRows, rows - offset), errors[static_cast<size_t>(i)]);
            }
          });
      for (size_t i = 0; i < errors.size(); ++i) {
        if (!in_range[i]) return OutOfRange(*tensor_.source);
        total.Add(errors[i]);
      }
      const auto bytes = static_cast<size_t>(rows * codes_per_row_);
      RETURN_IF_ERROR(
          sink(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(codes_.data()), bytes)));
    }
    RETURN_IF_ERROR(GiveScales(sink));
    return total;
  }

 private:
  // Rows [offset, offset + rows) of the band that starts at `band`. False: out of range.
  bool EncodeRows(int64_t band, int64_t offset, int64_t rows, QuantError& error) {
    const auto first = static_cast<size_t>(offset * cols_);
    const auto count = static_cast<size_t>(rows * cols_);
    const absl::Span<float> x = absl::MakeSpan(x_).subspan(first, count);
    LoadFloats(*tensor_.source, (band + offset) * cols_, x);
    if (!(FiniteAmax(x) < kMagnitudeLimit)) return false;
    const Unit unit = {
        .shape = {rows, cols_},
        .first_row = band + offset,
        .x = x,
        .codes = absl::MakeSpan(codes_).subspan(static_cast<size_t>(offset * codes_per_row_),
                                                static_cast<size_t>(rows * codes_per_row_)),
        .restored = absl::MakeSpan(restored_).subspan(first, count)};
    EncodeUnit(tensor_.encoding, global_, unit, scales_);
    error = ErrorOf(unit.x, unit.restored);
    return true;
  }

  absl::Status GiveScales(ByteSink sink) const {
    RETURN_IF_ERROR(sink(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(scales_.f32.data()),
                                             scales_.f32.size() * sizeof(float))));
    RETURN_IF_ERROR(sink(absl::MakeConstSpan(
        reinterpret_cast<const std::byte*>(scales_.bytes.data()), scales_.bytes.size())));
    const bool fp8 = tensor_.encoding == Encoding::kFp8Tensor;
    const float input = fp8 ? Fp8ScaleOf(magnitudes_.activations)
                            : Nvfp4GlobalOf(magnitudes_.activations, false).stored;
    std::vector<float> scalars;
    if (!fp8) scalars.push_back(global_.stored);
    scalars.push_back(input);
    const size_t num_scalars = tensor_.outputs.size() - 2;
    return sink(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(scalars.data()),
                                    num_scalars * sizeof(float)));
  }

  const PlannedTensor& tensor_;
  const Magnitudes magnitudes_;
  const int64_t rows_;
  const int64_t cols_;
  const int64_t codes_per_row_;  // bytes
  const int64_t band_rows_;
  const Nvfp4Global global_;
  std::vector<float> x_;  // of a band, as are the next two
  std::vector<float> restored_;
  std::vector<uint8_t> codes_;
  Scales scales_;
};

}  // namespace

double QuantError::relative_rms() const {
  return squared_error == 0 ? 0 : std::sqrt(squared_error / squared_weight);
}

void QuantError::Add(const QuantError& other) {
  max = std::max(max, other.max);
  squared_error += other.squared_error;
  squared_weight += other.squared_weight;
}

absl::StatusOr<float> TensorAmax(const TensorInfo& tensor, ThreadPool& pool) {
  std::vector<float> amax(static_cast<size_t>(pool.threads()));
  pool.ParallelFor(tensor.num_elements(), 1 << 16, [&](int64_t begin, int64_t end, int thread) {
    std::vector<float> x(1 << 16);
    float& largest = amax[static_cast<size_t>(thread)];
    for (int64_t first = begin; first < end; first += static_cast<int64_t>(x.size())) {
      const auto count = std::min(x.size(), static_cast<size_t>(end - first));
      const absl::Span<float> part = absl::MakeSpan(x).subspan(0, count);
      LoadFloats(tensor, first, part);
      largest = std::max(largest, FiniteAmax(part));
    }
  });
  const float largest = *std::max_element(amax.begin(), amax.end());
  if (!(largest < kMagnitudeLimit)) return OutOfRange(tensor);
  return largest;
}

absl::StatusOr<QuantError> QuantizeTensor(const PlannedTensor& tensor, const Magnitudes& magnitudes,
                                          ThreadPool& pool, ByteSink sink) {
  return MatrixQuantizer(tensor, magnitudes).Run(pool, sink);
}

}  // namespace millrace
