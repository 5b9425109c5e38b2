// The post-processors of tokenizer.json, as far as ids go: what stands before and behind a text.
#ifndef ENGINE_TOKENIZER_POST_PROCESSOR_H_
#define ENGINE_TOKENIZER_POST_PROCESSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/json_reader.h"

namespace millrace {

// A value; immutable once read.
class PostProcessor {
 public:
  // Reads Sequence, ByteLevel (which changes no ids), TemplateProcessing, BertProcessing and
  // RobertaProcessing; null is none. Any other type is refused by name.
  static absl::StatusOr<PostProcessor> FromJson(const JsonRef& spec);

  const std::vector<int32_t>& prefix() const { return prefix_; }
  const std::vector<int32_t>& suffix() const { return suffix_; }

 private:
  absl::Status Read(const JsonRef& spec, int depth);
  absl::Status ReadTemplate(const JsonRef& spec);
  absl::Status ReadBert(const JsonRef& spec);
  // Adds ids around what is there already.
  absl::Status Surround(std::vector<int32_t> before, const std::vector<int32_t>& behind,
                        const JsonRef& spec);

  std::vector<int32_t> prefix_;
  std::vector<int32_t> suffix_;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_POST_PROCESSOR_H_
