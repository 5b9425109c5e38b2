// The quantisation of a DeepSeek-V4 checkpoint, from the two files that speak of it.
#ifndef ENGINE_CONFIG_DEEPSEEK_V4_QUANTIZATION_H_
#define ENGINE_CONFIG_DEEPSEEK_V4_QUANTIZATION_H_

#include "absl/status/status.h"
#include "engine/config/deepseek_v4_config.h"
#include "engine/config/json_fields.h"

namespace millrace {

// Fills config.quantization and each layer's `experts`, and checks that the widths are whole
// groups. REQUIRES: sizes and layers of `config` are read. `hf_quant` may be null. Errors as
// ParseDeepSeekV4Config.
absl::Status ReadDeepSeekV4Quantization(JsonFields& fields, JsonFields* hf_quant,
                                        DeepSeekV4Config& config);

}  // namespace millrace

#endif  // ENGINE_CONFIG_DEEPSEEK_V4_QUANTIZATION_H_
