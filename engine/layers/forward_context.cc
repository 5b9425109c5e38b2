#include "engine/layers/forward_context.h"

#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int64_t kWorkspaceAlignment = 256;

}  // namespace

absl::StatusOr<TensorView> TakeActivation(WorkspaceScope& scope, const OpContext& op, DType dtype,
                                          int64_t rows, int64_t cols) {
  ASSIGN_OR_RETURN(void* data, scope.Take(rows * cols * DTypeBytes(dtype)));
  return TensorView::Of(data, dtype, {rows, cols}, op.device.type());
}

int64_t ActivationBytes(DType dtype, int64_t rows, int64_t cols) {
  const int64_t bytes = rows * cols * DTypeBytes(dtype);
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

DType ActivationDType(DeviceType device) {
  return device == DeviceType::kCpu ? DType::kF32 : DType::kBF16;
}

}  // namespace millrace
