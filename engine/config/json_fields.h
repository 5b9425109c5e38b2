// Reads fields of a JSON object from a stranger, checked for type and range.
#ifndef ENGINE_CONFIG_JSON_FIELDS_H_
#define ENGINE_CONFIG_JSON_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace millrace {

// A JSON object. InvalidArgument, beginning with `where`: not JSON (with the byte), not an object,
// nested deeper than 64, or one key twice in an object.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, const std::string& where);

// Inclusive.
struct IntLimits {
  int64_t min;
  int64_t max;
};
struct NumberLimits {
  double min;
  double max;
};

// Getters return the field's value, or nothing when it is absent or null. A field of a wrong type
// or out of range also gives nothing and is remembered: status() is the first such error. One
// thread. Borrows `object`.
class JsonFields final {
 public:
  // REQUIRES: `object` is an object. `where` starts every message: "DIR/config.json".
  JsonFields(const nlohmann::json& object, std::string where);

  std::optional<int64_t> Int(const char* key, IntLimits limits);
  std::optional<double> Number(const char* key, NumberLimits limits);
  std::optional<bool> Bool(const char* key);
  std::optional<std::string> String(const char* key);
  std::vector<std::string> Strings(const char* key);
  // One integer, or a list of at most 1024.
  std::vector<int32_t> IntOrInts(const char* key, IntLimits limits);

  // As Int(), but absent or null is an error too; then 0.
  int64_t RequiredInt(const char* key, IntLimits limits);

  // Null when absent or JSON null.
  const nlohmann::json* Find(const char* key) const;
  // Null also when it is not an object, which is an error.
  const nlohmann::json* Object(const char* key);

  // Remembers an error of the caller's about `key`, unless there is an earlier one.
  void Fail(const char* key, const std::string& reason);

  const std::string& where() const { return where_; }
  const absl::Status& status() const { return status_; }

 private:
  std::optional<int64_t> CheckedInt(const nlohmann::json& value, const char* key, IntLimits limits);

  const nlohmann::json& object_;
  const std::string where_;
  absl::Status status_;
};

// Text from outside as a message may show it: 'text', cut short and without control characters.
std::string Quoted(const std::string& text);

// Unimplemented: "WHERE: what".
absl::Status Unsupported(const JsonFields& fields, const std::string& what);

}  // namespace millrace

#endif  // ENGINE_CONFIG_JSON_FIELDS_H_
