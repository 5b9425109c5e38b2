// The device table of an op: one row per device, null where the op has no kernel.
#ifndef KERNELS_CORE_OP_TABLE_H_
#define KERNELS_CORE_OP_TABLE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/op_context.h"

namespace millrace {

template <typename Args>
struct OpTable {
  using Fn = absl::Status (*)(const OpContext&, const Args&);
  std::string_view op;
  Fn cpu = nullptr;
  Fn cuda = nullptr;
};

// Calls the row of the context's device. Unimplemented, naming op and device, where it is null.
template <typename Args>
absl::Status RunOnDevice(const OpTable<Args>& table, const OpContext& ctx, const Args& args) {
  const bool on_cpu = ctx.device.type() == DeviceType::kCpu;
  const typename OpTable<Args>::Fn fn = on_cpu ? table.cpu : table.cuda;
  if (fn == nullptr) {
    return absl::UnimplementedError(absl::StrCat(std::string(table.op), ": no kernel for ",
                                                 on_cpu ? "cpu" : "cuda", " in this build"));
  }
  return fn(ctx, args);
}

}  // namespace millrace

#endif  // KERNELS_CORE_OP_TABLE_H_
