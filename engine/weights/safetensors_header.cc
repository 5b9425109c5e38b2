#include "engine/weights/safetensors_header.h"

#include <limits>
#include <unordered_set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

// Walks the header event by event, so that a hostile one costs no tree. A handler returns false at
// the first fault, which stops the parser.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override {
    // The parser gives non-negative numbers to number_unsigned.
    return Unexpected(absl::StrCat(value));
  }
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t, const string_t& text) override {
    return Unexpected(absl::StrCat("the number ", text.substr(0, 40)));
  }
  bool string(string_t& value) override;
  bool binary(binary_t&) override { return Unexpected("binary"); }
  bool start_object(size_t) override;
  bool key(string_t& value) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;
  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    return Fail(absl::StrCat("header is not valid JSON at byte ", position, ": ", error.what()));
  }

  const std::string& fault() const { return fault_; }
  std::vector<HeaderEntry> TakeEntries() { return std::move(entries_); }

 private:
  // Where the parser stands.
  enum class Place { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kEnd };
  enum class Field { kNone, kDType, kShape, kOffsets };

  bool Fail(std::string fault) {
    if (fault_.empty()) fault_ = std::move(fault);
    return false;
  }
  bool Unexpected(const std::string& what);
  bool TensorKey(const std::string& key);
  HeaderEntry& entry() { return entries_.back(); }

  Place place_ = Place::kStart;
  Field field_ = Field::kNone;  // in kTensor: whose value comes next
  bool metadata_next_ = false;  // in kRoot: the object that comes is __metadata__
  bool has_dtype_ = false;
  bool has_shape_ = false;
  int num_offsets_ = -1;  // -1: no data_offsets yet
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> metadata_keys_;
  std::vector<HeaderEntry> entries_;
  std::string fault_;
};

bool HeaderReader::Unexpected(const std::string& what) {
  switch (place_) {
    case Place::kStart:
    case Place::kEnd:
      return Fail(absl::StrCat("header is ", what, ", want an object"));
    case Place::kRoot:
      if (metadata_next_) return Fail(absl::StrCat("__metadata__ is ", what, ", want an object"));
      return Fail(
          absl::StrCat("tensor ", QuotedTensor(entry().name), " is ", what, ", want an object"));
    case Place::kMetadata:
      return Fail(absl::StrCat("__metadata__ holds ", what, ", want strings only"));
    case Place::kTensor:
    case Place::kShape:
    case Place::kOffsets:
      break;
  }
  const char* field = "dtype";
  const char* want = "a string";
  if (field_ == Field::kShape) field = "shape", want = "a list of sizes";
  if (field_ == Field::kOffsets) field = "data_offsets", want = "two byte positions";
  return Fail(absl::StrCat("tensor ", QuotedTensor(entry().name), ": ", field, " holds ", what,
                           ", want ", want));
}

bool HeaderReader::number_unsigned(number_unsigned_t value) {
  if (place_ != Place::kShape && place_ != Place::kOffsets) return Unexpected(absl::StrCat(value));
  if (value > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return Fail(absl::StrCat("tensor ", QuotedTensor(entry().name), ": ", value, " in ",
                             place_ == Place::kShape ? "shape" : "data_offsets", " is too large"));
  }
  const auto number = static_cast<int64_t>(value);
  if (place_ == Place::kShape) {
    entry().shape.push_back(number);
    return true;
  }
  if (num_offsets_ >= 2) return Unexpected("more than two numbers");
  (num_offsets_ == 0 ? entry().begin : entry().end) = number;
  ++num_offsets_;
  return true;
}

bool HeaderReader::string(string_t& value) {
  if (place_ == Place::kMetadata) return true;
  if (place_ != Place::kTensor || field_ != Field::kDType) return Unexpected("a string");
  entry().dtype = std::move(value);
  has_dtype_ = true;
  return true;
}

bool HeaderReader::start_object(size_t) {
  if (place_ == Place::kStart) {
    place_ = Place::kRoot;
    return true;
  }
  if (place_ != Place::kRoot) return Unexpected("an object");
  place_ = metadata_next_ ? Place::kMetadata : Place::kTensor;
  has_dtype_ = has_shape_ = false;
  num_offsets_ = -1;
  return true;
}

bool HeaderReader::TensorKey(const std::string& key) {
  bool repeated = false;
  if (key == "dtype") {
    field_ = Field::kDType;
    repeated = has_dtype_;
  } else if (key == "shape") {
    field_ = Field::kShape;
    repeated = has_shape_;
  } else if (key == "data_offsets") {
    field_ = Field::kOffsets;
    repeated = num_offsets_ >= 0;
  } else {
    return Fail(
        absl::StrCat("tensor ", QuotedTensor(entry().name), ": unknown key ", QuotedTensor(key)));
  }
  if (!repeated) return true;
  return Fail(absl::StrCat("tensor ", QuotedTensor(entry().name), ": key '", key, "' twice"));
}

bool HeaderReader::key(string_t& value) {
  if (place_ == Place::kTensor) return TensorKey(value);
  if (place_ == Place::kMetadata) {
    if (metadata_keys_.insert(value).second) return true;
    return Fail(absl::StrCat("__metadata__: key ", QuotedTensor(value), " twice"));
  }
  if (!names_.insert(value).second) {
    return Fail(absl::StrCat("key ", QuotedTensor(value), " twice"));
  }
  metadata_next_ = value == "__metadata__";
  if (!metadata_next_) entries_.push_back({.name = std::move(value)});
  return true;
}

bool HeaderReader::end_object() {
  if (place_ == Place::kTensor) {
    const char* missing = nullptr;
    if (!has_dtype_) missing = "dtype";
    if (!has_shape_) missing = "shape";
    if (num_offsets_ < 0) missing = "data_offsets";
    if (missing != nullptr) {
      return Fail(absl::StrCat("tensor ", QuotedTensor(entry().name), ": no ", missing));
    }
  }
  place_ = place_ == Place::kRoot ? Place::kEnd : Place::kRoot;
  return true;
}

bool HeaderReader::start_array(size_t) {
  if (place_ == Place::kTensor && field_ == Field::kShape) {
    place_ = Place::kShape;
    has_shape_ = true;
    return true;
  }
  if (place_ == Place::kTensor && field_ == Field::kOffsets) {
    place_ = Place::kOffsets;
    num_offsets_ = 0;
    return true;
  }
  return Unexpected("a list");
}

bool HeaderReader::end_array() {
  if (place_ == Place::kOffsets && num_offsets_ != 2) {
    return Unexpected(absl::StrCat("a list of ", num_offsets_));
  }
  place_ = Place::kTensor;
  return true;
}

}  // namespace

absl::StatusOr<std::vector<HeaderEntry>> ParseSafetensorsHeader(std::string_view text) {
  // The parser itself would skip white space and a byte order mark.
  if (text.empty() || text.front() != '{') {
    return absl::InvalidArgumentError("header does not start with '{'");
  }
  HeaderReader reader;
  if (!Json::sax_parse(text.begin(), text.end(), &reader)) {
    return absl::InvalidArgumentError(reader.fault());
  }
  return reader.TakeEntries();
}

std::string QuotedTensor(std::string_view name) {
  constexpr size_t kMaxShown = 120;
  const std::string shown(name.substr(0, kMaxShown));
  return absl::StrCat("'", absl::Utf8SafeCHexEscape(shown), name.size() > kMaxShown ? "...'" : "'");
}

}  // namespace millrace
