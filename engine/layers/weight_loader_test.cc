#include "engine/layers/weight_loader.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/weights/dummy_source.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"

namespace millrace {
namespace {

TensorInfo Info(const std::string& name, std::vector<int64_t> shape) {
  TensorInfo info;
  info.name = name;
  info.shape = std::move(shape);
  return info;
}

const DummySource& Source() {
  static const DummySource* const source =
      new DummySource({Info("q.weight", {6, 5}), Info("k.weight", {4, 5}), Info("q.bias", {6})}, 7);
  return *source;
}

std::vector<float> Whole(const std::string& name, std::vector<Range> ranges, size_t size) {
  std::vector<float> values(size);
  EXPECT_TRUE(Source().Read(name, ranges, DType::kF32, values.data()).ok());
  return values;
}

const WeightPart kQ = MatrixPart("q.weight", 6, 5, {2, 4}, {0, 5});
const WeightPart kK = MatrixPart("k.weight", 4, 5, {1, 2}, {0, 5});

TEST(WeightLoaderTest, RecordsWholeShapesAndOwnBytes) {
  WeightLoader loader(Source());
  EXPECT_TRUE(loader.recording());
  const absl::StatusOr<Weight> weight = loader.Load({kQ, kK}, DType::kBF16);
  ASSERT_TRUE(weight.ok());
  EXPECT_TRUE(weight->empty());
  EXPECT_EQ(loader.bytes(), 3 * 5 * 2);
  ASSERT_EQ(loader.tensors().size(), 2u);
  EXPECT_EQ(loader.tensors()[0].name, "q.weight");
  EXPECT_EQ(loader.tensors()[0].shape, (std::vector<int64_t>{6, 5}));
}

TEST(WeightLoaderTest, StacksTheRowsOfParts) {
  const std::unique_ptr<CpuDevice> device = *CpuDevice::Create(1);
  std::vector<std::pair<int64_t, int64_t>> progress;
  WeightLoader loader(Source(), *device, 100,
                      [&](int64_t done, int64_t total) { progress.emplace_back(done, total); });
  const absl::StatusOr<Weight> weight = loader.Load({kQ, kK}, DType::kF32);
  ASSERT_TRUE(weight.ok()) << weight.status();
  EXPECT_EQ(weight->view.ToString(), "float32[3, 5] on cpu");
  const std::vector<float> q = Whole("q.weight", {{0, 6}, {0, 5}}, 30);
  const std::vector<float> k = Whole("k.weight", {{0, 4}, {0, 5}}, 20);
  const float* got = weight->view.as<float>();
  EXPECT_EQ(std::vector<float>(got, got + 10), std::vector<float>(q.begin() + 10, q.begin() + 20));
  EXPECT_EQ(std::vector<float>(got + 10, got + 15),
            std::vector<float>(k.begin() + 5, k.begin() + 10));
  EXPECT_EQ(progress, (std::vector<std::pair<int64_t, int64_t>>{{60, 100}}));
}

TEST(WeightLoaderTest, TakesColumnsVectorsAndNothing) {
  const std::unique_ptr<CpuDevice> device = *CpuDevice::Create(1);
  WeightLoader loader(Source(), *device, 0, {});
  const absl::StatusOr<Weight> columns =
      loader.Load(MatrixPart("q.weight", 6, 5, {0, 6}, {3, 5}), DType::kF32);
  ASSERT_TRUE(columns.ok()) << columns.status();
  const std::vector<float> q = Whole("q.weight", {{0, 6}, {0, 5}}, 30);
  for (size_t r = 0; r < 6; ++r) EXPECT_EQ(columns->view.as<float>()[r * 2 + 1], q[r * 5 + 4]);
  const absl::StatusOr<Weight> bias = loader.Load(VectorPart("q.bias", 6, {1, 3}), DType::kF32);
  ASSERT_TRUE(bias.ok()) << bias.status();
  EXPECT_EQ(bias->view.as<float>()[0], Whole("q.bias", {{0, 6}}, 6)[1]);
  // Another rank's bias.
  const absl::StatusOr<Weight> none = loader.Load(VectorPart("q.bias", 6, {0, 0}), DType::kF32);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->empty());
}

TEST(WeightLoaderTest, UploadsWhatTheModelComputed) {
  const std::unique_ptr<CpuDevice> device = *CpuDevice::Create(1);
  WeightLoader loader(Source(), *device, 0, {});
  const absl::StatusOr<Weight> weight = loader.Upload({1.5f, -2.0f});
  ASSERT_TRUE(weight.ok()) << weight.status();
  EXPECT_EQ(weight->view.ToString(), "float32[2] on cpu");
  EXPECT_EQ(weight->view.as<float>()[1], -2.0f);
  EXPECT_EQ(loader.bytes(), 0);
}

TEST(CheckTensorsTest, NamesWhatIsMissingWrongOrLeftOver) {
  const auto none = [](const std::string&) { return false; };
  const TensorSpec q = {"q.weight", {6, 5}};
  const TensorSpec k = {"k.weight", {4, 5}};
  const TensorSpec bias = {"q.bias", {6}};
  EXPECT_TRUE(CheckTensors(Source(), {q, k, bias}, none).ok());
  EXPECT_TRUE(
      CheckTensors(Source(), {q, k}, [](const std::string& n) { return n == "q.bias"; }).ok());
  const auto reason = [&](const std::vector<TensorSpec>& wanted) {
    return std::string(CheckTensors(Source(), wanted, none).message());
  };
  EXPECT_NE(reason({q, k}).find("q.bias"), std::string::npos);
  EXPECT_NE(reason({q, k, bias, {"v.weight", {1}}}).find("v.weight"), std::string::npos);
  EXPECT_NE(reason({q, {"k.weight", {5, 4}}, bias}).find("k.weight"), std::string::npos);
}

TEST(WeightLoaderTest, IntegersAndScalars) {
  TensorInfo table = Info("table", {3, 2}), scalar = Info("scalar", {});
  table.dtype = FileDType::kI64;
  scalar.dtype = FileDType::kF32;
  const DummySource source({table, scalar}, 7, 5);
  const std::unique_ptr<CpuDevice> device = *CpuDevice::Create(1);
  WeightLoader loader(source, *device, 0, {});
  const absl::StatusOr<Weight> rows = loader.Load(IndexPart("table", 3, 2, 5), DType::kI32);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->view.ToString(), "int32[3, 2] on cpu");
  const absl::StatusOr<Weight> scalars =
      loader.LoadRaw({ScalarPart("scalar"), ScalarPart("scalar")}, DType::kF32);
  ASSERT_TRUE(scalars.ok()) << scalars.status();
  EXPECT_EQ(scalars->view.ToString(), "float32[2] on cpu");
  EXPECT_EQ(scalars->view.as<float>()[0], scalars->view.as<float>()[1]);
  EXPECT_EQ(loader.bytes(), 6 * 4 + 2 * 4);
  EXPECT_TRUE(CheckTensors(source, loader.tensors(), [](const auto&) { return false; }).ok());
  const absl::Status outside = loader.Load(IndexPart("table", 3, 2, 1), DType::kI32).status();
  EXPECT_EQ(outside.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(outside.message().substr(0, 20), "tensor 'table' holds") << outside;
  EXPECT_NE(outside.message().find(", want 0 to 0"), absl::string_view::npos) << outside;
}

TEST(CheckTensorsTest, NamesTensorsOfAnotherType) {
  TensorInfo table = Info("table", {3, 2}), codes = Info("codes", {4});
  table.dtype = FileDType::kI64;
  codes.dtype = FileDType::kF8E4M3;
  const DummySource source({table, codes}, 7, 5);
  const auto reason = [&](const std::string& name, std::vector<int64_t> shape,
                          TensorSpec::Kind kind) {
    const auto all = [](const std::string&) { return true; };
    return std::string(CheckTensors(source, {{name, shape, kind}}, all).message());
  };
  using Kind = TensorSpec::Kind;
  EXPECT_EQ(reason("table", {3, 2}, Kind::kFloats),
            "dummy weights: tensor 'table' is stored as I64, want F32, BF16 or F16");
  EXPECT_EQ(reason("codes", {4}, Kind::kFloats),
            "dummy weights: tensor 'codes' is stored as F8_E4M3, want F32, BF16 or F16");
  EXPECT_EQ(reason("codes", {4}, Kind::kIndices),
            "dummy weights: tensor 'codes' is stored as F8_E4M3, want I32 or I64");
  EXPECT_EQ(reason("table", {3, 2}, Kind::kIndices), "");
  EXPECT_EQ(reason("codes", {4}, Kind::kChecked), "");
}

}  // namespace
}  // namespace millrace
