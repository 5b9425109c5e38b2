#include "engine/config/json_fields.h"

#include <fstream>
#include <string>

#include "engine/config/read_file.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(ParseJsonObject, DepthAndRepeatedKeys) {
  const auto nested = [](int depth) {
    return "{\"a\": " + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_TRUE(ParseJsonObject(nested(60), "F").ok());
  EXPECT_FALSE(ParseJsonObject(nested(70), "F").ok());
  EXPECT_FALSE(ParseJsonObject(nested(1000000), "F").ok());

  EXPECT_TRUE(ParseJsonObject(R"({"a": {"b": 1}, "c": {"b": 1}, "b": 1})", "F").ok());
  const absl::Status twice = ParseJsonObject(R"({"a": {"b": 1, "b": 2}})", "F").status();
  EXPECT_EQ(std::string(twice.message()), "F: key 'b' twice");
}

TEST(JsonFields, FirstErrorIsKept) {
  const auto root = ParseJsonObject(R"({"a": "x", "b": 9, "n": null, "f": 1e400})", "F");
  ASSERT_FALSE(root.ok());  // 1e400 is not a double
  const auto object = ParseJsonObject(R"({"a": "x", "b": 9, "n": null})", "F");
  ASSERT_TRUE(object.ok()) << object.status();
  JsonFields fields(*object, "F");
  EXPECT_EQ(fields.Int("n", {0, 1}), std::nullopt);
  EXPECT_EQ(fields.Int("absent", {0, 1}), std::nullopt);
  EXPECT_TRUE(fields.status().ok());
  EXPECT_EQ(fields.Int("b", {0, 8}), std::nullopt);
  EXPECT_EQ(fields.Int("a", {0, 8}), std::nullopt);
  EXPECT_EQ(std::string(fields.status().message()), "F: b: 9, want an integer from 0 to 8");
  EXPECT_EQ(fields.Int("b", {9, 9}), 9);
}

TEST(ReadFile, LimitsAndKinds) {
  const std::string path = ::testing::TempDir() + "/read_file";
  std::ofstream(path) << "12345";
  EXPECT_EQ(*ReadFile(path, 5), "12345");
  EXPECT_EQ(ReadFile(path, 4).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile(::testing::TempDir(), 4).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile(path + ".none", 4).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadFile("/dev/zero", 4).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
