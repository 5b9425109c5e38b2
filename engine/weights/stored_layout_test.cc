#include "engine/weights/stored_layout.h"

#include <string>
#include <utility>
#include <vector>

#include "engine/weights/dummy_source.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using Tensors = std::vector<TensorInfo>;

TensorInfo Info(const std::string& part, FileDType dtype, std::vector<int64_t> shape) {
  return {.name = "a.b." + part, .dtype = dtype, .shape = std::move(shape)};
}

// The matrix "a.b" of 200 x 96 in such a source.
absl::StatusOr<StoredLayout> Find(const Tensors& tensors, int64_t rows = 200, int64_t cols = 96) {
  return FindStoredLayout(DummySource(tensors, 1), "a.b", rows, cols);
}

std::string Reason(const Tensors& tensors, int64_t cols = 96) {
  return std::string(Find(tensors, 200, cols).status().message());
}

const TensorInfo kFp8 = Info("weight", FileDType::kF8E4M3, {200, 96});
const TensorInfo kFp8Scale = Info("scale", FileDType::kF8E8M0, {2, 1});
const TensorInfo kFp4 = Info("weight", FileDType::kI8, {200, 48});
const TensorInfo kMxScale = Info("scale", FileDType::kF8E8M0, {200, 3});
const TensorInfo kNvScale = Info("weight_scale", FileDType::kF8E4M3, {200, 6});
const TensorInfo kNvFactor = Info("weight_scale_2", FileDType::kF32, {});
const TensorInfo kPacked = Info("weight_packed", FileDType::kU8, {200, 48});
const TensorInfo kGlobal = Info("weight_global_scale", FileDType::kF32, {1});

TEST(StoredLayoutTest, TellsEveryFormatByItsTensors) {
  const struct {
    Tensors tensors;
    StoredFormat format;
    FileDType scales;
    bool divide;
    size_t unused;
  } kCases[] = {
      {{Info("weight", FileDType::kBF16, {200, 96})}, StoredFormat::kBF16, FileDType::kBF16, 0, 0},
      {{Info("weight", FileDType::kF32, {200, 96})}, StoredFormat::kF32, FileDType::kBF16, 0, 0},
      {{kFp8, kFp8Scale}, StoredFormat::kFp8, FileDType::kF8E8M0, 0, 0},
      {{kFp8, Info("scale", FileDType::kF32, {2, 1})}, StoredFormat::kFp8, FileDType::kF32, 0, 0},
      {{kFp8, Info("weight_scale_inv", FileDType::kF32, {2, 1})},
       StoredFormat::kFp8,
       FileDType::kF32,
       0,
       0},
      {{kFp8, Info("weight_scale", FileDType::kF8E8M0, {2, 1})},
       StoredFormat::kFp8,
       FileDType::kF8E8M0,
       0,
       0},
      {{kFp4, kMxScale}, StoredFormat::kMxFp4, FileDType::kF8E8M0, 0, 0},
      {{Info("weight", FileDType::kU8, {200, 48}), kMxScale},
       StoredFormat::kMxFp4,
       FileDType::kF8E8M0,
       0,
       0},
      {{Info("weight", FileDType::kU8, {200, 48}), kNvScale, kNvFactor},
       StoredFormat::kNvFp4,
       FileDType::kF8E4M3,
       0,
       0},
      {{kFp4, kNvScale, kNvFactor, Info("input_scale", FileDType::kF32, {})},
       StoredFormat::kNvFp4,
       FileDType::kF8E4M3,
       0,
       1},
      {{kPacked, kNvScale, kGlobal}, StoredFormat::kNvFp4, FileDType::kF8E4M3, 1, 0},
      {{kPacked, kNvScale, Info("weight_global_scale", FileDType::kF32, {}),
        Info("input_global_scale", FileDType::kF32, {1})},
       StoredFormat::kNvFp4,
       FileDType::kF8E4M3,
       1,
       1},
  };
  for (const auto& c : kCases) {
    const absl::StatusOr<StoredLayout> layout = Find(c.tensors);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->format, c.format);
    EXPECT_EQ(layout->values.name, c.tensors[0].name);
    EXPECT_EQ(layout->divide_by_factor, c.divide);
    EXPECT_EQ(layout->unused.size(), c.unused);
    if (!IsQuantised(c.format)) continue;
    EXPECT_EQ(layout->scales.name, c.tensors[1].name);
    EXPECT_EQ(layout->scales.dtype, c.scales);
    const bool factor = c.format == StoredFormat::kNvFp4;
    EXPECT_EQ(layout->factor.name, factor ? c.tensors[2].name : "");
  }
}

TEST(StoredLayoutTest, NamesWhatIsMissing) {
  EXPECT_EQ(Find({}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(Reason({}).find("'a.b.weight'"), std::string::npos) << Reason({});
  EXPECT_NE(Reason({kFp8}).find("'a.b.scale'"), std::string::npos) << Reason({kFp8});
  EXPECT_NE(Reason({kFp4}).find("'a.b.scale'"), std::string::npos) << Reason({kFp4});
  EXPECT_NE(Reason({kFp4, kNvFactor}).find("'a.b.weight_scale'"), std::string::npos);
  EXPECT_NE(Reason({kFp4, kNvScale}).find("'a.b.weight_scale_2'"), std::string::npos);
  EXPECT_NE(Reason({kPacked, kNvScale}).find("'a.b.weight_global_scale'"), std::string::npos);
}

TEST(StoredLayoutTest, RefusesTypesShapesAndPartBlocks) {
  EXPECT_EQ(Reason({Info("weight", FileDType::kF8E5M2, {200, 96}), kFp8Scale}),
            "dummy weights: tensor 'a.b.weight' is stored as F8_E5M2, want F32, BF16, F8_E4M3, or "
            "I8 or U8 holding "
            "FP4");
  EXPECT_EQ(Reason({kFp8, Info("scale", FileDType::kU8, {2, 1})}),
            "dummy weights: tensor 'a.b.scale' is stored as U8, want F8_E8M0 or F32");
  EXPECT_EQ(Reason({kFp8, Info("scale", FileDType::kF8E8M0, {1, 1})}),
            "dummy weights: tensor 'a.b.scale' has shape [1, 1], want [2, 1]");
  EXPECT_EQ(Reason({Info("weight", FileDType::kBF16, {96, 200})}),
            "dummy weights: tensor 'a.b.weight' has shape [96, 200], want [200, 96]");
  EXPECT_EQ(Reason({Info("weight", FileDType::kI8, {200, 96}), kMxScale}),
            "dummy weights: tensor 'a.b.weight' has shape [200, 96], want [200, 48]");
  EXPECT_EQ(Reason({kFp4, Info("scale", FileDType::kF8E8M0, {200, 6})}),
            "dummy weights: tensor 'a.b.scale' has shape [200, 6], want [200, 3]");
  EXPECT_EQ(Reason({kFp4, Info("scale", FileDType::kF32, {200, 3})}),
            "dummy weights: tensor 'a.b.scale' is stored as F32, want F8_E8M0");
  EXPECT_EQ(Reason({kFp4, Info("weight_scale", FileDType::kF8E8M0, {200, 6}), kNvFactor}),
            "dummy weights: tensor 'a.b.weight_scale' is stored as F8_E8M0, want F8_E4M3");
  EXPECT_EQ(Reason({kFp4, kNvScale, Info("weight_scale_2", FileDType::kF32, {2})}),
            "dummy weights: tensor 'a.b.weight_scale_2' has shape [2], want []");
  EXPECT_EQ(Reason({kPacked, kNvScale, Info("weight_global_scale", FileDType::kBF16, {})}),
            "dummy weights: tensor 'a.b.weight_global_scale' is stored as BF16, want F32");
  EXPECT_EQ(Reason({kFp4, kMxScale}, 80),
            "tensor 'a.b.weight': MXFP4 needs columns in blocks of 32, config.json wants 80");
  EXPECT_EQ(
      Reason({kPacked, kNvScale, kGlobal}, 72),
      "tensor 'a.b.weight_packed': NVFP4 needs columns in blocks of 16, config.json wants 72");
}

}  // namespace
}  // namespace millrace
