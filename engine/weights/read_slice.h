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

// InvalidArgument, naming the tensor, unless it has rank 0, 1 or 2 with one range a dimension, each
// inside the shape.
absl::Status CheckSlice(const TensorInfo& tensor, absl::Span<const Range> ranges);

// Elements of the box.
int64_t SliceElements(absl::Span<const Range> ranges);

// Copies the box `ranges` of `tensor` to `dst` as dense row-major `want` elements: F32, BF16 and
// F16 to kF32 or kBF16, I32 and I64 to kI32. Narrowing floats rounds to nearest even; NaN stays
// NaN. Touches only the box's own bytes. Errors as CheckSlice, and InvalidArgument for other types
// and for an integer that kI32 cannot hold. Any thread.
// REQUIRES: `dst` has room for SliceElements(ranges).
absl::Status ReadSlice(const TensorInfo& tensor, absl::Span<const Range> ranges, DType want,
                       void* dst);

// As ReadSlice, of the stored bytes, for types of whole bytes.
absl::Status ReadRawSlice(const TensorInfo& tensor, absl::Span<const Range> ranges, void* dst);

// The float of IEEE half-precision bits, exact.
float HalfToFloat(uint16_t bits);

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_READ_SLICE_H_
