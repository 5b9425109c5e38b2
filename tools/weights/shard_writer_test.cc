#include "tools/weights/shard_writer.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/weights/checkpoint.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

std::string MakeFolder(const std::string& name) {
  const std::string dir = ::testing::TempDir() + "/" + name;
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  return dir;
}

std::vector<OutputTensor> Tensors() {
  return {{"b", FileDType::kBF16, {3, 2}},  // 12 bytes
          {"a\"quoted", FileDType::kU8, {5}},
          {"scalar", FileDType::kF32, {}},
          {"empty", FileDType::kF32, {0, 7}}};
}

// Appends 0, 1, 2, ... in pieces of `piece` bytes, across tensors and shards.
absl::Status WriteCounting(const std::string& dir, int64_t max_shard_bytes, size_t piece) {
  ShardWriter writer(dir, Tensors(), max_shard_bytes);
  std::vector<std::byte> data(21);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  for (size_t i = 0; i < data.size(); i += piece) {
    const absl::Status status = writer.Append(absl::MakeConstSpan(data).subspan(i, piece));
    if (!status.ok()) return status;
  }
  return writer.Finish();
}

void ExpectCounting(const std::string& dir) {
  const auto checkpoint = Checkpoint::Open(dir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  int next = 0;
  for (const OutputTensor& want : Tensors()) {
    const TensorInfo* const tensor = (*checkpoint)->Find(want.name);
    ASSERT_NE(tensor, nullptr) << want.name;
    EXPECT_EQ(tensor->dtype, want.dtype);
    EXPECT_EQ(tensor->shape, want.shape);
    for (const std::byte byte : tensor->data) EXPECT_EQ(static_cast<int>(byte), next++);
  }
  EXPECT_EQ(next, 21);
}

TEST(ShardWriter, OneFile) {
  const std::string dir = MakeFolder("one_file");
  ASSERT_TRUE(WriteCounting(dir, 21, 4).ok());
  EXPECT_TRUE(std::filesystem::exists(dir + "/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(dir + "/model.safetensors.index.json"));
  ExpectCounting(dir);
}

TEST(ShardWriter, ShardsAndIndex) {
  for (const size_t piece : {1u, 7u, 21u}) {
    const std::string dir = MakeFolder("shards");
    // The first is larger than a shard; the last has no byte.
    ASSERT_TRUE(WriteCounting(dir, 5, piece).ok());
    EXPECT_TRUE(std::filesystem::exists(dir + "/model-00001-of-00003.safetensors"));
    EXPECT_FALSE(std::filesystem::exists(dir + "/model.safetensors"));
    ExpectCounting(dir);
  }
}

TEST(ShardWriter, FolderThatCannotBeWritten) {
  const absl::Status status = WriteCounting(::testing::TempDir() + "/is_missing", 100, 21);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

}  // namespace
}  // namespace millrace
