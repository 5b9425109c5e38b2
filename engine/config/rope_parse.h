// The rotary part of a Hugging Face config, in its older and newer spellings.
#ifndef ENGINE_CONFIG_ROPE_PARSE_H_
#define ENGINE_CONFIG_ROPE_PARSE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/config/json_fields.h"
#include "engine/config/model_config.h"

namespace millrace {

// Reads rope_theta with rope_scaling (older) or rope_parameters (newer) of the config `fields`.
// Unimplemented: a rope type other than default, linear and llama3, by name. InvalidArgument: a
// value of a wrong type or out of range. Errors already in `fields` are returned too.
absl::StatusOr<RopeConfig> ParseRope(JsonFields& fields, int64_t max_position);

}  // namespace millrace

#endif  // ENGINE_CONFIG_ROPE_PARSE_H_
