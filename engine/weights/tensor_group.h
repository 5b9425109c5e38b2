// The tensors that make up one matrix: those below its prefix.
#ifndef ENGINE_WEIGHTS_TENSOR_GROUP_H_
#define ENGINE_WEIGHTS_TENSOR_GROUP_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/weights/weight_source.h"

namespace millrace {

// Borrows both.
class TensorGroup final {
 public:
  TensorGroup(const WeightSource& source, const std::string& prefix)
      : source_(source), prefix_(prefix) {}

  std::string Name(const char* part) const;
  bool Has(const char* part) const { return source_.Find(Name(part)).ok(); }

  // One of them. NotFound: there is none. InvalidArgument: another type or shape than these. A
  // scalar ([]) may be a vector of one element.
  absl::StatusOr<TensorInfo> Take(const char* part, std::initializer_list<FileDType> types,
                                  const std::vector<int64_t>& shape) const;

  // InvalidArgument: "FILE: tensor 'NAME' REASON".
  absl::Status Refuse(const TensorInfo& tensor, const std::string& reason) const;

 private:
  const WeightSource& source_;
  const std::string& prefix_;
};

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_TENSOR_GROUP_H_
