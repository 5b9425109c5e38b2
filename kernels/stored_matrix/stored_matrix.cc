#include "kernels/stored_matrix/stored_matrix.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int64_t kTile = 128;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Type and shape of one of a matrix's tensors.
struct Wanted {
  DType dtype = DType::kU8;
  std::array<int64_t, 3> shape = {};
};

Wanted WantedValues(const StoredMatrix& m) {
  switch (m.format) {
    case StoredFormat::kF32:
      return {DType::kF32, {m.count, m.rows, m.cols}};
    case StoredFormat::kBF16:
      return {DType::kBF16, {m.count, m.rows, m.cols}};
    case StoredFormat::kFp8:
      return {DType::kU8, {m.count, m.rows, m.cols}};
    case StoredFormat::kMxFp4:
    case StoredFormat::kNvFp4:
      return {DType::kU8, {m.count, m.rows, m.cols / 2}};
  }
  return {};
}

Wanted WantedScales(const StoredMatrix& m) {
  if (m.format != StoredFormat::kFp8) {
    return {DType::kU8, {m.count, m.rows, m.cols / StoredColumnUnit(m.format)}};
  }
  const DType dtype = m.scales.dtype == DType::kF32 ? DType::kF32 : DType::kU8;
  return {dtype,
          {m.count, CeilDiv(m.tile_row + m.rows, kTile), CeilDiv(m.tile_col + m.cols, kTile)}};
}

absl::Status CheckTensor(const std::string& what, const TensorView& t, const Wanted& want) {
  const TensorView whole = {.data = t.data,
                            .dtype = want.dtype,
                            .device = t.device,  // which device is checked for all at once
                            .rank = 3,
                            .dims = {want.shape[0], want.shape[1], want.shape[2]}};
  const bool fits = t.dtype == want.dtype && t.rank == 3 && t.contiguous() &&
                    std::equal(want.shape.begin(), want.shape.end(), t.dims.begin());
  if (fits && (t.data != nullptr || t.empty())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", t.ToString(), ", want dense ", whole.ToString()));
}

// Rows [begin, end) of the only matrix of `t`.
TensorView RowsOf(const TensorView& t, int64_t begin, int64_t end) {
  TensorView part = t;
  part.data = t.as<char>() + begin * t.stride(1) * DTypeBytes(t.dtype);
  part.dims[1] = end - begin;
  part.strides[0] = part.dims[1] * part.dims[2];
  return part;
}

}  // namespace

std::string_view StoredFormatName(StoredFormat format) {
  switch (format) {
    case StoredFormat::kF32:
      return "F32";
    case StoredFormat::kBF16:
      return "BF16";
    case StoredFormat::kFp8:
      return "FP8";
    case StoredFormat::kMxFp4:
      return "MXFP4";
    case StoredFormat::kNvFp4:
      return "NVFP4";
  }
  return "?";
}

StoredMatrix StoredMatrix::Matrix(int64_t index) const {
  MR_CHECK(index >= 0 && index < count);
  StoredMatrix m = *this;
  m.count = 1;
  m.values = values.Rows(index, index + 1);
  if (IsQuantised(format)) m.scales = scales.Rows(index, index + 1);
  if (format == StoredFormat::kNvFp4) m.factors = factors.Rows(index, index + 1);
  return m;
}

StoredMatrix StoredMatrix::Rows(int64_t begin, int64_t end) const {
  MR_CHECK(count == 1 && begin >= 0 && begin <= end && end <= rows);
  StoredMatrix m = *this;
  m.rows = end - begin;
  m.values = RowsOf(values, begin, end);
  if (format == StoredFormat::kFp8) {
    const int64_t first = tile_row + begin;
    m.tile_row = static_cast<int32_t>(first % kTile);
    const int64_t tile = first / kTile;
    m.scales = RowsOf(scales, tile, tile + CeilDiv(m.tile_row + m.rows, kTile));
  } else if (IsQuantised(format)) {
    m.scales = RowsOf(scales, begin, end);
  }
  return m;
}

int64_t StoredMatrix::bytes() const {
  int64_t sum = values.size() * DTypeBytes(values.dtype);
  if (IsQuantised(format)) sum += scales.size() * DTypeBytes(scales.dtype);
  if (format == StoredFormat::kNvFp4) sum += factors.size() * DTypeBytes(factors.dtype);
  return sum;
}

absl::Status CheckStoredMatrix(std::string_view op, std::string_view name, DeviceType device,
                               const StoredMatrix& m) {
  const std::string what = absl::StrCat(std::string(op), ": ", std::string(name));
  if (m.count < 0 || m.rows < 0 || m.cols < 0 || m.tile_row < 0 || m.tile_row >= kTile ||
      m.tile_col < 0 || m.tile_col >= kTile || m.cols % StoredColumnUnit(m.format) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " of format ", std::string(StoredFormatName(m.format)), " cannot have ", m.count,
        " matrices of ", m.rows, " x ", m.cols, " from (", m.tile_row, ", ", m.tile_col, ")"));
  }
  RETURN_IF_ERROR(CheckTensor(what + ".values", m.values, WantedValues(m)));
  std::vector<const TensorView*> tensors = {&m.values};
  if (IsQuantised(m.format)) {
    RETURN_IF_ERROR(CheckTensor(what + ".scales", m.scales, WantedScales(m)));
    tensors.push_back(&m.scales);
  }
  if (m.format == StoredFormat::kNvFp4) {
    const TensorView& f = m.factors;
    if (f.dtype != DType::kF32 || f.rank != 1 || f.dim(0) != m.count || !f.contiguous() ||
        (f.data == nullptr && !f.empty())) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ".factors is ", f.ToString(), ", want float32[", m.count, "]"));
    }
    tensors.push_back(&f);
  }
  for (const TensorView* t : tensors) {
    if (t->device != device) {
      return absl::InvalidArgumentError(absl::StrCat(what, " is not on the device of the call"));
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
