#include "tools/weights/inspect_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace millrace {
namespace {

// Pads numbers with zeros, so that they sort by value.
std::string NaturalKey(std::string_view name) {
  constexpr size_t kDigits = 20;
  std::string key;
  for (size_t i = 0; i < name.size();) {
    size_t end = i;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end]))) ++end;
    if (end == i) {
      key.push_back(name[i++]);
      continue;
    }
    key.append(kDigits - std::min(kDigits, end - i), '0').append(name.substr(i, end - i));
    i = end;
  }
  return key;
}

struct Row {
  std::string name, dtype, shape, bytes;
};

}  // namespace

std::string BytesText(int64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string InspectTable(const Checkpoint& checkpoint) {
  std::map<std::string, Row> rows;  // by natural key and name
  std::map<std::string, int64_t> elements_by_dtype;
  Row width = {"tensor", "dtype", "shape", "bytes"};
  const Row title = width;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const std::string dtype(FileDTypeName(tensor->dtype));
    Row row = {absl::Utf8SafeCHexEscape(name), dtype, ShapeString(tensor->shape),
               BytesText(static_cast<int64_t>(tensor->data.size()))};
    elements_by_dtype[dtype] += tensor->num_elements();
    for (std::string Row::*cell : {&Row::name, &Row::dtype, &Row::shape, &Row::bytes}) {
      if ((row.*cell).size() > (width.*cell).size()) width.*cell = row.*cell;
    }
    rows.emplace(NaturalKey(name) + '\0' + name, std::move(row));
  }
  std::string text;
  const auto add = [&](const Row& row) {
    absl::StrAppendFormat(&text, "%-*s  %-*s  %-*s  %*s\n", width.name.size(), row.name,
                          width.dtype.size(), row.dtype, width.shape.size(), row.shape,
                          width.bytes.size(), row.bytes);
  };
  add(title);
  for (const auto& [key, row] : rows) add(row);
  text += "\n";
  for (const auto& file : checkpoint.files()) {
    absl::StrAppend(&text, file->path(), ": ", file->tensors().size(), " tensors, ",
                    BytesText(file->file_bytes()), "\n");
  }
  absl::StrAppend(&text, rows.size(), " tensors, ", BytesText(checkpoint.total_bytes()));
  for (const auto& [dtype, count] : elements_by_dtype) {
    absl::StrAppend(&text, ", ", count, " elements of ", dtype);
  }
  return text + "\n";
}

}  // namespace millrace
