// The quantisation of a LLaMA-class checkpoint, from the two files that speak of it.
#ifndef ENGINE_CONFIG_LLAMA_QUANTIZATION_H_
#define ENGINE_CONFIG_LLAMA_QUANTIZATION_H_

#include <optional>

#include "absl/status/statusor.h"
#include "engine/config/fp8_config.h"
#include "engine/config/json_fields.h"

namespace millrace {

// `fields`: config.json. `hf_quant`: hf_quant_config.json, may be null. Nothing where both are
// silent. InvalidArgument: malformed, missing, contradicting. Unimplemented, by name: other
// quantisations than FP8 in the forms of README.md.
absl::StatusOr<std::optional<Fp8Config>> ReadLlamaQuantization(JsonFields& fields,
                                                               JsonFields* hf_quant);

}  // namespace millrace

#endif  // ENGINE_CONFIG_LLAMA_QUANTIZATION_H_
