#include "engine/weights/tensor_group.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/weights/safetensors_header.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

std::string TypeNames(std::initializer_list<FileDType> types) {
  return absl::StrJoin(types, " or ",
                       [](std::string* out, FileDType type) { out->append(FileDTypeName(type)); });
}

}  // namespace

std::string TensorGroup::Name(const char* part) const { return absl::StrCat(prefix_, ".", part); }

absl::StatusOr<TensorInfo> TensorGroup::Take(const char* part,
                                             std::initializer_list<FileDType> types,
                                             const std::vector<int64_t>& shape) const {
  ASSIGN_OR_RETURN(TensorInfo tensor, source_.Find(Name(part)));
  if (std::find(types.begin(), types.end(), tensor.dtype) == types.end()) {
    return Refuse(tensor, absl::StrCat("is stored as ", std::string(FileDTypeName(tensor.dtype)),
                                       ", want ", TypeNames(types)));
  }
  const bool one = shape.empty() && tensor.shape == std::vector<int64_t>{1};
  if (tensor.shape != shape && !one) {
    return Refuse(tensor, absl::StrCat("has shape ", ShapeString(tensor.shape), ", want ",
                                       ShapeString(shape)));
  }
  return tensor;
}

absl::Status TensorGroup::Refuse(const TensorInfo& tensor, const std::string& reason) const {
  return absl::InvalidArgumentError(absl::StrCat(source_.Where(tensor.name), ": tensor ",
                                                 QuotedTensor(tensor.name), " ", reason));
}

}  // namespace millrace
