#include "tools/weights/shard_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kHeaderAlignment = 8;

}  // namespace

int64_t OutputTensor::bytes() const {
  int64_t bits = FileDTypeBits(dtype);
  for (const int64_t extent : shape) bits *= extent;
  return bits / 8;
}

ShardWriter::ShardWriter(std::string dir, std::vector<OutputTensor> tensors,
                         int64_t max_shard_bytes)
    : dir_(std::move(dir)), tensors_(std::move(tensors)) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const int64_t bytes = tensors_[i].bytes();
    if (shards_.empty() || shards_.back().bytes + bytes > max_shard_bytes) {
      shards_.push_back({.begin = i, .end = i});
    }
    shards_.back().end = i + 1;
    shards_.back().bytes += bytes;
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].file = shards_.size() == 1 ? "model.safetensors"
                                          : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1,
                                                            shards_.size());
  }
}

std::string ShardWriter::Header(const Shard& shard) const {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t offset = 0;
  for (size_t i = shard.begin; i < shard.end; ++i) {
    const OutputTensor& tensor = tensors_[i];
    const int64_t end = offset + tensor.bytes();
    header[tensor.name] = {{"dtype", std::string(FileDTypeName(tensor.dtype))},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kHeaderAlignment - text.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  std::string length;
  for (int shift = 0; shift < 64; shift += 8) {
    length.push_back(static_cast<char>(static_cast<uint64_t>(text.size()) >> shift));
  }
  return length + text;
}

absl::Status ShardWriter::OpenNext() {
  MR_CHECK_LT(next_, shards_.size());
  const Shard& shard = shards_[next_++];
  const std::string path = absl::StrCat(dir_, "/", shard.file);
  file_.open(path, std::ios::binary | std::ios::trunc);
  const std::string header = Header(shard);
  file_.write(header.data(), static_cast<std::streamsize>(header.size()));
  left_ = shard.bytes;
  if (!file_.good()) return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  return absl::OkStatus();
}

absl::Status ShardWriter::CloseFile() {
  if (!file_.is_open()) return absl::OkStatus();
  file_.close();
  if (file_.good()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(dir_, "/", shards_[next_ - 1].file, ": cannot be written: is the disk full?"));
}

absl::Status ShardWriter::Append(absl::Span<const std::byte> bytes) {
  while (!bytes.empty()) {
    while (left_ == 0) {
      RETURN_IF_ERROR(CloseFile());
      RETURN_IF_ERROR(OpenNext());
    }
    const auto part = std::min(bytes.size(), static_cast<size_t>(left_));
    file_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(part));
    if (!file_.good()) return CloseFile();
    left_ -= static_cast<int64_t>(part);
    bytes.remove_prefix(part);
  }
  return absl::OkStatus();
}

absl::Status ShardWriter::Finish() {
  MR_CHECK_EQ(left_, 0);
  RETURN_IF_ERROR(CloseFile());
  // Shards without a byte are left: their tensors are empty.
  while (next_ < shards_.size()) {
    RETURN_IF_ERROR(OpenNext());
    MR_CHECK_EQ(left_, 0);
    RETURN_IF_ERROR(CloseFile());
  }
  return shards_.size() > 1 ? WriteIndex() : absl::OkStatus();
}

absl::Status ShardWriter::WriteIndex() const {
  Json weight_map = Json::object();
  int64_t total = 0;
  for (const Shard& shard : shards_) {
    total += shard.bytes;
    for (size_t i = shard.begin; i < shard.end; ++i) weight_map[tensors_[i].name] = shard.file;
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  const std::string path = absl::StrCat(dir_, "/model.safetensors.index.json");
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << index.dump(2) << "\n";
  file.close();
  if (file.good()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
}

}  // namespace millrace
