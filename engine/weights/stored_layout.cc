#include "engine/weights/stored_layout.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/weights/safetensors_header.h"
#include "engine/weights/tensor_group.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int64_t kTile = 128;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Matrix {
  const TensorGroup& group;
  int64_t rows;
  int64_t cols;
};

absl::Status CheckBlocks(const Matrix& m, const char* part, StoredFormat format) {
  const int64_t unit = StoredColumnUnit(format);
  if (m.cols % unit == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", QuotedTensor(m.group.Name(part)), ": ", std::string(StoredFormatName(format)),
      " needs columns in blocks of ", unit, ", config.json wants ", m.cols));
}

absl::StatusOr<StoredLayout> Plain(const Matrix& m) {
  StoredLayout layout;
  ASSIGN_OR_RETURN(layout.values,
                   m.group.Take("weight", {FileDType::kF32, FileDType::kBF16}, {m.rows, m.cols}));
  const bool wide = layout.values.dtype == FileDType::kF32;
  layout.format = wide ? StoredFormat::kF32 : StoredFormat::kBF16;
  return layout;
}

absl::StatusOr<StoredLayout> Fp8(const Matrix& m) {
  StoredLayout layout = {.format = StoredFormat::kFp8};
  ASSIGN_OR_RETURN(layout.values, m.group.Take("weight", {FileDType::kF8E4M3}, {m.rows, m.cols}));
  const char* scale = "scale";
  for (const char* other : {"weight_scale_inv", "weight_scale"}) {
    if (!m.group.Has(scale) && m.group.Has(other)) scale = other;
  }
  ASSIGN_OR_RETURN(layout.scales, m.group.Take(scale, {FileDType::kF8E8M0, FileDType::kF32},
                                               {CeilDiv(m.rows, kTile), CeilDiv(m.cols, kTile)}));
  return layout;
}

absl::StatusOr<StoredLayout> MxFp4(const Matrix& m) {
  StoredLayout layout = {.format = StoredFormat::kMxFp4};
  RETURN_IF_ERROR(CheckBlocks(m, "weight", layout.format));
  ASSIGN_OR_RETURN(layout.values,
                   m.group.Take("weight", {FileDType::kI8, FileDType::kU8}, {m.rows, m.cols / 2}));
  ASSIGN_OR_RETURN(layout.scales, m.group.Take("scale", {FileDType::kF8E8M0},
                                               {m.rows, m.cols / StoredColumnUnit(layout.format)}));
  return layout;
}

// What tells the two spellings of NVFP4 apart.
struct NvFp4Names {
  const char* values;
  const char* factor;
  const char* input;
};

absl::StatusOr<StoredLayout> NvFp4(const Matrix& m, const NvFp4Names& names) {
  StoredLayout layout = {.format = StoredFormat::kNvFp4};
  RETURN_IF_ERROR(CheckBlocks(m, names.values, layout.format));
  ASSIGN_OR_RETURN(layout.values, m.group.Take(names.values, {FileDType::kU8, FileDType::kI8},
                                               {m.rows, m.cols / 2}));
  ASSIGN_OR_RETURN(layout.scales, m.group.Take("weight_scale", {FileDType::kF8E4M3},
                                               {m.rows, m.cols / StoredColumnUnit(layout.format)}));
  ASSIGN_OR_RETURN(layout.factor, m.group.Take(names.factor, {FileDType::kF32}, {}));
  if (m.group.Has(names.input)) {
    ASSIGN_OR_RETURN(TensorInfo input, m.group.Take(names.input, {FileDType::kF32}, {}));
    layout.unused.push_back(std::move(input));
  }
  return layout;
}

}  // namespace

absl::StatusOr<StoredLayout> FindStoredLayout(const WeightSource& source, const std::string& prefix,
                                              int64_t rows, int64_t cols) {
  const TensorGroup group(source, prefix);
  const Matrix m = {group, rows, cols};
  if (group.Has("weight_packed")) {
    ASSIGN_OR_RETURN(StoredLayout layout,
                     NvFp4(m, {"weight_packed", "weight_global_scale", "input_global_scale"}));
    layout.divide_by_factor = true;
    return layout;
  }
  ASSIGN_OR_RETURN(const TensorInfo weight, source.Find(group.Name("weight")));
  switch (weight.dtype) {
    case FileDType::kF32:
    case FileDType::kBF16:
      return Plain(m);
    case FileDType::kF8E4M3:
      return Fp8(m);
    case FileDType::kI8:
    case FileDType::kU8: {
      const bool nvfp4 = group.Has("weight_scale") || group.Has("weight_scale_2");
      return nvfp4 ? NvFp4(m, {"weight", "weight_scale_2", "input_scale"}) : MxFp4(m);
    }
    default:
      return group.Refuse(weight,
                          absl::StrCat("is stored as ", std::string(FileDTypeName(weight.dtype)),
                                       ", want F32, BF16, F8_E4M3, or I8 or U8 holding FP4"));
  }
}

}  // namespace millrace
