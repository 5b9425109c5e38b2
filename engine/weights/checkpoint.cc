#include "engine/weights/checkpoint.h"

#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/config/read_file.h"
#include "engine/weights/safetensors_header.h"
#include "engine/weights/sha256.h"
#include "engine/weights/shard_index.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr int64_t kMaxIndexBytes = 100'000'000;
constexpr int64_t kMaxConfigBytes = 16 << 20;

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

Checkpoint::Checkpoint(std::string dir) : dir_(std::move(dir)) {}

absl::Status Checkpoint::AddFile(const std::string& name) {
  RETURN_IF_ERROR(CheckInsideFolder(dir_, name));
  ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(dir_ + "/" + name));
  for (const TensorInfo& tensor : file->tensors()) {
    if (!tensors_.emplace(tensor.name, &tensor).second) {
      return absl::InvalidArgumentError(absl::StrCat(file->path(), ": tensor ",
                                                     QuotedTensor(tensor.name), " is also in ",
                                                     file_of_.find(tensor.name)->second));
    }
    file_of_.emplace(tensor.name, name);
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& dir) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint(dir));
  if (Exists(absl::StrCat(dir, "/", kSingleFile))) {
    RETURN_IF_ERROR(checkpoint->AddFile(kSingleFile));
    return checkpoint;
  }
  const std::string index_path = absl::StrCat(dir, "/", kIndexFile);
  const absl::StatusOr<std::string> text = ReadFile(index_path, kMaxIndexBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat(dir, ": neither ", kSingleFile, " nor ", kIndexFile,
                                            " is there; weights are read from safetensors only"));
  }
  RETURN_IF_ERROR(text.status());
  using Index = std::map<std::string, std::string>;
  ASSIGN_OR_RETURN(const Index index, ParseShardIndex(*text, index_path));
  std::set<std::string> shards;
  for (const auto& [tensor, file] : index) shards.insert(file);
  for (const std::string& shard : shards) RETURN_IF_ERROR(checkpoint->AddFile(shard));
  for (const auto& [tensor, file] : index) {
    const auto it = checkpoint->file_of_.find(tensor);
    if (it == checkpoint->file_of_.end() || it->second != file) {
      return absl::InvalidArgumentError(absl::StrCat(
          index_path, ": tensor ", QuotedTensor(tensor), " should be in ", file, ", but is ",
          it == checkpoint->file_of_.end() ? "nowhere" : absl::StrCat("in ", it->second)));
    }
  }
  return checkpoint;
}

std::string Checkpoint::FileOf(std::string_view name) const {
  const auto it = file_of_.find(name);
  return it == file_of_.end() ? dir_ : absl::StrCat(dir_, "/", it->second);
}

const TensorInfo* Checkpoint::Find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : it->second;
}

int64_t Checkpoint::total_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_) bytes += static_cast<int64_t>(tensor->data.size());
  return bytes;
}

absl::StatusOr<std::string> Checkpoint::Fingerprint() const {
  ASSIGN_OR_RETURN(const std::string config, ReadFile(dir_ + "/config.json", kMaxConfigBytes));
  Sha256 sum;
  sum.AddField(config);
  for (const std::unique_ptr<SafetensorsFile>& file : files_) {
    sum.AddField(std::filesystem::path(file->path()).filename().string());
    sum.AddField(file->file_bytes());
    sum.Add(file->header());
  }
  return sum.Hex();
}

}  // namespace millrace
