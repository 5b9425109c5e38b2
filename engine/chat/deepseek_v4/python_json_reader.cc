#include "engine/chat/deepseek_v4/python_json_reader.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/core/status.h"

namespace millrace::deepseek_v4 {
namespace {

using Kind = PythonJson::Kind;

constexpr int kMaxDepth = 500;          // Python's own recursion limit is not far above
constexpr size_t kMaxIntDigits = 4300;  // Python's sys.int_info.default_max_str_digits

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

absl::Status PythonJsonReader::Error(std::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat("not JSON at byte ", at_, ": ", absl::string_view(what.data(), what.size())));
}

void PythonJsonReader::SkipBlanks() {
  while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string::npos) {
    ++at_;
  }
}

size_t PythonJsonReader::SkipDigits() {
  const size_t begin = at_;
  while (IsDigit(Peek())) ++at_;
  return at_ - begin;
}

bool PythonJsonReader::Take(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

absl::StatusOr<PythonJson> PythonJsonReader::Document() {
  if (const size_t bad = FindInvalidUtf8(text_); bad != std::string_view::npos) {
    at_ = bad;
    return Error("bytes that are not UTF-8");
  }
  PythonJson value;
  SkipBlanks();
  RETURN_IF_ERROR(Value(0, &value));
  SkipBlanks();
  if (at_ < text_.size()) return Error("more text behind the value");
  return value;
}

absl::Status PythonJsonReader::Value(int depth, PythonJson* out) {
  if (depth > kMaxDepth) return Error(absl::StrCat("more than ", kMaxDepth, " levels"));
  const char first = Peek();
  if (first == '{') return Object(depth, out);
  if (first == '[') return Array(depth, out);
  if (first == '"') {
    out->kind = Kind::kString;
    return String(&out->text);
  }
  if (Take("null")) return absl::OkStatus();
  for (const char* word : {"true", "false"}) {
    if (!Take(word)) continue;
    out->kind = Kind::kBool;
    out->text = word;
    return absl::OkStatus();
  }
  out->kind = Kind::kNumber;
  for (const char* word : {"NaN", "Infinity", "-Infinity"}) {
    if (!Take(word)) continue;
    out->text = word;
    return absl::OkStatus();
  }
  return Number(out);
}

absl::Status PythonJsonReader::Array(int depth, PythonJson* out) {
  out->kind = Kind::kArray;
  ++at_;
  SkipBlanks();
  if (Take("]")) return absl::OkStatus();
  for (;;) {
    RETURN_IF_ERROR(Value(depth + 1, &out->elements.emplace_back()));
    SkipBlanks();
    if (Take("]")) return absl::OkStatus();
    if (!Take(",")) return Error("want , or ] in an array");
    SkipBlanks();
  }
}

absl::Status PythonJsonReader::Object(int depth, PythonJson* out) {
  out->kind = Kind::kObject;
  absl::flat_hash_map<std::string, size_t> places;
  ++at_;
  SkipBlanks();
  if (Take("}")) return absl::OkStatus();
  for (;;) {
    if (Peek() != '"') return Error("want a key in quotes");
    JsonMember member;
    RETURN_IF_ERROR(String(&member.key));
    SkipBlanks();
    if (!Take(":")) return Error("want : behind a key");
    SkipBlanks();
    RETURN_IF_ERROR(Value(depth + 1, &member.value));
    const auto [place, is_new] = places.emplace(member.key, out->members.size());
    if (is_new) {
      out->members.push_back(std::move(member));
    } else {
      out->members[place->second].value = std::move(member.value);
    }
    SkipBlanks();
    if (Take("}")) return absl::OkStatus();
    if (!Take(",")) return Error("want , or } in an object");
    SkipBlanks();
  }
}

absl::Status PythonJsonReader::Number(PythonJson* out) {
  const size_t begin = at_;
  Take("-");
  const bool leading_zero = Peek() == '0';
  const size_t digits = SkipDigits();
  if (digits == 0) return Error("want a value");
  if (leading_zero && digits > 1) return Error("a number that begins with 0");
  bool is_float = false;
  if (Take(".")) {
    is_float = true;
    if (SkipDigits() == 0) return Error("want a digit behind the point");
  }
  if (Take("e") || Take("E")) {
    is_float = true;
    if (!Take("-")) Take("+");
    if (SkipDigits() == 0) return Error("want a digit in the exponent");
  }
  const std::string number(text_.substr(begin, at_ - begin));
  if (is_float) {
    double value = 0;
    if (!absl::SimpleAtod(number, &value)) return Error("a number that cannot be read");
    out->text = PythonFloat(value);
  } else {
    if (digits > kMaxIntDigits) return Error("an integer of too many digits");
    out->text = number == "-0" ? "0" : number;
  }
  return absl::OkStatus();
}

absl::Status PythonJsonReader::String(std::string* out) {
  ++at_;
  for (;;) {
    if (at_ == text_.size()) return Error("a string without an end");
    const char c = text_[at_];
    if (static_cast<unsigned char>(c) < 0x20) return Error("a control character in a string");
    ++at_;
    if (c == '"') return absl::OkStatus();
    if (c == '\\') {
      RETURN_IF_ERROR(Escape(out));
    } else {
      *out += c;
    }
  }
}

absl::Status PythonJsonReader::Escape(std::string* out) {
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
  if (const size_t name = kNames.find(Peek()); name != std::string_view::npos) {
    ++at_;
    *out += kMeant[name];
    return absl::OkStatus();
  }
  if (!Take("u")) return Error("an unknown escape");
  ASSIGN_OR_RETURN(char32_t code, FourHexDigits());
  if (code >= 0xD800 && code < 0xE000) {
    char32_t low = 0;
    if (code < 0xDC00 && Take("\\u")) {
      ASSIGN_OR_RETURN(low, FourHexDigits());
    }
    if (low < 0xDC00 || low >= 0xE000) return Error("half a surrogate pair");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  AppendUtf8(code, out);
  return absl::OkStatus();
}

absl::StatusOr<char32_t> PythonJsonReader::FourHexDigits() {
  char32_t code = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = Peek();
    if (IsDigit(c)) {
      code = code * 16 + static_cast<char32_t>(c - '0');
    } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
      code = code * 16 + static_cast<char32_t>((c | 0x20) - 'a' + 10);
    } else {
      return Error("want four hex digits behind \\u");
    }
    ++at_;
  }
  return code;
}

}  // namespace millrace::deepseek_v4
