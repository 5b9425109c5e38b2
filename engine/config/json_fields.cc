#include "engine/config/json_fields.h"

#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/check.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;
constexpr size_t kMaxListLength = 1024;

// A value as it is shown in a message.
std::string Shown(const Json& value) {
  constexpr size_t kMaxShown = 60;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

// Watches the parser: depth and repeated keys, which the parser itself takes in silence.
class StructureWatch {
 public:
  // False drops the value: after a complaint nothing more is built, whatever the file's size.
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (!complaint_.empty()) return false;
    if (depth > kMaxDepth) complaint_ = absl::StrCat("nested deeper than ", kMaxDepth);
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        complaint_ = absl::StrCat("key '", absl::Utf8SafeCHexEscape(key.substr(0, 100)), "' twice");
      }
    }
    return complaint_.empty();
  }
  const std::string& complaint() const { return complaint_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string complaint_;
};

}  // namespace

absl::StatusOr<Json> ParseJsonObject(std::string_view text, const std::string& where) {
  StructureWatch watch;
  Json root;
  try {
    root = Json::parse(text.begin(), text.end(),
                       [&watch](int depth, Json::parse_event_t event, Json& parsed) {
                         return watch(depth, event, parsed);
                       });
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": not valid JSON: ", error.what()));
  }
  if (!watch.complaint().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", watch.complaint()));
  }
  if (!root.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": is not a JSON object"));
  }
  return root;
}

JsonFields::JsonFields(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  MR_CHECK(object.is_object());
}

const Json* JsonFields::Find(const char* key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void JsonFields::Fail(const char* key, const std::string& reason) {
  if (status_.ok()) {
    status_ = absl::InvalidArgumentError(absl::StrCat(where_, ": ", key, ": ", reason));
  }
}

std::optional<int64_t> JsonFields::CheckedInt(const Json& value, const char* key,
                                              IntLimits limits) {
  // An unsigned value past int64 would turn negative: it is out of every range of ours.
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() &&
                      value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()});
  if (fits) {
    const auto number = value.get<int64_t>();
    if (number >= limits.min && number <= limits.max) return number;
  }
  Fail(key, absl::StrCat(Shown(value), ", want an integer from ", limits.min, " to ", limits.max));
  return std::nullopt;
}

std::optional<int64_t> JsonFields::Int(const char* key, IntLimits limits) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  return CheckedInt(*value, key, limits);
}

int64_t JsonFields::RequiredInt(const char* key, IntLimits limits) {
  if (Find(key) == nullptr) Fail(key, "is missing");
  return Int(key, limits).value_or(0);
}

std::optional<double> JsonFields::Number(const char* key, NumberLimits limits) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const auto number = value->get<double>();
    if (number >= limits.min && number <= limits.max) return number;  // false for NaN
  }
  Fail(key, absl::StrCat(Shown(*value), ", want a number from ", limits.min, " to ", limits.max));
  return std::nullopt;
}

std::optional<bool> JsonFields::Bool(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Fail(key, absl::StrCat(Shown(*value), ", want true or false"));
  return std::nullopt;
}

std::optional<std::string> JsonFields::String(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Fail(key, absl::StrCat(Shown(*value), ", want a string"));
  return std::nullopt;
}

std::vector<std::string> JsonFields::Strings(const char* key) {
  std::vector<std::string> strings;
  const Json* value = Find(key);
  if (value == nullptr) return strings;
  if (!value->is_array() || value->size() > kMaxListLength) {
    Fail(key, absl::StrCat(Shown(*value), ", want a list of at most ", kMaxListLength, " strings"));
    return strings;
  }
  for (const Json& item : *value) {
    if (!item.is_string()) {
      Fail(key, absl::StrCat("holds ", Shown(item), ", want strings"));
      return strings;
    }
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

std::vector<int32_t> JsonFields::IntOrInts(const char* key, IntLimits limits) {
  std::vector<int32_t> numbers;
  const Json* value = Find(key);
  if (value == nullptr) return numbers;
  if (!value->is_array()) {
    if (const auto number = CheckedInt(*value, key, limits)) {
      numbers.push_back(static_cast<int32_t>(*number));
    }
    return numbers;
  }
  if (value->size() > kMaxListLength) {
    Fail(key, absl::StrCat("a list of ", value->size(), ", limit ", kMaxListLength));
    return numbers;
  }
  for (const Json& item : *value) {
    if (const auto number = CheckedInt(item, key, limits)) {
      numbers.push_back(static_cast<int32_t>(*number));
    }
  }
  return numbers;
}

const Json* JsonFields::Object(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr || value->is_object()) return value;
  Fail(key, absl::StrCat(Shown(*value), ", want an object"));
  return nullptr;
}

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::Utf8SafeCHexEscape(text.substr(0, 100)), "'");
}

absl::Status Unsupported(const JsonFields& fields, const std::string& what) {
  return absl::UnimplementedError(absl::StrCat(fields.where(), ": ", what));
}

}  // namespace millrace
