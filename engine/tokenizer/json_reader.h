// Typed access to parsed JSON whose author is not trusted: each answer is a Status that names the
// place, never an exception.
#ifndef ENGINE_TOKENIZER_JSON_READER_H_
#define ENGINE_TOKENIZER_JSON_READER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace millrace {

using Json = nlohmann::json;

// A value and the path that leads to it, for messages: "pre_tokenizer.pretokenizers[2]".
// Refers to the document, which must outlive it. A member that is missing reads as null.
class JsonRef {
 public:
  JsonRef(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const Json& value() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_->is_null(); }

  // REQUIRES: the value is an object or null.
  JsonRef Member(const char* key) const;
  // REQUIRES: the value is an array with more than `index` elements.
  JsonRef Element(size_t index) const;

  // InvalidArgument: path, what is wanted, what is there.
  absl::Status Wants(std::string_view what) const;
  absl::Status Error(std::string_view message) const;

  absl::Status CheckObject() const;
  absl::Status CheckArray() const;
  absl::StatusOr<std::string> String() const;
  absl::StatusOr<bool> Bool() const;
  absl::StatusOr<bool> BoolOr(bool missing) const;
  // An integer in [0, limit).
  absl::StatusOr<int64_t> IndexBelow(int64_t limit) const;
  // The member "type" of an object.
  absl::StatusOr<std::string> Type() const;

 private:
  const Json* value_;
  std::string path_;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_JSON_READER_H_
