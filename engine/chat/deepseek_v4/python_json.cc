#include "engine/chat/deepseek_v4/python_json.h"

#include <array>
#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"
#include "engine/chat/deepseek_v4/python_json_reader.h"

namespace millrace::deepseek_v4 {
namespace {

void AppendDump(const PythonJson& value, std::string* out) {
  switch (value.kind) {
    case PythonJson::Kind::kNull:
      *out += "null";
      return;
    case PythonJson::Kind::kBool:
    case PythonJson::Kind::kNumber:
      *out += value.text;
      return;
    case PythonJson::Kind::kString:
      AppendJsonString(value.text, out);
      return;
    case PythonJson::Kind::kArray:
      *out += '[';
      for (size_t i = 0; i < value.elements.size(); ++i) {
        if (i > 0) *out += ", ";
        AppendDump(value.elements[i], out);
      }
      *out += ']';
      return;
    case PythonJson::Kind::kObject:
      *out += '{';
      for (size_t i = 0; i < value.members.size(); ++i) {
        if (i > 0) *out += ", ";
        AppendJsonString(value.members[i].key, out);
        *out += ": ";
        AppendDump(value.members[i].value, out);
      }
      *out += '}';
      return;
  }
}

}  // namespace

absl::StatusOr<PythonJson> PythonJson::Parse(std::string_view text) {
  return PythonJsonReader(text).Document();
}

std::string PythonJson::Dump() const {
  std::string out;
  AppendDump(*this, &out);
  return out;
}

bool PythonJson::IsTruthy() const {
  switch (kind) {
    case Kind::kNull:
      return false;
    case Kind::kBool:
      return text == "true";
    case Kind::kNumber:
      return text != "0" && text != "0.0" && text != "-0.0";
    case Kind::kString:
      return !text.empty();
    case Kind::kArray:
      return !elements.empty();
    case Kind::kObject:
      return !members.empty();
  }
  return false;
}

const PythonJson* PythonJson::Find(std::string_view key) const {
  for (const JsonMember& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

void AppendJsonString(std::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      case '\b':
        *out += "\\b";
        break;
      case '\f':
        *out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          *out += absl::StrFormat("\\u%04x", static_cast<unsigned>(c));
        } else {
          *out += c;
        }
    }
  }
  *out += '"';
}

std::string PythonFloat(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  // Python writes the shortest digits that read back as the same number, without an exponent
  // from 1e-4 up to 1e16.
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer.data(), end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace millrace::deepseek_v4
