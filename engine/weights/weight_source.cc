#include "engine/weights/weight_source.h"

#include "absl/strings/str_cat.h"
#include "engine/weights/safetensors_header.h"
#include "kernels/core/status.h"

namespace millrace {

absl::Status WeightSource::Expect(std::string_view name, absl::Span<const int64_t> shape) const {
  ASSIGN_OR_RETURN(const TensorInfo tensor, Find(name));
  if (absl::MakeConstSpan(tensor.shape) == shape) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Where(name), ": tensor ", QuotedTensor(name),
                                                 " has shape ", ShapeString(tensor.shape),
                                                 ", config.json wants ", ShapeString(shape)));
}

}  // namespace millrace
