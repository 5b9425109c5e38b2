// The sum of two activations.
#ifndef KERNELS_ADD_ADD_H_
#define KERNELS_ADD_ADD_H_

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// Each f32 or bf16, also mixed; rows may be padded.
struct AddArgs {
  TensorView a;  // [T, D]
  TensorView b;  // [T, D]
  TensorView y;  // [T, D]; may be a or b
};

// y = a + b in f32, rounded once.
//
// InvalidArgument for operands that do not fit together, Unimplemented where the device has no
// kernel. Worker thread.
absl::Status Add(const OpContext& ctx, const AddArgs& args);

}  // namespace millrace

#endif  // KERNELS_ADD_ADD_H_
