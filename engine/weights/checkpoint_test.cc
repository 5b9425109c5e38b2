#include "engine/weights/checkpoint.h"

#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/weights/checkpoint_source.h"
#include "engine/weights/safetensors_writer.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = absl::StrCat(::testing::TempDir(), "/checkpoint_", info->name());
    fs::remove_all(root_);
    dir_ = root_ + "/model";
    fs::create_directories(dir_);
  }
  void Write(const std::string& name, const std::string& bytes) {
    WriteTestFile(dir_ + "/" + name, bytes);
  }
  std::string OneTensor(const std::string& name, float value) {
    return SafetensorsWriter().AddF32(name, {1}, {value}).Bytes();
  }
  void ExpectRefused(absl::StatusCode code, const std::vector<std::string>& words) {
    const absl::Status status = Checkpoint::Open(dir_).status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& word : words) {
      EXPECT_NE(std::string(status.message()).find(word), std::string::npos)
          << "'" << word << "' not in: " << status;
    }
  }
  std::string root_;
  std::string dir_;
};

TEST_F(CheckpointTest, OneFile) {
  Write("model.safetensors",
        SafetensorsWriter().AddF32("b", {2, 2}, {1, 2, 3, 4}).AddF32("a", {1}, {5}).Bytes());
  const auto checkpoint = Checkpoint::Open(dir_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->tensors().begin()->first, "a");
  EXPECT_EQ((*checkpoint)->total_bytes(), 20);
  ASSERT_NE((*checkpoint)->Find("b"), nullptr);
  EXPECT_EQ((*checkpoint)->Find("b")->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ((*checkpoint)->Find("c"), nullptr);
}

TEST_F(CheckpointTest, Shards) {
  Write("m-1.safetensors", OneTensor("a", 1));
  Write("m-2.safetensors", OneTensor("b", 2));
  Write(kIndex, R"({"metadata": {"total_size": 8},
                    "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
  const auto checkpoint = Checkpoint::Open(dir_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->tensors().size(), 2u);
  EXPECT_EQ((*checkpoint)->files().size(), 2u);
}

TEST_F(CheckpointTest, NothingThere) {
  ExpectRefused(absl::StatusCode::kNotFound, {dir_, "model.safetensors", kIndex});
  dir_ += "/none";
  ExpectRefused(absl::StatusCode::kNotFound, {dir_});
}

TEST_F(CheckpointTest, BrokenFileIsNamed) {
  const std::string good = OneTensor("a", 1);
  Write("model.safetensors", good.substr(0, good.size() - 1));
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                {dir_ + "/model.safetensors", "tensor 'a'", "cut short"});
}

TEST_F(CheckpointTest, BrokenIndex) {
  Write("m-1.safetensors", OneTensor("a", 1));
  const struct {
    const char* text;
    const char* reason;
  } kCases[] = {
      {"", "not valid JSON"},
      {"[]", "not a JSON object"},
      {"{}", "weight_map: is missing"},
      {R"({"weight_map": []})", "weight_map: a list"},
      {R"({"weight_map": {"a": 1}})", "tensor 'a': its file is not a string"},
      {R"({"weight_map": {"a": "m-1.safetensors", "a": "m-1.safetensors"}})", "key 'a' twice"},
      {R"({"weight_map": {"a": ""}})", "plain name"},
      {R"({"weight_map": {"a": ".."}})", "plain name"},
      {R"({"weight_map": {"a": "../m-1.safetensors"}})", "plain name"},
      {R"({"weight_map": {"a": "/etc/x.safetensors"}})", "plain name"},
      {R"({"weight_map": {"a": "d/m-1.safetensors"}})", "plain name"},
      {R"({"weight_map": {"a": "d\\m-1.safetensors"}})", "plain name"},
      {R"({"weight_map": {"a": "m\u0000.safetensors"}})", "plain name"},
      {R"({"weight_map": {"a": "pytorch_model.bin"}})", "plain name"},
      {R"({"weight_map": {"a": "m-2.safetensors"}})", "m-2.safetensors"},
  };
  for (const auto& c : kCases) {
    Write(kIndex, c.text);
    const absl::Status status = Checkpoint::Open(dir_).status();
    EXPECT_FALSE(status.ok()) << c.text;
    EXPECT_NE(std::string(status.message()).find(c.reason), std::string::npos) << status;
    EXPECT_NE(std::string(status.message()).find(dir_), std::string::npos) << status;
  }
}

TEST_F(CheckpointTest, IndexAndShardsDisagree) {
  Write("m-1.safetensors", OneTensor("a", 1));
  Write("m-2.safetensors", OneTensor("b", 2));
  Write(kIndex, R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors",
                                   "c": "m-2.safetensors"}})");
  ExpectRefused(absl::StatusCode::kInvalidArgument, {"tensor 'c'", "m-2.safetensors", "nowhere"});
  Write(kIndex, R"({"weight_map": {"a": "m-2.safetensors", "b": "m-1.safetensors"}})");
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                {"tensor 'a'", "should be in m-2.safetensors", "in m-1.safetensors"});
  Write("m-2.safetensors", OneTensor("a", 2));
  Write(kIndex, R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                {"m-2.safetensors: tensor 'a' is also in m-1.safetensors"});
}

TEST_F(CheckpointTest, LinksOutOfTheFolder) {
  WriteTestFile(root_ + "/outside.safetensors", OneTensor("a", 1));
  fs::create_symlink("../outside.safetensors", dir_ + "/model.safetensors");
  ExpectRefused(absl::StatusCode::kInvalidArgument, {dir_ + "/model.safetensors", "link out of"});
  fs::remove(dir_ + "/model.safetensors");

  fs::create_symlink("../outside.safetensors", dir_ + "/m-1.safetensors");
  Write(kIndex, R"({"weight_map": {"a": "m-1.safetensors"}})");
  ExpectRefused(absl::StatusCode::kInvalidArgument, {"m-1.safetensors", "link out of"});

  fs::remove(dir_ + "/m-1.safetensors");
  Write("real.safetensors", OneTensor("a", 1));
  fs::create_symlink("real.safetensors", dir_ + "/m-1.safetensors");
  EXPECT_TRUE(Checkpoint::Open(dir_).ok());

  // A folder that is itself reached through a link is fine.
  fs::create_symlink("model", root_ + "/alias");
  EXPECT_TRUE(Checkpoint::Open(root_ + "/alias").ok());
}

TEST_F(CheckpointTest, HuggingFaceCacheLayout) {
  fs::create_directories(root_ + "/hub/blobs");
  dir_ = root_ + "/hub/snapshots/abc";
  fs::create_directories(dir_);
  WriteTestFile(root_ + "/hub/blobs/123", OneTensor("a", 1));
  fs::create_symlink("../../blobs/123", dir_ + "/model.safetensors");
  EXPECT_TRUE(Checkpoint::Open(dir_).ok());
}

TEST_F(CheckpointTest, FingerprintTellsConfigAndHeadersApart) {
  Write("config.json", "{}");
  Write("model.safetensors", OneTensor("a", 1));
  const auto fingerprint = [this] { return *(*Checkpoint::Open(dir_))->Fingerprint(); };
  const std::string base = fingerprint();
  EXPECT_EQ(base.size(), 64u);
  EXPECT_EQ(fingerprint(), base);
  Write("model.safetensors", OneTensor("a", 2));
  EXPECT_EQ(fingerprint(), base);  // by contract not over the data
  Write("model.safetensors", OneTensor("b", 1));
  EXPECT_NE(fingerprint(), base);
  Write("model.safetensors", OneTensor("a", 1));
  Write("config.json", "{ }");
  EXPECT_NE(fingerprint(), base);
  fs::remove(dir_ + "/config.json");
  EXPECT_EQ((*Checkpoint::Open(dir_))->Fingerprint().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, SourceReadsFromManyThreads) {
  constexpr int kRows = 64, kCols = 33;
  std::vector<float> values(kRows * kCols);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  Write("model.safetensors", SafetensorsWriter().AddF32("w", {kRows, kCols}, values).Bytes());
  const auto source = CheckpointSource::Open(dir_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->Names(), std::vector<std::string>{"w"});
  std::vector<float> copy(values.size());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Range rows = BalancedRange(kRows, 4, t);
      EXPECT_TRUE(
          (*source)
              ->Read("w", {rows, Range{0, kCols}}, DType::kF32, copy.data() + rows.begin * kCols)
              .ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(copy, values);

  EXPECT_TRUE((*source)->Expect("w", {kRows, kCols}).ok());
  const absl::Status wrong = (*source)->Expect("w", {kCols, kRows});
  EXPECT_EQ(std::string(wrong.message()),
            dir_ + "/model.safetensors: tensor 'w' has shape [64, 33], config.json wants [33, 64]");
  const absl::Status missing = (*source)->Expect("v", {1});
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(missing.message()).find("'v'"), std::string::npos);
}

}  // namespace
}  // namespace millrace
