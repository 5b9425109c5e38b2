// Copies a box out of a stored tensor, converting its elements.
#ifndef ENGINE_WEIGHTS_READ_SLICE_H_
#define ENGINE_WEIGHTS_READ_SLICE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/parallel/shard.h"
#include "engine/weights/tensor_info.h"
#include "kernels/core/dtype.h"

namespace millrace {

// InvalidArgument, naming the tensor, unless it has rank 1 or 2 with one range a dimension, each
// inside the shape, and `want` is kF32 or kBF16.
absl::Status CheckSlice(const TensorInfo& tensor, absl::Span<const Range> ranges, DType want);

// Elements of the box.
int64_t SliceElements(absl::Span<const Range> ranges);

// Copies the box `ranges` of `tensor` (F32, BF16 or F16) to `dst` as dense row-major `want`
// elements. Narrowing rounds to nearest even; NaN stays NaN. Touches only the box's own bytes.
// Errors as CheckSlice, and InvalidArgument for another stored type. Any thread.
// REQUIRES: `dst` has room for SliceElements(ranges).
absl::Status ReadSlice(const TensorInfo& tensor, absl::Span<const Range> ranges, DType want,
                       void* dst);

// The float of IEEE half-precision bits, exact.
float HalfToFloat(uint16_t bits);

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_READ_SLICE_H_
