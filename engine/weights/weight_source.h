// Where a model's weights come from: a checkpoint folder, or made-up numbers. Model code asks for
// the part of each tensor that its rank holds and gets it converted into memory that it owns.
#ifndef ENGINE_WEIGHTS_WEIGHT_SOURCE_H_
#define ENGINE_WEIGHTS_WEIGHT_SOURCE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/parallel/shard.h"
#include "engine/weights/tensor_info.h"
#include "kernels/core/dtype.h"

namespace millrace {

// Thread-safe: several threads may read at once.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // NotFound, naming the source, when there is no such tensor.
  virtual absl::StatusOr<TensorInfo> Find(std::string_view name) const = 0;

  // Copies the box `ranges` (one range a dimension, rank 0 to 2) of tensor `name` to `dst` as
  // dense row-major `want` elements (floats as kF32 or kBF16; narrowing rounds to nearest even, NaN
  // stays NaN; integers as kI32). Reads only the bytes of that box. `dst` is host memory for all
  // elements of the box. NotFound: no such tensor. InvalidArgument: ranges or types that do not
  // fit, or an integer outside kI32.
  virtual absl::Status Read(std::string_view name, absl::Span<const Range> ranges, DType want,
                            void* dst) const = 0;

  // As Read, of the stored bytes.
  virtual absl::Status ReadRaw(std::string_view name, absl::Span<const Range> ranges,
                               void* dst) const = 0;

  // Which file or else the tensor comes from, for messages.
  virtual std::string Where(std::string_view name) const = 0;

  // All names, sorted.
  virtual std::vector<std::string> Names() const = 0;

  // SHA-256 in hex of what tells one source from another, cheap to compute: two ranks with equal
  // fingerprints load the same model. Errors: files that cannot be read.
  virtual absl::StatusOr<std::string> Fingerprint() const = 0;

  // InvalidArgument naming tensor, its shape and the wanted one when they differ.
  absl::Status Expect(std::string_view name, absl::Span<const int64_t> shape) const;
};

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_WEIGHT_SOURCE_H_
