#include "engine/tokenizer/json_reader.h"

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

const Json& Null() {
  static const Json* const null = new Json();
  return *null;
}

}  // namespace

JsonRef JsonRef::Member(const char* key) const {
  const std::string path = path_.empty() ? key : absl::StrCat(path_, ".", key);
  if (!value_->is_object()) return JsonRef(Null(), path);
  const auto found = value_->find(key);
  return JsonRef(found == value_->end() ? Null() : *found, path);
}

JsonRef JsonRef::Element(size_t index) const {
  return JsonRef((*value_)[index], absl::StrCat(path_, "[", index, "]"));
}

absl::Status JsonRef::Wants(std::string_view what) const {
  return Error(absl::StrCat("want ", std::string(what), ", have ", value_->type_name()));
}

absl::Status JsonRef::Error(std::string_view message) const {
  return absl::InvalidArgumentError(
      absl::StrCat(path_.empty() ? "document" : path_, ": ", std::string(message)));
}

absl::Status JsonRef::CheckObject() const {
  return value_->is_object() ? absl::OkStatus() : Wants("an object");
}

absl::Status JsonRef::CheckArray() const {
  return value_->is_array() ? absl::OkStatus() : Wants("an array");
}

absl::StatusOr<std::string> JsonRef::String() const {
  if (!value_->is_string()) return Wants("a string");
  return value_->get_ref<const std::string&>();
}

absl::StatusOr<bool> JsonRef::Bool() const {
  if (!value_->is_boolean()) return Wants("true or false");
  return value_->get<bool>();
}

absl::StatusOr<bool> JsonRef::BoolOr(bool missing) const {
  if (is_null()) return missing;
  return Bool();
}

absl::StatusOr<int64_t> JsonRef::IndexBelow(int64_t limit) const {
  if (!value_->is_number_integer()) return Wants("an integer");
  const bool too_large =
      value_->is_number_unsigned() && value_->get<uint64_t>() >= static_cast<uint64_t>(limit);
  if (too_large || value_->get<int64_t>() < 0) {
    return Error(absl::StrCat(value_->dump(), " is not in [0, ", limit, ")"));
  }
  return value_->get<int64_t>();
}

absl::StatusOr<std::string> JsonRef::Type() const {
  RETURN_IF_ERROR(CheckObject());
  return Member("type").String();
}

}  // namespace millrace
