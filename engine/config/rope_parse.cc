#include "engine/config/rope_parse.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr NumberLimits kThetaLimits = {1.0, 1e15};
constexpr NumberLimits kFactorLimits = {1.0, 1e6};
constexpr NumberLimits kBandLimits = {1e-6, 1e6};

double Required(JsonFields& fields, const char* key, NumberLimits limits) {
  if (fields.Find(key) == nullptr) fields.Fail(key, "is missing");
  return fields.Number(key, limits).value_or(limits.max);
}

void ReadLlama3(JsonFields& scaling, RopeConfig& rope) {
  rope.factor = Required(scaling, "factor", kFactorLimits);
  rope.low_freq_factor = Required(scaling, "low_freq_factor", kBandLimits);
  rope.high_freq_factor = Required(scaling, "high_freq_factor", kBandLimits);
  rope.original_max_position =
      scaling.RequiredInt("original_max_position_embeddings", {1, int64_t{1} << 26});
  if (scaling.status().ok() && rope.high_freq_factor <= rope.low_freq_factor) {
    // The ramp between them divides by their difference.
    scaling.Fail("high_freq_factor", absl::StrCat(rope.high_freq_factor, ", want more than the ",
                                                  rope.low_freq_factor, " of low_freq_factor"));
  }
}

// `scaling` is what rope_scaling or rope_parameters holds.
absl::Status ReadScaling(JsonFields& scaling, RopeConfig& rope) {
  std::optional<std::string> type = scaling.String("rope_type");
  if (!type.has_value()) type = scaling.String("type");
  RETURN_IF_ERROR(scaling.status());
  // Some models give each kind of layer its own parameters: no type, only objects.
  if (!type.has_value() && scaling.Find("full_attention") != nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(scaling.where(), ": parameters by layer kind are not supported"));
  }
  if (!type.has_value() && scaling.Find("factor") != nullptr) {
    scaling.Fail("rope_type", "is missing");
  }
  rope.theta = scaling.Number("rope_theta", kThetaLimits).value_or(rope.theta);
  if (type.value_or("default") == "default") {
    rope.type = RopeScaling::kDefault;
  } else if (*type == "linear") {
    rope.type = RopeScaling::kLinear;
    rope.factor = Required(scaling, "factor", kFactorLimits);
  } else if (*type == "llama3") {
    rope.type = RopeScaling::kLlama3;
    ReadLlama3(scaling, rope);
  } else {
    return absl::UnimplementedError(absl::StrCat(
        scaling.where(), ": rope type '", absl::Utf8SafeCHexEscape(type->substr(0, 100)),
        "' is not supported; supported are default, linear, llama3"));
  }
  return scaling.status();
}

}  // namespace

absl::StatusOr<RopeConfig> ParseRope(JsonFields& fields, int64_t max_position) {
  RopeConfig rope;
  rope.original_max_position = max_position;
  const std::string dtype = fields.String("rope_frequency_dtype").value_or("float32");
  if (dtype != "float32" && dtype != "bfloat16") {
    fields.Fail("rope_frequency_dtype", "want float32 or bfloat16");
  }
  rope.frequency_dtype = dtype == "bfloat16" ? DType::kBF16 : DType::kF32;
  rope.theta = fields.Number("rope_theta", kThetaLimits).value_or(rope.theta);
  const char* key = "rope_parameters";
  const nlohmann::json* object = fields.Object(key);
  if (object == nullptr) {
    key = "rope_scaling";
    object = fields.Object(key);
  }
  RETURN_IF_ERROR(fields.status());
  if (object == nullptr) return rope;
  JsonFields scaling(*object, absl::StrCat(fields.where(), ": ", key));
  RETURN_IF_ERROR(ReadScaling(scaling, rope));
  return rope;
}

}  // namespace millrace
