#include "engine/layers/stored_weight.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/weights/safetensors_header.h"
#include "engine/weights/stored_layout.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int64_t kTile = 128;

// The blocks that [range) touches, each `block` long.
Range BlocksOf(Range range, int64_t block) {
  if (range.size() == 0) return {range.begin / block, range.begin / block};
  return {range.begin / block, (range.end + block - 1) / block};
}

WeightPart PartOf(const TensorInfo& tensor, Range rows, Range cols) {
  return MatrixPart(tensor.name, tensor.shape[0], tensor.shape[1], rows, cols);
}

// Which tensors make up the parts.
struct Pieces {
  std::vector<WeightPart> values, scales, factors;
};

absl::Status CheckCut(const StoredPart& part, const StoredLayout& layout) {
  const int64_t unit = StoredColumnUnit(layout.format);
  const Range cols = part.col_part;
  if (cols.begin % unit == 0 && cols.end % unit == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", QuotedTensor(layout.values.name), ": columns [", cols.begin, ", ",
                   cols.end, ") of ", part.cols, " would cut a block of ", unit,
                   ", which share a scale in ", std::string(StoredFormatName(layout.format))));
}

void AddPieces(const StoredPart& part, const StoredLayout& layout, Pieces& pieces) {
  const bool fp4 = StoredColumnUnit(layout.format) > 1;
  const Range cols = fp4 ? Range{part.col_part.begin / 2, part.col_part.end / 2} : part.col_part;
  pieces.values.push_back(PartOf(layout.values, part.row_part, cols));
  if (!IsQuantised(layout.format)) return;
  const Range rows = fp4 ? part.row_part : BlocksOf(part.row_part, kTile);
  const int64_t block = fp4 ? StoredColumnUnit(layout.format) : kTile;
  pieces.scales.push_back(PartOf(layout.scales, rows, BlocksOf(part.col_part, block)));
  if (layout.format != StoredFormat::kNvFp4) return;
  const bool scalar = layout.factor.shape.empty();
  pieces.factors.push_back(scalar ? ScalarPart(layout.factor.name)
                                  : VectorPart(layout.factor.name, 1, {0, 1}));
}

// [count * rows, cols] as [count, rows, cols].
TensorView Stacked(const TensorView& t, int64_t count) {
  return TensorView::Of(t.data, t.dtype, {count, t.dim(0) / count, t.dim(1)}, t.device);
}

absl::StatusOr<StoredLayout> FindLayout(const StoredPart& part, WeightLoader& loader) {
  ASSIGN_OR_RETURN(StoredLayout layout,
                   FindStoredLayout(loader.source(), part.prefix, part.rows, part.cols));
  RETURN_IF_ERROR(CheckCut(part, layout));
  for (const TensorInfo& tensor : layout.unused) loader.Skip(tensor.name, tensor.shape);
  return layout;
}

DType ValuesType(StoredFormat format) {
  if (format == StoredFormat::kF32) return DType::kF32;
  return format == StoredFormat::kBF16 ? DType::kBF16 : DType::kU8;
}

}  // namespace

StoredPart WholeMatrix(std::string prefix, int64_t rows, int64_t cols) {
  return {std::move(prefix), rows, cols, {0, rows}, {0, cols}};
}

absl::StatusOr<StoredWeight> LoadStored(absl::Span<const StoredPart> parts, WeightLoader& loader) {
  MR_CHECK(!parts.empty());
  ASSIGN_OR_RETURN(const StoredLayout first, FindLayout(parts[0], loader));
  Pieces pieces;
  AddPieces(parts[0], first, pieces);
  for (const StoredPart& part : parts.subspan(1)) {
    ASSIGN_OR_RETURN(const StoredLayout layout, FindLayout(part, loader));
    if (layout.format != first.format || layout.scales.dtype != first.scales.dtype ||
        layout.divide_by_factor != first.divide_by_factor) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", QuotedTensor(layout.values.name), " is ",
          std::string(StoredFormatName(layout.format)), " and ", QuotedTensor(first.values.name),
          " is ", std::string(StoredFormatName(first.format)),
          ": matrices that are one stack must be stored alike"));
    }
    AddPieces(part, layout, pieces);
  }

  StoredWeight weight;
  StoredMatrix& m = weight.matrix;
  m.format = first.format;
  m.count = static_cast<int64_t>(parts.size());
  m.rows = parts[0].row_part.size();
  m.cols = parts[0].col_part.size();
  m.divide_by_factor = first.divide_by_factor;
  ASSIGN_OR_RETURN(weight.values, loader.LoadRaw(pieces.values, ValuesType(m.format)));
  m.values = Stacked(weight.values.view, m.count);
  if (m.format == StoredFormat::kFp8) {
    m.tile_row = static_cast<int32_t>(parts[0].row_part.begin % kTile);
    m.tile_col = static_cast<int32_t>(parts[0].col_part.begin % kTile);
  }
  if (!pieces.scales.empty()) {
    const bool wide = first.scales.dtype == FileDType::kF32;
    ASSIGN_OR_RETURN(weight.scales, loader.LoadRaw(pieces.scales, wide ? DType::kF32 : DType::kU8));
    m.scales = Stacked(weight.scales.view, m.count);
  }
  if (!pieces.factors.empty()) {
    ASSIGN_OR_RETURN(weight.factors, loader.LoadRaw(pieces.factors, DType::kF32));
    m.factors = weight.factors.view;
  }
  return weight;
}

absl::StatusOr<StoredWeight> LoadStored(const StoredPart& part, WeightLoader& loader) {
  return LoadStored(absl::MakeConstSpan(&part, 1), loader);
}

absl::Status SkipStored(const StoredPart& part, WeightLoader& loader) {
  ASSIGN_OR_RETURN(const StoredLayout layout, FindLayout(part, loader));
  for (const TensorInfo* tensor : {&layout.values, &layout.scales, &layout.factor}) {
    if (!tensor->name.empty()) loader.Skip(tensor->name, tensor->shape);
  }
  return absl::OkStatus();
}

absl::StatusOr<Range> CutColumns(const std::string& prefix, int64_t rows, int64_t cols,
                                 const LoadContext& ctx) {
  ASSIGN_OR_RETURN(const StoredLayout layout,
                   FindStoredLayout(ctx.weights.source(), prefix, rows, cols));
  const int64_t unit = StoredColumnUnit(layout.format);
  if (cols / unit < ctx.size) {
    return absl::InvalidArgumentError(absl::StrCat(
        prefix, ": ", cols, " columns of ", std::string(StoredFormatName(layout.format)), " are ",
        cols / unit, " blocks of ", unit, ", which cannot be cut into ", ctx.size, " ranks"));
  }
  const Range blocks = BalancedRange(cols / unit, ctx.size, ctx.rank);
  return Range{blocks.begin * unit, blocks.end * unit};
}

}  // namespace millrace
