#include "engine/config/quantization_fields.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {

absl::Status WantString(JsonFields& fields, const char* key, const std::string& want) {
  const std::string value = fields.String(key).value_or(want);
  if (value == want) return fields.status();
  return Unsupported(fields, absl::StrCat(key, ": ", Quoted(value), ", supported is '", want, "'"));
}

absl::Status WantBlocks(JsonFields& fields, const char* key) {
  if (fields.Find(key) == nullptr) fields.Fail(key, "is missing");
  const std::vector<int32_t> size = fields.IntOrInts(key, kGroupLimits);
  RETURN_IF_ERROR(fields.status());
  if (size == std::vector<int32_t>{kFp8BlockSize, kFp8BlockSize}) return absl::OkStatus();
  return Unsupported(fields, absl::StrCat(key, ": supported is [128, 128] alone"));
}

const char* QuantizationKey(const JsonFields& fields) {
  const bool newer = fields.Find("quantization_config") != nullptr;
  return newer || fields.Find("compression_config") == nullptr ? "quantization_config"
                                                               : "compression_config";
}

}  // namespace millrace
