#include "engine/runtime/runner_config.h"

#include <algorithm>

namespace millrace {

std::vector<int32_t> DefaultGraphSizes(int32_t max_num_seqs) {
  constexpr int32_t kLargest = 256;
  const int32_t largest = std::min(max_num_seqs, kLargest);
  std::vector<int32_t> sizes;
  for (int32_t size = 1; size < largest;) {
    sizes.push_back(size);
    size += size < 4 ? size : size < 8 ? 4 : size < 64 ? 8 : 16;
  }
  sizes.push_back(largest);
  return sizes;
}

std::string_view CacheDTypeName(DType dtype) {
  return dtype == DType::kU8 ? "fp8" : DTypeName(dtype);
}

std::optional<DType> CacheDTypeFromName(std::string_view name) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kU8}) {
    if (CacheDTypeName(dtype) == name) return dtype;
  }
  return std::nullopt;
}

std::optional<Numerics> NumericsFromName(std::string_view name) {
  for (const Numerics numerics : {Numerics::kReference, Numerics::kServing}) {
    if (NumericsName(numerics) == name) return numerics;
  }
  return std::nullopt;
}

}  // namespace millrace
