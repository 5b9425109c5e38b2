// What the readers of quantization_config share.
#ifndef ENGINE_CONFIG_QUANTIZATION_FIELDS_H_
#define ENGINE_CONFIG_QUANTIZATION_FIELDS_H_

#include <string>

#include "absl/status/status.h"
#include "engine/config/json_fields.h"

namespace millrace {

// Weights and activations that share a scale, where blocks or groups of FP8 do.
inline constexpr int64_t kFp8BlockSize = 128;
inline constexpr IntLimits kGroupLimits = {1, 1 << 20};

// An optional field that has one supported value; Unimplemented, naming both, for others.
absl::Status WantString(JsonFields& fields, const char* key, const std::string& want);

// A required list of two that is [128, 128].
absl::Status WantBlocks(JsonFields& fields, const char* key);

// "quantization_config", or "compression_config" where older exports have that instead.
const char* QuantizationKey(const JsonFields& fields);

}  // namespace millrace

#endif  // ENGINE_CONFIG_QUANTIZATION_FIELDS_H_
