// The tensors of a FP8 matrix of a LLaMA checkpoint, checked against what its config says.
#ifndef ENGINE_WEIGHTS_FP8_LAYOUT_H_
#define ENGINE_WEIGHTS_FP8_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/config/fp8_config.h"
#include "engine/weights/weight_source.h"

namespace millrace {

struct Fp8Layout {
  TensorInfo values;                // [rows, cols] E4M3
  TensorInfo scale;                 // by Fp8WeightScale, F32, BF16 or F16
  std::optional<TensorInfo> input;  // where the scheme is static: [] or [1]
  // An "input_scale" that the scheme has no use for.
  std::optional<TensorInfo> unused;
};

// The matrix of `rows` x `cols` below `prefix`. Reads headers only. NotFound: a tensor is missing.
// InvalidArgument: one of another type or shape, or of blocks with a scale a tensor or the other
// way round. Each names the tensor, its file, what it has and what was wanted.
absl::StatusOr<Fp8Layout> FindFp8Layout(const WeightSource& source, const std::string& prefix,
                                        int64_t rows, int64_t cols, const Fp8Scheme& scheme);

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_FP8_LAYOUT_H_
