// Quantises one matrix of a checkpoint, some rows at a time.
#ifndef TOOLS_WEIGHTS_QUANTIZE_TENSOR_H_
#define TOOLS_WEIGHTS_QUANTIZE_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cpu/thread_pool.h"
#include "tools/weights/quantize_plan.h"

namespace millrace {

// How far the dequantised values of some elements are from the original ones.
struct QuantError {
  double max = 0;
  double squared_error = 0;
  double squared_weight = 0;

  // Root of the mean squared error by that of the mean squared weight; 0 for no error.
  double relative_rms() const;
  void Add(const QuantError& other);
};

// Takes the next bytes of the quantised tensor's data.
using ByteSink = absl::FunctionRef<absl::Status(absl::Span<const std::byte>)>;

// The largest magnitude of a BF16 or F32 tensor; InvalidArgument, with its name, when an element
// is NaN, infinite, or 2^127 or more, which no format holds.
absl::StatusOr<float> TensorAmax(const TensorInfo& tensor, ThreadPool& pool);

// What is known of magnitudes before a tensor is encoded.
struct Magnitudes {
  float weights = 0;      // the largest of the tensor's group, where NeedsAmax()
  float activations = 0;  // that input_scale lets through
};

// Gives `sink` the outputs of `tensor` in their order.
// Holds a few dozen MB, more only for very wide matrices. Also the sink's error.
// REQUIRES: `tensor` was planned, and is not copied.
absl::StatusOr<QuantError> QuantizeTensor(const PlannedTensor& tensor, const Magnitudes& magnitudes,
                                          ThreadPool& pool, ByteSink sink);

}  // namespace millrace

#endif  // TOOLS_WEIGHTS_QUANTIZE_TENSOR_H_
