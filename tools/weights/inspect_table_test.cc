#include "tools/weights/inspect_table.h"

#include <filesystem>
#include <string>

#include "engine/weights/safetensors_writer.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(BytesText, Units) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(int64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(BytesText(int64_t{5000} << 40), "5000.0 TiB");
}

TEST(InspectTable, NaturalOrderAndTotals) {
  const std::string dir = ::testing::TempDir() + "/inspect";
  std::filesystem::create_directories(dir);
  WriteTestFile(dir + "/model.safetensors",
                SafetensorsWriter()
                    .AddF32("layers.10.w", {1}, {1})
                    .AddF32("layers.9.w", {2, 2}, {1, 2, 3, 4})
                    .Add("b", FileDType::kBF16, {300, 2}, std::string(1200, 'x'))
                    .Bytes());
  const auto checkpoint = Checkpoint::Open(dir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const std::string text = InspectTable(**checkpoint);
  const std::string want_rows =
      "tensor       dtype  shape       bytes\n"
      "b            BF16   [300, 2]  1.2 KiB\n"
      "layers.9.w   F32    [2, 2]       16 B\n"
      "layers.10.w  F32    [1]           4 B\n"
      "\n" +
      dir + "/model.safetensors: 3 tensors, ";
  EXPECT_EQ(text.substr(0, want_rows.size()), want_rows);
  EXPECT_NE(text.find("3 tensors, 1.2 KiB, 600 elements of BF16, 5 elements of F32\n"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace millrace
