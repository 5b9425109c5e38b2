#include "kernels/testing/fp8_operands.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "kernels/testing/test_rng.h"

namespace millrace {
namespace {

int64_t Blocks(int64_t count) { return (count + 127) / 128; }

std::vector<int64_t> XScaleShape(const Fp8Shape& s, Fp8Units units) {
  if (units == Fp8Units::kBlocks) return {Blocks(s.inputs), s.tokens};
  return {units == Fp8Units::kAllAndOutputs || units == Fp8Units::kAll ? 1 : s.tokens};
}

std::vector<int64_t> WeightScaleShape(const Fp8Shape& s, Fp8Units units) {
  if (units == Fp8Units::kBlocks) return {Blocks(s.outputs), Blocks(s.inputs)};
  return {units == Fp8Units::kTokensAndAll || units == Fp8Units::kAll ? 1 : s.outputs};
}

double ValueAt(const std::vector<double>& values, int64_t i) {
  return values[static_cast<size_t>(i)];
}

}  // namespace

Fp8Operands::Fp8Operands(Device& device, const Fp8Shape& s, Fp8Units u, double least, double most)
    : shape(s),
      units(u),
      x(device, DType::kU8, {s.tokens, s.inputs}, s.padding),
      x_scale(device, DType::kF32, XScaleShape(s, u), blocks() ? s.scale_padding : 0),
      weight(device, DType::kU8, {s.outputs, s.inputs}, s.padding),
      weight_scale(device, DType::kF32, WeightScaleShape(s, u), blocks() ? s.padding : 0) {
  TestRng rng(static_cast<uint64_t>(s.tokens * 7919 + s.inputs * 31 + s.outputs));
  SetCodes(x, rng);
  SetCodes(weight, rng);
  x_scale.SetUniform(rng, 0.5, 2);
  weight_scale.SetUniform(rng, least, most);
}

void Fp8Operands::ExpectGuardsIntact() const {
  for (const GuardedTensor* t : {&x, &x_scale, &weight, &weight_scale}) {
    EXPECT_TRUE(t->GuardsIntact());
  }
}

int64_t Fp8Operands::XScaleAt(int64_t token, int64_t input) const {
  if (blocks()) return input / 128 * shape.tokens + token;
  return x_scale.size() == 1 ? 0 : token;
}

int64_t Fp8Operands::WeightScaleAt(int64_t output, int64_t input) const {
  if (blocks()) return output / 128 * Blocks(shape.inputs) + input / 128;
  return weight_scale.size() == 1 ? 0 : output;
}

Fp8Product::Fp8Product(const Fp8Operands& operands, bool cuts)
    : operands_(operands),
      cuts_(cuts),
      x_(DecodeE4M3(operands.x.Get())),
      weight_(DecodeE4M3(operands.weight.Get())),
      x_scale_(operands.x_scale.Get()),
      weight_scale_(operands.weight_scale.Get()) {}

Fp8Element Fp8Product::At(int64_t token, int64_t output) const {
  const int64_t inputs = operands_.shape.inputs;
  Fp8Element element;
  for (int64_t begin = 0; begin < inputs; begin += 128) {
    Fp8BlockSum sum(cuts_);
    for (int64_t k = begin; k < std::min(begin + 128, inputs); ++k) {
      sum.Add(ValueAt(x_, token * inputs + k), ValueAt(weight_, output * inputs + k));
    }
    sum.EndGroup();
    element.Add(sum, ValueAt(x_scale_, operands_.XScaleAt(token, begin)) *
                         ValueAt(weight_scale_, operands_.WeightScaleAt(output, begin)));
  }
  return element;
}

}  // namespace millrace
