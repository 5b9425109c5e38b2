#include "kernels/stored_matrix/random_stored_matrix.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double E4M3(int code) {
  const int magnitude = code & 0x7f;
  if (magnitude == 0x7f) return kNan;
  const int exponent = magnitude >> 3, mantissa = magnitude & 7;
  const double value =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -value : value;
}

double E2M1(int code) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double value = kMagnitudes[code & 7];
  return (code & 8) != 0 ? -value : value;
}

double E8M0(int code) { return code == 255 ? kNan : std::ldexp(1.0, code - 127); }

void SetAt(GuardedTensor& tensor, int64_t at, double value) {
  std::vector<double> all = tensor.Get();
  all[static_cast<size_t>(at)] = value;
  tensor.Set(all);
}

}  // namespace

std::string KindName(const StoredKind& kind) {
  return absl::StrCat(std::string(StoredFormatName(kind.format)),
                      kind.f32_scales ? " with f32 scales" : "",
                      kind.divide_by_factor ? " with a reciprocal factor" : "");
}

RandomStoredMatrix::RandomStoredMatrix(Device& device, TestRng& rng, const StoredKind& kind,
                                       const StoredSizes& s) {
  view_ = {.format = kind.format, .count = s.count, .rows = s.rows, .cols = s.cols};
  view_.divide_by_factor = kind.divide_by_factor;
  const std::vector<int64_t> whole = {s.count, s.rows, s.cols};
  switch (kind.format) {
    case StoredFormat::kF32:
    case StoredFormat::kBF16: {
      const bool wide = kind.format == StoredFormat::kF32;
      tensors_.emplace_back(device, wide ? DType::kF32 : DType::kBF16, whole).SetNormal(rng);
      break;
    }
    case StoredFormat::kFp8: {
      view_.tile_row = s.tile_row;
      view_.tile_col = s.tile_col;
      const std::vector<int64_t> tiles = {s.count, (s.tile_row + s.rows + 127) / 128,
                                          (s.tile_col + s.cols + 127) / 128};
      tensors_.emplace_back(device, DType::kU8, whole);
      tensors_.emplace_back(device, kind.f32_scales ? DType::kF32 : DType::kU8, tiles);
      MakeFp8(rng);
      break;
    }
    case StoredFormat::kMxFp4:
    case StoredFormat::kNvFp4: {
      const int64_t unit = StoredColumnUnit(kind.format);
      tensors_.emplace_back(device, DType::kU8, std::vector<int64_t>{s.count, s.rows, s.cols / 2});
      tensors_.emplace_back(device, DType::kU8,
                            std::vector<int64_t>{s.count, s.rows, s.cols / unit});
      tensors_.emplace_back(device, DType::kF32, std::vector<int64_t>{s.count});
      MakeFp4(rng);
      break;
    }
  }
  view_.values = tensors_[0].view();
  if (IsQuantised(kind.format)) view_.scales = tensors_[1].view();
  if (kind.format == StoredFormat::kNvFp4) view_.factors = tensors_[2].view();
  Read();
}

void RandomStoredMatrix::MakeFp8(TestRng& rng) {
  std::vector<double> codes;
  for (int64_t i = 0; i < tensors_[0].size(); ++i) {
    const int64_t magnitude = rng.Integer(0, 0x7e);
    codes.push_back(static_cast<double>(magnitude + 0x80 * rng.Integer(0, 1)));
  }
  tensors_[0].Set(codes);
  if (tensors_[1].view().dtype == DType::kF32) {
    tensors_[1].SetUniform(rng, 0.001, 0.02);
  } else {
    tensors_[1].SetIntegers(rng, 127 - 10, 127 - 5);
  }
}

void RandomStoredMatrix::MakeFp4(TestRng& rng) {
  tensors_[0].SetIntegers(rng, 0, 255);
  if (view_.format == StoredFormat::kMxFp4) {
    tensors_[1].SetIntegers(rng, 127 - 4, 127);
  } else {
    tensors_[1].SetIntegers(rng, 0, 0x7e);  // no scale is negative
  }
  tensors_[2].SetUniform(rng, 0.001, 0.02);
  if (view_.divide_by_factor) tensors_[2].SetUniform(rng, 50, 1000);
}

double RandomStoredMatrix::ScaleAt(int64_t index, int64_t row, int64_t col) const {
  const bool fp8 = view_.format == StoredFormat::kFp8;
  const int64_t r = fp8 ? (view_.tile_row + row) / 128 : row;
  const int64_t c = fp8 ? (view_.tile_col + col) / 128 : col / StoredColumnUnit(view_.format);
  const TensorView& s = view_.scales;
  const double stored = scales_[static_cast<size_t>((index * s.dim(1) + r) * s.dim(2) + c)];
  if (s.dtype == DType::kF32) return stored;
  return view_.format == StoredFormat::kNvFp4 ? E4M3(static_cast<int>(stored))
                                              : E8M0(static_cast<int>(stored));
}

void RandomStoredMatrix::Read() {
  const std::vector<double> codes = tensors_[0].Get();
  values_.clear();
  if (!IsQuantised(view_.format)) {
    values_ = codes;
    return;
  }
  scales_ = tensors_[1].Get();
  const std::vector<double> factors =
      view_.format == StoredFormat::kNvFp4 ? tensors_[2].Get() : std::vector<double>();
  for (int64_t e = 0; e < view_.count; ++e) {
    for (int64_t r = 0; r < view_.rows; ++r) {
      for (int64_t c = 0; c < view_.cols; ++c) {
        const auto at = static_cast<size_t>((e * view_.rows + r) * view_.cols + c);
        if (view_.format == StoredFormat::kFp8) {
          values_.push_back(E4M3(static_cast<int>(codes[at])) * ScaleAt(e, r, c));
          continue;
        }
        const int code = static_cast<int>(codes[at / 2]) >> (at % 2 == 0 ? 0 : 4);
        const double scaled = E2M1(code & 15) * ScaleAt(e, r, c);
        if (view_.format == StoredFormat::kMxFp4) {
          values_.push_back(scaled);
        } else {
          const double factor = factors[static_cast<size_t>(e)];
          values_.push_back(view_.divide_by_factor ? scaled / factor : scaled * factor);
        }
      }
    }
  }
}

void RandomStoredMatrix::SetNan(int64_t index, int64_t row, int64_t col) {
  const int64_t at = (index * view_.rows + row) * view_.cols + col;
  if (!IsQuantised(view_.format)) {
    SetAt(tensors_[0], at, kNan);
  } else if (view_.format == StoredFormat::kFp8) {
    SetAt(tensors_[0], at, 0xff);
  } else {
    const bool mx = view_.format == StoredFormat::kMxFp4;
    SetAt(tensors_[1], at / StoredColumnUnit(view_.format), mx ? 255 : 0x7f);
  }
  Read();
}

}  // namespace millrace
