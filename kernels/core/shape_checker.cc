#include "kernels/core/shape_checker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace millrace {

void ShapeChecker::Fail(const std::string& message) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(op_, ": ", message));
}

ShapeChecker& ShapeChecker::Bind(std::string_view name, const TensorView& t,
                                 std::initializer_list<int64_t*> sizes,
                                 std::initializer_list<DType> dtypes) {
  const std::string operand(name);
  if (t.rank != static_cast<int32_t>(sizes.size())) {
    Fail(absl::StrCat(operand, " has rank ", t.rank, ", want ", sizes.size()));
    return *this;
  }
  if (t.device != device_) Fail(absl::StrCat(operand, " is ", t.ToString(), ", on another device"));
  if (std::find(dtypes.begin(), dtypes.end(), t.dtype) == dtypes.end()) {
    std::string want;
    for (DType d : dtypes)
      absl::StrAppend(&want, want.empty() ? "" : " or ", std::string(DTypeName(d)));
    Fail(absl::StrCat(operand, " has dtype ", std::string(DTypeName(t.dtype)), ", want ", want));
  }
  int i = 0;
  for (int64_t* size : sizes) {
    if (*size == kUnbound) *size = t.dim(i);
    if (*size != t.dim(i)) {
      Fail(absl::StrCat(operand, ".dim(", i, ") = ", t.dim(i), ", want ", *size));
    }
    ++i;
  }
  if (t.rank > 0 && t.dim(t.rank - 1) > 1 && t.stride(t.rank - 1) != 1) {
    Fail(absl::StrCat(operand, " has innermost stride ", t.stride(t.rank - 1), ", want 1"));
  }
  if (t.data == nullptr && t.size() > 0) Fail(absl::StrCat(operand, " has no data"));
  return *this;
}

ShapeChecker& ShapeChecker::Require(bool ok, std::string_view message) {
  if (!ok) Fail(std::string(message));
  return *this;
}

}  // namespace millrace
