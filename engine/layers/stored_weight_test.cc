#include "engine/layers/stored_weight.h"

#include <memory>
#include <string>
#include <vector>

#include "engine/layers/weight_loader.h"
#include "engine/weights/dummy_source.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/stored_linear/stored_linear.h"

namespace millrace {
namespace {

void AddMatrix(std::vector<TensorInfo>& tensors, const std::string& prefix, StoredFormat format,
               int64_t rows, int64_t cols) {
  const auto add = [&](const char* part, FileDType dtype, std::vector<int64_t> shape) {
    tensors.push_back({.name = prefix + part, .dtype = dtype, .shape = std::move(shape)});
  };
  switch (format) {
    case StoredFormat::kF32:
      return add(".weight", FileDType::kF32, {rows, cols});
    case StoredFormat::kBF16:
      return add(".weight", FileDType::kBF16, {rows, cols});
    case StoredFormat::kFp8:
      add(".weight", FileDType::kF8E4M3, {rows, cols});
      return add(".scale", FileDType::kF8E8M0, {(rows + 127) / 128, (cols + 127) / 128});
    case StoredFormat::kMxFp4:
      add(".weight", FileDType::kI8, {rows, cols / 2});
      return add(".scale", FileDType::kF8E8M0, {rows, cols / 32});
    case StoredFormat::kNvFp4:
      add(".weight", FileDType::kU8, {rows, cols / 2});
      add(".weight_scale", FileDType::kF8E4M3, {rows, cols / 16});
      add(".weight_scale_2", FileDType::kF32, {});
      return add(".input_scale", FileDType::kF32, {});
  }
}

constexpr StoredFormat kFormats[] = {StoredFormat::kF32, StoredFormat::kBF16, StoredFormat::kFp8,
                                     StoredFormat::kMxFp4, StoredFormat::kNvFp4};

class StoredWeightTest : public ::testing::Test {
 protected:
  // The weight's rows as an op sees them: each is what the unit vectors multiply to.
  std::vector<float> Widened(const StoredMatrix& matrix) {
    const int64_t rows = matrix.rows, cols = matrix.cols;
    std::vector<float> unit(static_cast<size_t>(cols * cols), 0.0f);
    for (int64_t i = 0; i < cols; ++i) unit[static_cast<size_t>(i * cols + i)] = 1;
    std::vector<float> out(static_cast<size_t>(cols * rows));
    const int64_t bytes = StoredLinearWorkspaceBytes(*device_, cols);
    Buffer memory = *device_->Allocate(bytes);
    Workspace workspace(memory.data(), bytes);
    const absl::Status status =
        StoredLinear({*device_, Stream{}, workspace},
                     {.x = TensorView::Of(unit.data(), DType::kF32, {cols, cols}),
                      .weight = matrix,
                      .y = TensorView::Of(out.data(), DType::kF32, {cols, rows})});
    EXPECT_TRUE(status.ok()) << status;
    return out;  // [cols, rows]
  }

  std::unique_ptr<CpuDevice> device_ = *CpuDevice::Create(1);
};

// Any cut that the format allows holds the same numbers as the whole.
TEST_F(StoredWeightTest, PartsAgreeWithTheWhole) {
  constexpr int64_t kRows = 150, kCols = 192;
  for (const StoredFormat format : kFormats) {
    std::vector<TensorInfo> tensors;
    AddMatrix(tensors, "w", format, kRows, kCols);
    const DummySource source(tensors, 3);
    WeightLoader loader(source, *device_, 0, {});
    const absl::StatusOr<StoredWeight> whole = LoadStored(WholeMatrix("w", kRows, kCols), loader);
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_EQ(whole->matrix.format, format);
    const std::vector<float> all = Widened(whole->matrix);
    for (const Range rows : {Range{0, 150}, Range{24, 48}, Range{120, 150}, Range{127, 128}}) {
      for (const Range cols : {Range{0, 192}, Range{96, 192}, Range{32, 160}}) {
        const absl::StatusOr<StoredWeight> part =
            LoadStored({"w", kRows, kCols, rows, cols}, loader);
        ASSERT_TRUE(part.ok()) << part.status();
        const std::vector<float> some = Widened(part->matrix);
        for (int64_t c = 0; c < cols.size(); ++c) {
          for (int64_t r = 0; r < rows.size(); ++r) {
            ASSERT_EQ(some[static_cast<size_t>(c * rows.size() + r)],
                      all[static_cast<size_t>((cols.begin + c) * kRows + rows.begin + r)])
                << StoredFormatName(format) << " " << rows.begin << " " << cols.begin;
          }
        }
      }
    }
  }
}

TEST_F(StoredWeightTest, StacksPartsAndCountsItsBytes) {
  for (const StoredFormat format : kFormats) {
    std::vector<TensorInfo> tensors;
    for (const char* prefix : {"e.0", "e.1", "e.2"}) AddMatrix(tensors, prefix, format, 40, 96);
    const DummySource source(tensors, 3);
    std::vector<StoredPart> parts;
    for (const char* prefix : {"e.1", "e.2"}) parts.push_back({prefix, 40, 96, {8, 40}, {32, 96}});
    WeightLoader recorder(source), loader(source, *device_, 0, {});
    const absl::StatusOr<StoredWeight> recorded = LoadStored(parts, recorder);
    const absl::StatusOr<StoredWeight> stack = LoadStored(parts, loader);
    ASSERT_TRUE(recorded.ok()) << recorded.status();
    ASSERT_TRUE(stack.ok()) << stack.status();
    EXPECT_EQ(recorded->matrix.values.data, nullptr);
    EXPECT_EQ(recorded->matrix.rows, 32);
    EXPECT_EQ(stack->matrix.count, 2);
    EXPECT_EQ(stack->matrix.bytes(), recorder.bytes()) << StoredFormatName(format);
    EXPECT_EQ(stack->matrix.bytes(), loader.bytes());
    for (int64_t i = 0; i < 2; ++i) {
      const absl::StatusOr<StoredWeight> one = LoadStored(parts[static_cast<size_t>(i)], loader);
      ASSERT_TRUE(one.ok());
      EXPECT_EQ(Widened(stack->matrix.Matrix(i)), Widened(one->matrix));
    }
    // Every tensor is known to the model but those of e.0.
    const auto is_first = [](const std::string& name) { return name.substr(0, 4) == "e.0."; };
    EXPECT_TRUE(CheckTensors(source, recorder.tensors(), is_first).ok());
    EXPECT_TRUE(SkipStored({"e.0", 40, 96, {8, 40}, {32, 96}}, recorder).ok());
    EXPECT_TRUE(CheckTensors(source, recorder.tensors(), [](const auto&) { return false; }).ok());
    EXPECT_EQ(stack->matrix.bytes(), recorder.bytes());
  }
}

TEST_F(StoredWeightTest, RefusesMixedStacksAndCutBlocks) {
  std::vector<TensorInfo> tensors;
  AddMatrix(tensors, "e.0", StoredFormat::kMxFp4, 8, 96);
  AddMatrix(tensors, "e.1", StoredFormat::kNvFp4, 8, 96);
  const DummySource source(tensors, 3);
  WeightLoader loader(source);
  EXPECT_EQ(
      LoadStored({WholeMatrix("e.0", 8, 96), WholeMatrix("e.1", 8, 96)}, loader).status().message(),
      "tensor 'e.1.weight' is NVFP4 and 'e.0.weight' is MXFP4: matrices that are one stack "
      "must be stored alike");
  EXPECT_EQ(LoadStored({"e.0", 8, 96, {0, 8}, {48, 96}}, loader).status().message(),
            "tensor 'e.0.weight': columns [48, 96) of 96 would cut a block of 32, which share a "
            "scale in MXFP4");
  EXPECT_TRUE(LoadStored({"e.1", 8, 96, {0, 8}, {48, 96}}, loader).ok());
  EXPECT_EQ(LoadStored(WholeMatrix("e.0", 8, 64), loader).status().message(),
            "dummy weights: tensor 'e.0.weight' has shape [8, 48], want [8, 32]");
}

TEST_F(StoredWeightTest, CutsColumnsAtBlocks) {
  std::vector<TensorInfo> tensors;
  AddMatrix(tensors, "mx", StoredFormat::kMxFp4, 8, 160);
  AddMatrix(tensors, "fp8", StoredFormat::kFp8, 8, 160);
  const DummySource source(tensors, 3);
  WeightLoader loader(source);
  const auto cut = [&](const char* name, int32_t rank, int32_t size) {
    const LoadContext ctx = {.weights = loader, .rank = rank, .size = size};
    return CutColumns(name, 8, 160, ctx);
  };
  EXPECT_EQ(*cut("mx", 0, 2), (Range{0, 96}));
  EXPECT_EQ(*cut("mx", 1, 2), (Range{96, 160}));
  EXPECT_EQ(*cut("fp8", 1, 2), (Range{80, 160}));
  EXPECT_EQ(cut("mx", 0, 6).status().message(),
            "mx: 160 columns of MXFP4 are 5 blocks of 32, which cannot be cut into 6 ranks");
}

}  // namespace
}  // namespace millrace
