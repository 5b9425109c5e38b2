#include "engine/weights/shard_index.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/config/json_fields.h"
#include "engine/weights/safetensors_header.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr size_t kMaxFileName = 255;

bool IsPlainFileName(const std::string& name) {
  if (name.empty() || name.size() > kMaxFileName || name.front() == '.') return false;
  for (const char c : name) {
    if (c == '/' || c == '\\' || static_cast<unsigned char>(c) < ' ') return false;
  }
  return absl::EndsWith(name, ".safetensors");
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> ParseShardIndex(std::string_view json,
                                                                   const std::string& where) {
  ASSIGN_OR_RETURN(const nlohmann::json root, ParseJsonObject(json, where));
  JsonFields fields(root, where);
  const nlohmann::json* weight_map = fields.Object("weight_map");
  if (weight_map == nullptr) fields.Fail("weight_map", "is missing");
  RETURN_IF_ERROR(fields.status());
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : weight_map->items()) {
    if (!file.is_string() || !IsPlainFileName(file.get_ref<const std::string&>())) {
      const std::string shown =
          file.is_string() ? QuotedTensor(file.get_ref<const std::string&>()) : "not a string";
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": weight_map: tensor ", QuotedTensor(tensor), ": its file is ",
                       shown, ", want the plain name of a .safetensors file in this folder"));
    }
    files.emplace(tensor, file.get<std::string>());
  }
  return files;
}

absl::Status CheckInsideFolder(const std::string& dir, const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::canonical(dir, error);
  if (error) return absl::OkStatus();
  const fs::path file = fs::canonical(folder / name, error);
  if (error) return absl::OkStatus();
  if (file.parent_path() == folder) return absl::OkStatus();
  if (folder.parent_path().filename() == "snapshots" &&
      file.parent_path() == folder.parent_path().parent_path() / "blobs") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(dir, "/", name,
                                                 ": is a link out of the folder, to ",
                                                 file.string(), "; put the file itself there"));
}

}  // namespace millrace
