// How a checkpoint stores one matrix, told from the tensors that are there: the config's claim
// does not count, and matrices of one checkpoint may differ.
#ifndef ENGINE_WEIGHTS_STORED_LAYOUT_H_
#define ENGINE_WEIGHTS_STORED_LAYOUT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/weights/weight_source.h"
#include "kernels/stored_matrix/stored_matrix.h"

namespace millrace {

struct StoredLayout {
  StoredFormat format = StoredFormat::kBF16;
  TensorInfo values;
  TensorInfo scales;              // where the format has some
  TensorInfo factor;              // kNvFp4: f32, shape [] or [1]
  bool divide_by_factor = false;  // kNvFp4, as compressed-tensors stores it
  // Tensors that belong to the matrix and say nothing about its values, such as input_scale.
  std::vector<TensorInfo> unused;
};

// The matrix of `rows` x `cols` below `prefix` ("layers.0.attn.wq_a"), in one of
//   weight F32 or BF16                                                       plain
//   weight F8_E4M3, scale (or weight_scale_inv, weight_scale) F8_E8M0 or F32  FP8, 128 x 128
//   weight I8 or U8, scale F8_E8M0                                           MXFP4
//   weight U8 or I8, weight_scale F8_E4M3, weight_scale_2 F32                NVFP4 of ModelOpt
//   weight_packed U8, weight_scale F8_E4M3, weight_global_scale F32          of compressed-tensors
// Reads headers only. NotFound: a tensor is missing. InvalidArgument: a type, a shape, or columns
// that are no whole blocks. Each names the tensor, what it has and what was wanted.
absl::StatusOr<StoredLayout> FindStoredLayout(const WeightSource& source, const std::string& prefix,
                                              int64_t rows, int64_t cols);

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_STORED_LAYOUT_H_
