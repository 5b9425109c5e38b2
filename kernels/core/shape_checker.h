// Checks the operands of an op at its door: shapes with symbolic sizes, dtypes, device.
//
//   int64_t tokens = kUnbound, hidden = kUnbound;
//   RETURN_IF_ERROR(ShapeChecker("RmsNorm", ctx.device.type())
//                       .Bind("x", a.x, {&tokens, &hidden}, {DType::kF32, DType::kBF16})
//                       .Bind("weight", a.weight, {&hidden}, {a.x.dtype})
//                       .status());
//   -> "RmsNorm: weight.dim(0) = 7, want 8"
#ifndef KERNELS_CORE_SHAPE_CHECKER_H_
#define KERNELS_CORE_SHAPE_CHECKER_H_

#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

inline constexpr int64_t kUnbound = -1;

class ShapeChecker final {
 public:
  ShapeChecker(std::string_view op, DeviceType device) : op_(op), device_(device) {}

  // Checks rank, device, one of `dtypes`, innermost stride 1, non-null data when not empty; each
  // size that is kUnbound is bound to the operand's dim, each bound one must equal it.
  ShapeChecker& Bind(std::string_view name, const TensorView& t,
                     std::initializer_list<int64_t*> sizes, std::initializer_list<DType> dtypes);
  // Adds `message` as an error unless `ok`.
  ShapeChecker& Require(bool ok, std::string_view message);

  // The first error, INVALID_ARGUMENT with the op's name, or OK.
  absl::Status status() const { return status_; }

 private:
  void Fail(const std::string& message);

  std::string op_;
  DeviceType device_;
  absl::Status status_;
};

}  // namespace millrace

#endif  // KERNELS_CORE_SHAPE_CHECKER_H_
