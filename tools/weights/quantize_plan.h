// What quantising a checkpoint turns each of its tensors into: formats, names, shapes. Reads names,
// types and shapes only.
#ifndef TOOLS_WEIGHTS_QUANTIZE_PLAN_H_
#define TOOLS_WEIGHTS_QUANTIZE_PLAN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/weights/checkpoint.h"
#include "tools/weights/shard_writer.h"

namespace millrace {

// Whose names and layout a checkpoint has.
enum class ModelLayout {
  kLlama,       // Hugging Face's names
  kDeepseekV4,  // the released names, "layers.0.attn.wq_a.weight"
};

// What the user asks for. README.md says what each means for each model.
enum class QuantTarget { kFp8, kFp8Ct, kFp8CtTensor, kFp8ModelOpt, kMxfp4, kNvfp4, kNvfp4Ct };

// "fp8", "fp8-ct", "fp8-ct-tensor", "fp8-modelopt", "mxfp4", "nvfp4", "nvfp4-ct"; InvalidArgument
// for others, naming these.
absl::StatusOr<QuantTarget> ParseQuantTarget(const std::string& name);

// How one tensor is stored.
enum class Encoding {
  kCopy,
  kFp8F32,
  kFp8E8m0,
  kFp8Channel,
  kFp8Tensor,
  kMxfp4,
  kNvfp4,
  kNvfp4Reciprocal,
};
// Whether the largest magnitude of a tensor, or of its group, must be known before it is encoded.
constexpr bool NeedsAmax(Encoding encoding) {
  return encoding == Encoding::kFp8Tensor || encoding == Encoding::kNvfp4 ||
         encoding == Encoding::kNvfp4Reciprocal;
}
// Whether its input_scale would need calibration.
constexpr bool HasInputScale(Encoding encoding, QuantTarget target) {
  return encoding == Encoding::kNvfp4 ||
         (encoding == Encoding::kFp8Tensor && target == QuantTarget::kFp8ModelOpt);
}
std::string_view EncodingName(Encoding encoding);

struct PlannedTensor {
  const TensorInfo* source = nullptr;  // borrowed from the checkpoint
  Encoding encoding = Encoding::kCopy;
  // NVFP4: tensors of one group share the global scale, since engines multiply them at once. FP8
  // with a scale a tensor: itself.
  std::string group = {};
  // In the order of the data: codes, block scales, global scale, input scale, as far as there are
  // any. A copied tensor: itself.
  std::vector<OutputTensor> outputs = {};
};

// In the order of the checkpoint's files, to be read from front to back. InvalidArgument, naming
// the tensor: one to quantise that is not BF16 or F32, not a matrix, or not a whole number of
// blocks wide; an output that clashes with another tensor; names of another layout; none to
// quantise. Unimplemented: a target that the layout does not have.
absl::StatusOr<std::vector<PlannedTensor>> PlanQuantization(const Checkpoint& checkpoint,
                                                            ModelLayout layout, QuantTarget target);

}  // namespace millrace

#endif  // TOOLS_WEIGHTS_QUANTIZE_PLAN_H_
