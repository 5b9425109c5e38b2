#include "engine/weights/fp8_layout.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/weights/tensor_group.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int64_t kBlock = 128;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::vector<int64_t> ScaleShape(Fp8WeightScale weight, int64_t rows, int64_t cols) {
  switch (weight) {
    case Fp8WeightScale::kBlock:
      return {CeilDiv(rows, kBlock), CeilDiv(cols, kBlock)};
    case Fp8WeightScale::kChannel:
      return {rows, 1};
    case Fp8WeightScale::kTensor:
      return {};
  }
  return {};
}

}  // namespace

absl::StatusOr<Fp8Layout> FindFp8Layout(const WeightSource& source, const std::string& prefix,
                                        int64_t rows, int64_t cols, const Fp8Scheme& scheme) {
  const TensorGroup group(source, prefix);
  Fp8Layout layout;
  ASSIGN_OR_RETURN(layout.values, group.Take("weight", {FileDType::kF8E4M3}, {rows, cols}));
  std::vector<int64_t> shape = ScaleShape(scheme.weight, rows, cols);
  if (scheme.weight == Fp8WeightScale::kChannel) {
    // ModelOpt writes vectors.
    const absl::StatusOr<TensorInfo> scale = source.Find(group.Name(scheme.scale_name));
    if (scale.ok() && scale->shape.size() == 1) shape = {rows};
  }
  const auto floats = {FileDType::kF32, FileDType::kBF16, FileDType::kF16};
  ASSIGN_OR_RETURN(layout.scale, group.Take(scheme.scale_name, floats, shape));
  if (!scheme.static_input && !group.Has("input_scale")) return layout;
  ASSIGN_OR_RETURN(TensorInfo input, group.Take("input_scale", floats, {}));
  (scheme.static_input ? layout.input : layout.unused) = std::move(input);
  return layout;
}

}  // namespace millrace
