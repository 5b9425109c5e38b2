// Rows of heads that lie side by side, seen head by head.
#ifndef ENGINE_LAYERS_HEAD_VIEW_H_
#define ENGINE_LAYERS_HEAD_VIEW_H_

#include <cstdint>

#include "kernels/core/tensor_view.h"

namespace millrace {

// [T, N * D] -> [T, N, D]. REQUIRES: rank 2, head_dim divides dim(1).
inline TensorView HeadView(const TensorView& rows, int64_t head_dim) {
  TensorView view = rows;
  view.rank = 3;
  view.dims = {rows.dim(0), rows.dim(1) / head_dim, head_dim};
  view.strides = {rows.stride(0), head_dim, 1};
  return view;
}

}  // namespace millrace

#endif  // ENGINE_LAYERS_HEAD_VIEW_H_
