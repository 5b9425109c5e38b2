// config.json before and after quantisation.
#ifndef TOOLS_WEIGHTS_QUANTIZE_CONFIG_H_
#define TOOLS_WEIGHTS_QUANTIZE_CONFIG_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/weights/quantize_plan.h"

namespace millrace {

struct SourceConfig {
  ModelLayout layout = ModelLayout::kLlama;
  std::string text = {};  // JSON object, valid
};

// Reads dir/config.json. InvalidArgument: malformed, or quantised already. Unimplemented: a model
// that is neither LLaMA's nor DeepSeek-V4's, which is named.
absl::StatusOr<SourceConfig> ReadSourceConfig(const std::string& dir);

// The files that describe the quantised checkpoint, by name: config.json, and what else loaders
// of the format look for. Keys of config.json keep their order.
std::map<std::string, std::string> QuantizedConfigs(const SourceConfig& source, QuantTarget target,
                                                    const std::vector<PlannedTensor>& plan);

}  // namespace millrace

#endif  // TOOLS_WEIGHTS_QUANTIZE_CONFIG_H_
