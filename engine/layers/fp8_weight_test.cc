#include "engine/layers/fp8_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/lowp/small_float.h"

namespace millrace {
namespace {

// Tensors in memory: bytes of codes, or floats.
class Tensors final : public WeightSource {
 public:
  void AddFloats(const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
    tensors_[name] = {{.name = name, .dtype = FileDType::kF32, .shape = std::move(shape)},
                      std::move(values)};
  }
  // Code i of E4M3 is `code` of its place.
  void AddCodes(const std::string& name, int64_t rows, int64_t cols) {
    Tensor tensor;
    tensor.info = {.name = name, .dtype = FileDType::kF8E4M3, .shape = {rows, cols}};
    for (int64_t i = 0; i < rows * cols; ++i) tensor.values.push_back(static_cast<float>(Code(i)));
    tensors_[name] = std::move(tensor);
  }
  // Any but NaN's.
  static uint8_t Code(int64_t i) {
    const auto code = static_cast<uint8_t>(i * 37 + i / 251);
    return (code & 0x7f) == 0x7f ? 1 : code;
  }

  absl::StatusOr<TensorInfo> Find(std::string_view name) const override {
    const auto found = tensors_.find(std::string(name));
    if (found == tensors_.end()) return absl::NotFoundError("no " + std::string(name));
    return found->second.info;
  }
  absl::Status Read(std::string_view name, absl::Span<const Range> ranges, DType want,
                    void* dst) const override {
    EXPECT_EQ(want, DType::kF32);
    ForEach(name, ranges, [&](size_t i, float value) { static_cast<float*>(dst)[i] = value; });
    return absl::OkStatus();
  }
  absl::Status ReadRaw(std::string_view name, absl::Span<const Range> ranges,
                       void* dst) const override {
    ForEach(name, ranges, [&](size_t i, float value) {
      static_cast<uint8_t*>(dst)[i] = static_cast<uint8_t>(value);
    });
    return absl::OkStatus();
  }
  std::string Where(std::string_view) const override { return "test"; }
  std::vector<std::string> Names() const override { return {}; }
  absl::StatusOr<std::string> Fingerprint() const override { return std::string(); }

 private:
  struct Tensor {
    TensorInfo info;
    std::vector<float> values;
  };

  template <typename Take>
  void ForEach(std::string_view name, absl::Span<const Range> ranges, Take take) const {
    const Tensor& tensor = tensors_.at(std::string(name));
    ASSERT_EQ(ranges.size(), tensor.info.shape.size());
    const Range one = {0, 1};
    const Range rows = ranges.empty() ? one : ranges[0], cols = ranges.size() < 2 ? one : ranges[1];
    const int64_t width = ranges.size() < 2 ? 1 : tensor.info.shape[1];
    size_t i = 0;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t col = cols.begin; col < cols.end; ++col) {
        take(i++, tensor.values.at(static_cast<size_t>(row * width + col)));
      }
    }
  }

  std::map<std::string, Tensor> tensors_;
};

int64_t Blocks(int64_t n) { return (n + 127) / 128; }

constexpr LinearPlan kBlocks = {
    .form = LinearForm::kStored,
    .scheme = {.weight = Fp8WeightScale::kBlock, .scale_name = "weight_scale_inv"}};
constexpr LinearPlan kChannels = {.form = LinearForm::kStored,
                                  .scheme = {.weight = Fp8WeightScale::kChannel}};
constexpr LinearPlan kStatic = {
    .form = LinearForm::kStored,
    .scheme = {.weight = Fp8WeightScale::kTensor, .static_input = true}};

class Fp8WeightTest : public testing::Test {
 protected:
  // Scale of a block: `first` and a hundred a row, one a column.
  static float BlockScale(float first, int64_t row, int64_t col) {
    return first + 100 * static_cast<float>(row) + static_cast<float>(col);
  }
  void AddBlocks(const std::string& prefix, int64_t rows, int64_t cols, float first) {
    source_.AddCodes(prefix + ".weight", rows, cols);
    std::vector<float> scales;
    for (int64_t row = 0; row < Blocks(rows); ++row) {
      for (int64_t col = 0; col < Blocks(cols); ++col) {
        scales.push_back(BlockScale(first, row, col));
      }
    }
    source_.AddFloats(prefix + ".weight_scale_inv", {Blocks(rows), Blocks(cols)}, scales);
  }
  void AddVector(const std::string& prefix, int64_t rows, int64_t cols, float first) {
    source_.AddCodes(prefix + ".weight", rows, cols);
    std::vector<float> scales;
    for (int64_t row = 0; row < rows; ++row) scales.push_back(first + static_cast<float>(row));
    source_.AddFloats(prefix + ".weight_scale", {rows, 1}, scales);
  }
  void AddStatic(const std::string& prefix, int64_t rows, int64_t cols, float scale, float input) {
    source_.AddCodes(prefix + ".weight", rows, cols);
    source_.AddFloats(prefix + ".weight_scale", {}, {scale});
    source_.AddFloats(prefix + ".input_scale", {1}, {input});
  }

  // Also that recording promises the sizes and bytes of what is read.
  absl::StatusOr<Fp8Weight> Load(const std::vector<StoredPart>& parts, const LinearPlan& plan) {
    WeightLoader recorder(source_), loader(source_, *device_, 0, {});
    LoadContext recording = {.weights = recorder}, loading = {.weights = loader};
    const absl::StatusOr<Fp8Weight> recorded = LoadFp8(parts, plan, recording);
    absl::StatusOr<Fp8Weight> weight = LoadFp8(parts, plan, loading);
    if (!weight.ok()) return weight;
    EXPECT_TRUE(recorded.ok()) << recorded.status();
    EXPECT_EQ(recorder.bytes(), loader.bytes());
    EXPECT_EQ(recorded->codes.view.size(), weight->codes.view.size());
    return weight;
  }

  static std::vector<float> Floats(const Weight& weight) {
    const float* values = weight.view.as<float>();
    return std::vector<float>(values, values + weight.view.size());
  }
  // Each part's codes are those of its place in the whole.
  static void ExpectCodes(const Fp8Weight& weight, const std::vector<StoredPart>& parts) {
    const uint8_t* code = weight.codes.view.as<uint8_t>();
    for (const StoredPart& part : parts) {
      for (int64_t row = part.row_part.begin; row < part.row_part.end; ++row) {
        for (int64_t col = part.col_part.begin; col < part.col_part.end; ++col) {
          ASSERT_EQ(*code++, Tensors::Code(row * part.cols + col)) << part.prefix << " " << row;
        }
      }
    }
    EXPECT_EQ(code, weight.codes.view.as<uint8_t>() + weight.codes.view.size());
  }
  // In order: rows and rows of scales.
  static void ExpectRuns(const Fp8Weight& weight, const std::vector<Fp8Weight::Run>& want) {
    ASSERT_EQ(weight.runs.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(weight.runs[i].rows, want[i].rows) << i;
      EXPECT_EQ(weight.runs[i].scale_rows, want[i].scale_rows) << i;
    }
  }
  void ExpectRefused(const std::vector<StoredPart>& parts, const LinearPlan& plan,
                     const std::string& message) {
    const absl::Status status = Load(parts, plan).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), message)) << status;
  }

  Tensors source_;
  std::unique_ptr<CpuDevice> device_ = *CpuDevice::Create(1);
};

// q, k and v of two ranks, heads of 64: k and v are cut in the middle of a block, so that rank 1
// holds the second halves of blocks.
TEST_F(Fp8WeightTest, BlocksOfHeads) {
  AddBlocks("q", 256, 300, 1000);
  AddBlocks("k", 128, 300, 2000);
  AddBlocks("v", 128, 300, 3000);
  const Range all = {0, 300};
  const auto parts = [&](int64_t rank) {
    const Range q = {128 * rank, 128 * rank + 128}, kv = {64 * rank, 64 * rank + 64};
    return std::vector<StoredPart>{
        {"q", 256, 300, q, all}, {"k", 128, 300, kv, all}, {"v", 128, 300, kv, all}};
  };
  const std::vector<float> kv = {2000, 2001, 2002, 3000, 3001, 3002};

  absl::StatusOr<Fp8Weight> weight = Load(parts(0), kBlocks);
  ASSERT_TRUE(weight.ok()) << weight.status();
  ExpectCodes(*weight, parts(0));
  std::vector<float> want = {1000, 1001, 1002};
  want.insert(want.end(), kv.begin(), kv.end());
  EXPECT_EQ(Floats(weight->scale), want);
  EXPECT_EQ(weight->scale.view.dim(0), 3);
  EXPECT_EQ(weight->scale.view.dim(1), 3);
  EXPECT_EQ(weight->scales, Fp8GemmScales::kBlocks);
  EXPECT_TRUE(weight->input.empty());
  // k begins on a block of its own behind a whole one of q; v does not.
  ExpectRuns(*weight, {{{0, 192}, {0, 2}}, {{192, 256}, {2, 3}}});

  weight = Load(parts(1), kBlocks);
  ASSERT_TRUE(weight.ok()) << weight.status();
  ExpectCodes(*weight, parts(1));
  want = {1100, 1101, 1102};
  want.insert(want.end(), kv.begin(), kv.end());
  EXPECT_EQ(Floats(weight->scale), want);
  ExpectRuns(*weight, {{{0, 128}, {0, 1}}, {{128, 192}, {1, 2}}, {{192, 256}, {2, 3}}});
}

// Gate and up of 272 columns, cut by whole blocks into 256 and 16.
TEST_F(Fp8WeightTest, BlocksOfColumns) {
  AddBlocks("gate", 272, 160, 1000);
  AddBlocks("up", 272, 160, 2000);
  const auto parts = [](Range rows) {
    return std::vector<StoredPart>{{"gate", 272, 160, rows, {0, 160}},
                                   {"up", 272, 160, rows, {0, 160}}};
  };
  absl::StatusOr<Fp8Weight> weight = Load(parts({0, 256}), kBlocks);
  ASSERT_TRUE(weight.ok()) << weight.status();
  EXPECT_EQ(Floats(weight->scale),
            (std::vector<float>{1000, 1001, 1100, 1101, 2000, 2001, 2100, 2101}));
  ExpectRuns(*weight, {{{0, 512}, {0, 4}}});
  weight = Load(parts({256, 272}), kBlocks);
  ASSERT_TRUE(weight.ok()) << weight.status();
  ExpectCodes(*weight, parts({256, 272}));
  EXPECT_EQ(Floats(weight->scale), (std::vector<float>{1200, 1201, 2200, 2201}));
  ExpectRuns(*weight, {{{0, 16}, {0, 1}}, {{16, 32}, {1, 2}}});
  // From the middle of a block over its end: the rest has whole blocks.
  weight = Load(parts({64, 272}), kBlocks);
  ASSERT_TRUE(weight.ok()) << weight.status();
  ExpectRuns(*weight,
             {{{0, 64}, {0, 1}}, {{64, 208}, {1, 3}}, {{208, 272}, {3, 4}}, {{272, 416}, {4, 6}}});
}

// Down of two ranks, cut along its inputs.
TEST_F(Fp8WeightTest, BlocksOfInputs) {
  AddBlocks("down", 150, 384, 1000);
  for (const Range cols : {Range{0, 256}, Range{256, 384}}) {
    const std::vector<StoredPart> parts = {{"down", 150, 384, {0, 150}, cols}};
    const absl::StatusOr<Fp8Weight> weight = Load(parts, kBlocks);
    ASSERT_TRUE(weight.ok()) << weight.status();
    ExpectCodes(*weight, parts);
    EXPECT_EQ(Floats(weight->scale), cols.begin == 0 ? (std::vector<float>{1000, 1001, 1100, 1101})
                                                     : (std::vector<float>{1002, 1102}));
    EXPECT_EQ(weight->scale.view.dim(1), Blocks(cols.size()));
    ExpectRuns(*weight, {{{0, 150}, {0, 2}}});
  }
  ExpectRefused({{"down", 150, 384, {0, 150}, {0, 192}}}, kBlocks,
                "test: tensor 'down.weight': columns [0, 192) of 384 would cut a block of 128");
  ExpectRefused({{"down", 150, 384, {0, 150}, {192, 384}}}, kBlocks, "columns [192, 384) of 384");
}

TEST_F(Fp8WeightTest, OutputsAreCutWithTheirRows) {
  AddVector("k", 90, 40, 1000);
  AddVector("v", 90, 40, 2000);
  const std::vector<StoredPart> parts = {{"k", 90, 40, {30, 33}, {0, 40}},
                                         {"v", 90, 40, {88, 90}, {0, 40}}};
  const absl::StatusOr<Fp8Weight> weight = Load(parts, kChannels);
  ASSERT_TRUE(weight.ok()) << weight.status();
  ExpectCodes(*weight, parts);
  EXPECT_EQ(Floats(weight->scale), (std::vector<float>{1030, 1031, 1032, 2088, 2089}));
  EXPECT_EQ(weight->scales, Fp8GemmScales::kVectors);
  EXPECT_TRUE(weight->input.empty());
  ExpectRuns(*weight, {{{0, 5}, {0, 5}}});
  // Columns are cut anywhere, and all rows have their scales.
  const absl::StatusOr<Fp8Weight> cut = Load({{"k", 90, 40, {0, 90}, {7, 19}}}, kChannels);
  ASSERT_TRUE(cut.ok()) << cut.status();
  ExpectCodes(*cut, {{"k", 90, 40, {0, 90}, {7, 19}}});
  EXPECT_EQ(Floats(cut->scale).size(), 90u);
}

TEST_F(Fp8WeightTest, ScalesOfMatricesBecomeAVectorAndTheLargestInputCounts) {
  AddStatic("q", 6, 24, 2, 0.25f);
  AddStatic("k", 4, 24, 3, 0.5f);
  AddStatic("v", 4, 24, 5, 0.125f);
  const std::vector<StoredPart> parts = {
      {"q", 6, 24, {3, 6}, {0, 24}}, {"k", 4, 24, {2, 4}, {0, 24}}, {"v", 4, 24, {2, 4}, {0, 24}}};
  const absl::StatusOr<Fp8Weight> weight = Load(parts, kStatic);
  ASSERT_TRUE(weight.ok()) << weight.status();
  ExpectCodes(*weight, parts);
  EXPECT_EQ(Floats(weight->scale), (std::vector<float>{2, 2, 2, 3, 3, 5, 5}));
  EXPECT_EQ(Floats(weight->input), (std::vector<float>{0.5f}));
  EXPECT_EQ(Floats(Load({parts[2], parts[0]}, kStatic)->input), (std::vector<float>{0.25f}));
}

TEST_F(Fp8WeightTest, RefusesScalesThatCannotBe) {
  const std::vector<StoredPart> part = {{"q", 6, 24, {3, 6}, {0, 24}}};
  AddStatic("q", 6, 24, -2, 0.25f);
  ExpectRefused(part, kStatic, "'q.weight_scale' holds -2, want a finite scale that is not");
  AddStatic("q", 6, 24, INFINITY, 0.25f);
  ExpectRefused(part, kStatic, "'q.weight_scale' holds inf");
  AddStatic("q", 6, 24, 2, 0);
  ExpectRefused(part, kStatic, "'q.input_scale' holds 0, want a finite scale above 0");
  AddStatic("q", 6, 24, 2, NAN);
  ExpectRefused(part, kStatic, "'q.input_scale' holds nan");
  AddStatic("q", 6, 24, 0, 1);  // a matrix of zeros
  EXPECT_TRUE(Load(part, kStatic).ok());
}

// A rank scales its own part, so a row's scale is that of the columns it holds.
TEST_F(Fp8WeightTest, QuantisedByTheRowsThatARankHolds) {
  std::vector<float> values;
  for (int i = 0; i < 4 * 48; ++i) {
    values.push_back(static_cast<float>((i * 29) % 97 - 48) * (i % 48 < 24 ? 0.01f : 1.7f));
  }
  source_.AddFloats("w.weight", {4, 48}, values);
  for (const Range cols : {Range{0, 24}, Range{24, 48}, Range{0, 48}}) {
    const absl::StatusOr<Fp8Weight> weight =
        Load({{"w", 4, 48, {1, 4}, cols}}, {.form = LinearForm::kQuantised});
    ASSERT_TRUE(weight.ok()) << weight.status();
    const std::vector<float> scales = Floats(weight->scale);
    ASSERT_EQ(scales.size(), 3u);
    const uint8_t* code = weight->codes.view.as<uint8_t>();
    for (int64_t row = 1; row < 4; ++row) {
      double amax = 0;
      for (int64_t c = cols.begin; c < cols.end; ++c) {
        amax = std::max(amax, std::abs(double{values[static_cast<size_t>(row * 48 + c)]}));
      }
      const float scale = scales[static_cast<size_t>(row - 1)];
      EXPECT_NEAR(double{scale}, amax / 448, amax / 448 * 1e-6);
      for (int64_t c = cols.begin; c < cols.end; ++c, ++code) {
        const double exact = double{values[static_cast<size_t>(row * 48 + c)]};
        const double got = double{kE4M3Values[*code]} * double{scale};
        // Half a place of three bits of mantissa, or of the subnormals.
        EXPECT_NEAR(got, exact, std::max(std::abs(exact) / 16, double{scale} * 0x1p-10) * 1.0001);
      }
    }
  }
}

// The products of codes and their own scales, where two parts of one matrix lie between others.
TEST_F(Fp8WeightTest, WidenedHasTheScaleOfEachElement) {
  AddBlocks("gate", 272, 300, 3);
  AddBlocks("up", 272, 300, 7);
  const std::vector<StoredPart> parts = {{"gate", 272, 300, {140, 150}, {130, 290}},
                                         {"up", 272, 300, {140, 150}, {130, 290}},
                                         {"gate", 272, 300, {250, 272}, {130, 290}},
                                         {"up", 272, 300, {250, 272}, {130, 290}}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    WeightLoader loader(source_, *device_, 0, {});
    LoadContext ctx = {.weights = loader, .weight_dtype = dtype};
    const absl::StatusOr<Weight> weight = LoadWidened(parts, kBlocks.scheme, ctx);
    ASSERT_TRUE(weight.ok()) << weight.status();
    int64_t i = 0;
    for (const StoredPart& part : parts) {
      const float first = part.prefix == "gate" ? 3 : 7;
      for (int64_t row = part.row_part.begin; row < part.row_part.end; ++row) {
        for (int64_t col = part.col_part.begin; col < part.col_part.end; ++col, ++i) {
          const float want = kE4M3Values[Tensors::Code(row * part.cols + col)] *
                             BlockScale(first, row / 128, col / 128);
          if (dtype == DType::kF32) {
            ASSERT_EQ(weight->view.as<float>()[i], want) << part.prefix << " " << row << " " << col;
          } else {
            ASSERT_EQ(weight->view.as<BFloat16>()[i].bits, ToBFloat16(want).bits);
          }
        }
      }
    }
    EXPECT_EQ(i, weight->view.size());
  }
}

}  // namespace
}  // namespace millrace
