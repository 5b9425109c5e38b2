#include "engine/weights/fp8_layout.h"

#include <string>
#include <vector>

#include "engine/weights/dummy_source.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

TensorInfo Info(const char* part, FileDType dtype, std::vector<int64_t> shape) {
  return {.name = std::string("a.b.") + part, .dtype = dtype, .shape = std::move(shape)};
}

const TensorInfo kValues = Info("weight", FileDType::kF8E4M3, {200, 300});
const Fp8Scheme kBlock = {Fp8WeightScale::kBlock, "weight_scale_inv"};
const Fp8Scheme kChannel = {Fp8WeightScale::kChannel};
const Fp8Scheme kTensor = {Fp8WeightScale::kTensor};
const Fp8Scheme kStatic = {Fp8WeightScale::kTensor, "weight_scale", true};

absl::StatusOr<Fp8Layout> Find(const Fp8Scheme& scheme, const std::vector<TensorInfo>& tensors) {
  return FindFp8Layout(DummySource(tensors, 1), "a.b", 200, 300, scheme);
}
std::string Reason(const Fp8Scheme& scheme, const std::vector<TensorInfo>& tensors) {
  return std::string(Find(scheme, tensors).status().message());
}

TEST(Fp8Layout, EachScheme) {
  const TensorInfo blocks = Info("weight_scale_inv", FileDType::kF32, {2, 3});
  const TensorInfo input = Info("input_scale", FileDType::kF32, {});
  EXPECT_EQ(Find(kBlock, {kValues, blocks})->scale.name, "a.b.weight_scale_inv");
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{200, 1}, {200}}) {
    EXPECT_EQ(Find(kChannel, {kValues, Info("weight_scale", FileDType::kBF16, shape)})->scale.shape,
              shape);
  }
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{}, {1}}) {
    const TensorInfo one = Info("weight_scale", FileDType::kF32, shape);
    EXPECT_FALSE(Find(kTensor, {kValues, one})->input.has_value());
    EXPECT_EQ(Find(kStatic, {kValues, one, input})->input->name, "a.b.input_scale");
    EXPECT_EQ(Find(kTensor, {kValues, one, input})->unused->name, "a.b.input_scale");
  }
}

TEST(Fp8Layout, NamesTensorAndFile) {
  const TensorInfo one = Info("weight_scale", FileDType::kF32, {});
  EXPECT_EQ(Reason(kBlock, {kValues}),
            "dummy weights: no tensor 'a.b.weight_scale_inv' in this model");
  EXPECT_EQ(Reason(kStatic, {kValues, one}),
            "dummy weights: no tensor 'a.b.input_scale' in this model");
  EXPECT_EQ(Reason(kTensor, {Info("weight", FileDType::kBF16, {200, 300}), one}),
            "dummy weights: tensor 'a.b.weight' is stored as BF16, want F8_E4M3");
  EXPECT_EQ(Reason(kTensor, {Info("weight", FileDType::kF8E4M3, {300, 200}), one}),
            "dummy weights: tensor 'a.b.weight' has shape [300, 200], want [200, 300]");
  EXPECT_EQ(Reason(kBlock, {kValues, Info("weight_scale_inv", FileDType::kF32, {3, 2})}),
            "dummy weights: tensor 'a.b.weight_scale_inv' has shape [3, 2], want [2, 3]");
  EXPECT_EQ(Reason(kChannel, {kValues, one}),
            "dummy weights: tensor 'a.b.weight_scale' has shape [], want [200, 1]");
  EXPECT_EQ(Reason(kTensor, {kValues, Info("weight_scale", FileDType::kF32, {200, 1})}),
            "dummy weights: tensor 'a.b.weight_scale' has shape [200, 1], want []");
  EXPECT_EQ(Reason(kTensor, {kValues, Info("weight_scale", FileDType::kF8E8M0, {})}),
            "dummy weights: tensor 'a.b.weight_scale' is stored as F8_E8M0, want F32 or BF16 or "
            "F16");
  EXPECT_EQ(Reason(kStatic, {kValues, one, Info("input_scale", FileDType::kF32, {3})}),
            "dummy weights: tensor 'a.b.input_scale' has shape [3], want []");
}

}  // namespace
}  // namespace millrace
