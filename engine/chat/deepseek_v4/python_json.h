// JSON as Python's json module reads and writes it. The model was trained on tool schemas and
// arguments that went through that module, so prompts must print numbers, escapes and separators
// as it does, with the keys in the order in which they came.
#ifndef ENGINE_CHAT_DEEPSEEK_V4_PYTHON_JSON_H_
#define ENGINE_CHAT_DEEPSEEK_V4_PYTHON_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace millrace::deepseek_v4 {

struct JsonMember;

// A value.
struct PythonJson {
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };

  // json.loads: also NaN, Infinity, integers of any size (up to 4300 digits, as in Python) and
  // keys that come twice, of which the last value stays in the first place. InvalidArgument
  // naming the byte: anything else, half a surrogate pair, and more than 500 levels of nesting.
  static absl::StatusOr<PythonJson> Parse(std::string_view text);

  // json.dumps(value, ensure_ascii=False): on one line, ", " and ": " between.
  std::string Dump() const;

  bool is_null() const { return kind == Kind::kNull; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_object() const { return kind == Kind::kObject; }
  // bool(value): false for null, false, 0, and what is empty.
  bool IsTruthy() const;
  // The member of an object; null when there is none or this is no object.
  const PythonJson* Find(std::string_view key) const;

  Kind kind = Kind::kNull;
  std::string text;  // kString: its characters; kNumber, kBool: as they are printed
  std::vector<PythonJson> elements;
  std::vector<JsonMember> members;
};

struct JsonMember {
  std::string key;
  PythonJson value;
};

// `text` in quotes, with the escapes of json.dumps(text, ensure_ascii=False).
void AppendJsonString(std::string_view text, std::string* out);

}  // namespace millrace::deepseek_v4

#endif  // ENGINE_CHAT_DEEPSEEK_V4_PYTHON_JSON_H_
