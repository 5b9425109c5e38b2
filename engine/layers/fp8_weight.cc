#include "engine/layers/fp8_weight.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/weights/fp8_layout.h"
#include "engine/weights/safetensors_header.h"
#include "kernels/core/check.h"
#include "kernels/core/dtype.h"
#include "kernels/core/status.h"
#include "kernels/lowp/block_formats.h"
#include "kernels/lowp/small_float.h"

namespace millrace {
namespace {

constexpr int64_t kBlock = kFp8GemmBlock;

// The blocks that [range) touches.
Range BlocksOf(Range range) {
  if (range.size() == 0) return {range.begin / kBlock, range.begin / kBlock};
  return {range.begin / kBlock, (range.end + kBlock - 1) / kBlock};
}

WeightPart ValuesOf(const StoredPart& part) {
  return MatrixPart(part.prefix + ".weight", part.rows, part.cols, part.row_part, part.col_part);
}

absl::Status CheckScales(const std::string& name, absl::Span<const float> values, bool divides,
                         const WeightLoader& loader) {
  for (const float value : values) {
    if (std::isfinite(value) && (divides ? value > 0 : value >= 0)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(loader.source().Where(name), ": tensor ", QuotedTensor(name), " holds ", value,
                     ", want a finite scale ", divides ? "above 0" : "that is not negative"));
  }
  return absl::OkStatus();
}

// Scales of the blocks, the rows or the matrix that a part touches, row-major.
absl::StatusOr<std::vector<float>> ReadScales(const StoredPart& part, const Fp8Layout& layout,
                                              Fp8WeightScale weight, WeightLoader& loader) {
  const TensorInfo& scale = layout.scale;
  WeightPart wanted = {{scale.name, scale.shape}, {}};
  switch (weight) {
    case Fp8WeightScale::kBlock:
      wanted.ranges = {BlocksOf(part.row_part), BlocksOf(part.col_part)};
      break;
    case Fp8WeightScale::kChannel:
      wanted.ranges = {part.row_part};
      if (scale.shape.size() == 2) wanted.ranges.push_back({0, 1});
      break;
    case Fp8WeightScale::kTensor:
      if (!scale.shape.empty()) wanted.ranges = {{0, 1}};
      break;
  }
  ASSIGN_OR_RETURN(std::vector<float> scales, loader.ReadFloats(wanted));
  RETURN_IF_ERROR(CheckScales(scale.name, scales, /*divides=*/false, loader));
  return scales;
}

absl::StatusOr<Fp8Layout> FindLayout(const StoredPart& part, const Fp8Scheme& scheme,
                                     WeightLoader& loader) {
  ASSIGN_OR_RETURN(Fp8Layout layout,
                   FindFp8Layout(loader.source(), part.prefix, part.rows, part.cols, scheme));
  if (layout.unused.has_value()) loader.Skip(layout.unused->name, layout.unused->shape);
  return layout;
}

absl::Status CheckCut(const StoredPart& part, const WeightLoader& loader) {
  const Range cols = part.col_part;
  if (cols.begin % kBlock == 0 && (cols.end % kBlock == 0 || cols.end == part.cols)) {
    return absl::OkStatus();
  }
  const std::string name = part.prefix + ".weight";
  return absl::InvalidArgumentError(absl::StrCat(
      loader.source().Where(name), ": tensor ", QuotedTensor(name), ": columns [", cols.begin, ", ",
      cols.end, ") of ", part.cols, " would cut a block of ", kBlock,
      ", which share a scale: give another --tensor-parallel-size, or --quantization none, which "
      "holds these weights as --dtype"));
}

// Runs of rows whose blocks of scales begin with them; see Fp8Weight::Run.
class RunBuilder final {
 public:
  // The next rows: these of a matrix whose scales begin at block BlocksOf(rows).begin.
  void Add(Range rows) {
    Range rest = rows;
    if (rest.begin % kBlock != 0) {
      const int64_t border = std::min(rest.end, (rest.begin / kBlock + 1) * kBlock);
      Append({rest.begin, border}, /*joins=*/false);
      rest.begin = border;
    }
    if (rest.size() > 0) Append(rest, /*joins=*/true);
  }
  std::vector<Fp8Weight::Run> Take() { return std::move(runs_); }

 private:
  void Append(Range rows, bool joins) {
    const int64_t blocks = BlocksOf(rows).size();
    if (joins && !runs_.empty() && runs_.back().rows.size() % kBlock == 0) {
      runs_.back().rows.end += rows.size();
      runs_.back().scale_rows.end += blocks;
    } else {
      runs_.push_back({{rows_, rows_ + rows.size()}, {blocks_, blocks_ + blocks}});
    }
    rows_ += rows.size();
    blocks_ += blocks;
  }

  std::vector<Fp8Weight::Run> runs_;
  int64_t rows_ = 0;
  int64_t blocks_ = 0;
};

// Scales of the parts one after the other, as Fp8Gemm takes them.
struct Scales {
  std::vector<float> values;
  std::vector<float> inputs;
};

absl::StatusOr<Scales> ReadAllScales(absl::Span<const StoredPart> parts, const Fp8Scheme& scheme,
                                     WeightLoader& loader) {
  Scales all;
  for (const StoredPart& part : parts) {
    ASSIGN_OR_RETURN(const Fp8Layout layout, FindLayout(part, scheme, loader));
    if (scheme.weight == Fp8WeightScale::kBlock) RETURN_IF_ERROR(CheckCut(part, loader));
    ASSIGN_OR_RETURN(std::vector<float> scales, ReadScales(part, layout, scheme.weight, loader));
    if (scheme.weight == Fp8WeightScale::kTensor) {
      scales.assign(static_cast<size_t>(part.row_part.size()), scales[0]);
    }
    all.values.insert(all.values.end(), scales.begin(), scales.end());
    if (!layout.input.has_value()) continue;
    const std::vector<Range> one(layout.input->shape.size(), {0, 1});
    ASSIGN_OR_RETURN(const std::vector<float> input,
                     loader.ReadFloats({{layout.input->name, layout.input->shape}, one}));
    RETURN_IF_ERROR(CheckScales(layout.input->name, input, /*divides=*/true, loader));
    all.inputs.push_back(input[0]);
  }
  return all;
}

absl::StatusOr<Fp8Weight> LoadStoredFp8(absl::Span<const StoredPart> parts, const Fp8Scheme& scheme,
                                        WeightLoader& loader) {
  const bool blocks = scheme.weight == Fp8WeightScale::kBlock;
  ASSIGN_OR_RETURN(const Scales scales, ReadAllScales(parts, scheme, loader));
  std::vector<WeightPart> values;
  RunBuilder runs;
  int64_t rows = 0;
  for (const StoredPart& part : parts) {
    values.push_back(ValuesOf(part));
    if (blocks) runs.Add(part.row_part);
    rows += part.row_part.size();
  }
  Fp8Weight weight;
  ASSIGN_OR_RETURN(weight.codes, loader.LoadRaw(values, DType::kU8));
  ASSIGN_OR_RETURN(weight.scale, loader.UploadWeights(scales.values));
  if (!scales.inputs.empty()) {
    // As others do for matrices that share their input.
    const float largest = *std::max_element(scales.inputs.begin(), scales.inputs.end());
    ASSIGN_OR_RETURN(weight.input, loader.UploadWeights({&largest, 1}));
  }
  weight.scales = blocks ? Fp8GemmScales::kBlocks : Fp8GemmScales::kVectors;
  weight.runs = blocks ? runs.Take() : std::vector<Fp8Weight::Run>{{{0, rows}, {0, rows}}};
  if (blocks && !loader.recording()) {
    const int64_t width = BlocksOf(parts[0].col_part).size();
    const TensorView& s = weight.scale.view;
    weight.scale.view = TensorView::Of(s.data, s.dtype, {s.dim(0) / width, width}, s.device);
  }
  return weight;
}

// Scales of outputs: see README.md for why not of blocks.
absl::StatusOr<Fp8Weight> Quantised(absl::Span<const StoredPart> parts, WeightLoader& loader) {
  std::vector<WeightPart> values;
  int64_t rows = 0;
  for (const StoredPart& part : parts) {
    values.push_back(ValuesOf(part));
    rows += part.row_part.size();
  }
  std::vector<float> scales(static_cast<size_t>(rows), 1.0f);
  const RowConversion conversion = {
      .read = DType::kF32,
      .convert = [&](const WeightPart& part, int64_t first, const char* in,
                     char* out) -> absl::Status {
        const MatrixShape shape = {part.ranges[0].size(), part.ranges[1].size()};
        const auto size = static_cast<size_t>(shape.rows * shape.cols);
        const absl::Span<const float> x = {reinterpret_cast<const float*>(in), size};
        if (!(FiniteAmax(x) < 0x1p127f)) {
          return absl::InvalidArgumentError(absl::StrCat(
              loader.source().Where(part.tensor.name), ": tensor ", QuotedTensor(part.tensor.name),
              " has elements that are NaN, infinite or beyond 2^127, which FP8 cannot stand for"));
        }
        QuantizeFp8Rows(shape, x, {reinterpret_cast<uint8_t*>(out), size},
                        absl::MakeSpan(scales).subspan(static_cast<size_t>(first),
                                                       static_cast<size_t>(shape.rows)));
        return absl::OkStatus();
      }};
  Fp8Weight weight;
  ASSIGN_OR_RETURN(weight.codes, loader.LoadConverted(values, DType::kU8, conversion));
  ASSIGN_OR_RETURN(weight.scale, loader.UploadWeights(scales));
  weight.runs = {{{0, rows}, {0, rows}}};
  return weight;
}

// Of one matrix: the rows that some parts of it span, and their scales.
struct MatrixScales {
  StoredPart span;
  Fp8WeightScale weight = Fp8WeightScale::kTensor;
  std::vector<float> values;

  // Of an element of the whole matrix.
  float At(int64_t row, int64_t col) const {
    switch (weight) {
      case Fp8WeightScale::kBlock: {
        const Range rows = BlocksOf(span.row_part), cols = BlocksOf(span.col_part);
        return values[static_cast<size_t>((row / kBlock - rows.begin) * cols.size() + col / kBlock -
                                          cols.begin)];
      }
      case Fp8WeightScale::kChannel:
        return values[static_cast<size_t>(row - span.row_part.begin)];
      case Fp8WeightScale::kTensor:
        return values[0];
    }
    return 0;
  }
};

void Widen(const WeightPart& part, const MatrixScales& scales, const uint8_t* in, DType dtype,
           char* out) {
  const Range rows = part.ranges[0], cols = part.ranges[1];
  int64_t i = 0;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t col = cols.begin; col < cols.end; ++col, ++i) {
      const float value = kE4M3Values[in[i]] * scales.At(row, col);
      if (dtype == DType::kF32) {
        reinterpret_cast<float*>(out)[i] = value;
      } else {
        reinterpret_cast<BFloat16*>(out)[i] = ToBFloat16(value);
      }
    }
  }
}

}  // namespace

absl::StatusOr<LinearPlan> PlanLinear(absl::Span<const std::string> prefixes,
                                      const LoadContext& ctx) {
  const auto scheme_of = [&](const std::string& prefix) {
    return ctx.fp8 == nullptr ? std::nullopt : ctx.fp8->SchemeOf(prefix);
  };
  const std::optional<Fp8Scheme> first = scheme_of(prefixes[0]);
  for (const std::string& prefix : prefixes.subspan(1)) {
    if (scheme_of(prefix) == first) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "quantization_config of config.json gives ", prefixes[0], " and ", prefix,
        " different forms: matrices of one input are one product and must be quantised alike"));
  }
  LinearPlan plan;
  if (first.has_value()) {
    plan.scheme = *first;
    const bool rounded = ctx.rounding != ActivationRounding::kNone;
    plan.form = rounded ? LinearForm::kStored : LinearForm::kWidened;
  } else if (ctx.quantize && ctx.fp8 == nullptr) {
    plan.form = LinearForm::kQuantised;
  }
  return plan;
}

int64_t CutUnit(const LinearPlan& plan) {
  const bool blocks =
      plan.form == LinearForm::kStored && plan.scheme.weight == Fp8WeightScale::kBlock;
  return blocks ? kBlock : 1;
}

absl::StatusOr<Fp8Weight> LoadFp8(absl::Span<const StoredPart> parts, const LinearPlan& plan,
                                  LoadContext& ctx) {
  MR_CHECK(!parts.empty());
  if (plan.form == LinearForm::kQuantised) return Quantised(parts, ctx.weights);
  MR_CHECK(plan.form == LinearForm::kStored);
  return LoadStoredFp8(parts, plan.scheme, ctx.weights);
}

absl::StatusOr<Weight> LoadWidened(absl::Span<const StoredPart> parts, const Fp8Scheme& scheme,
                                   LoadContext& ctx) {
  std::map<std::string, MatrixScales> matrices;  // by the name of their values
  std::vector<WeightPart> values;
  for (const StoredPart& part : parts) {
    values.push_back(ValuesOf(part));
    MatrixScales& matrix =
        matrices.try_emplace(values.back().tensor.name, MatrixScales{part, scheme.weight, {}})
            .first->second;
    Range& rows = matrix.span.row_part;
    rows = {std::min(rows.begin, part.row_part.begin), std::max(rows.end, part.row_part.end)};
  }
  for (auto& [name, matrix] : matrices) {
    ASSIGN_OR_RETURN(const Fp8Layout layout, FindLayout(matrix.span, scheme, ctx.weights));
    ASSIGN_OR_RETURN(matrix.values, ReadScales(matrix.span, layout, scheme.weight, ctx.weights));
    if (layout.input.has_value()) ctx.weights.Skip(layout.input->name, layout.input->shape);
  }
  const RowConversion conversion = {
      .read = DType::kU8,
      .convert = [&](const WeightPart& part, int64_t, const char* in, char* out) {
        Widen(part, matrices.at(part.tensor.name), reinterpret_cast<const uint8_t*>(in),
              ctx.weight_dtype, out);
        return absl::OkStatus();
      }};
  return ctx.weights.LoadConverted(values, ctx.weight_dtype, conversion);
}

}  // namespace millrace
