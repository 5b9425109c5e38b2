// How far products are from those of the numbers before quantisation, and of the codes, from short
// sums to long ones. Prints both tables; README.md has their figures.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "kernels/fp8_gemm/fp8_gemm.h"
#include "kernels/fp8_gemm/test_tensors.h"
#include "kernels/quantize/quantize.h"
#include "kernels/testing/fp8_sum.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"
#include "kernels/testing/test_rng.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

constexpr int64_t kInputs[] = {128, 1024, 7168, 65536};
constexpr int64_t kOutputs = 16;

// Numbers before quantisation.
enum class Data : uint8_t {
  kNormal,
  kOutliers,    // one in 128 is 10^3 to 10^4 times as large
  kChannels,    // some inputs are, of all tokens; others of all outputs
  kCancelling,  // the second half of a sum nearly takes back what the first adds up to
  kPositive,
};
struct Named {
  Data data;
  const char* name;
};
constexpr Named kData[] = {{Data::kNormal, "normal"},
                           {Data::kOutliers, "outliers"},
                           {Data::kChannels, "outlier channels"},
                           {Data::kCancelling, "cancelling"},
                           {Data::kPositive, "positive"}};

bool SignsAreRandom(Data data) { return data != Data::kCancelling && data != Data::kPositive; }

const char* Name(Fp8Units units) {
  return units == Fp8Units::kBlocks ? "blocks" : units == Fp8Units::kAll ? "tensor" : "vectors";
}

// Of x, whose outlier channels are others than the weight's.
double Element(Data data, bool of_x, int64_t input, TestRng& rng) {
  const double value = rng.Normal();
  const double large = value * rng.Uniform(1e3, 1e4);
  switch (data) {
    case Data::kNormal:
      return value;
    case Data::kOutliers:
      return rng.Integer(1, 128) == 1 ? large : value;
    case Data::kChannels:
      return input % (of_x ? 97 : 89) == 5 ? large : value;
    case Data::kCancelling:
    case Data::kPositive:
      return std::abs(value);
  }
  return 0;
}

GuardedTensor Reals(Device& device, Data data, bool of_x, int64_t rows, int64_t inputs) {
  Values values;
  TestRng rng(static_cast<uint64_t>(2 * inputs + of_x));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < inputs; ++k) values.push_back(Element(data, of_x, k, rng));
    if (data != Data::kCancelling) continue;
    double* const half = values.data() + (row * inputs + inputs / 2);
    for (int64_t k = 0; k < inputs / 2; ++k) {
      const double first = half[k - inputs / 2];
      half[k] = of_x ? first : -first * (1 + 1e-3 * rng.Normal());
    }
  }
  GuardedTensor t(device, DType::kF32, {rows, inputs});
  t.Set(values);
  return t;
}

// One scale.
TensorView Only(const TensorView& scales, int64_t row, int64_t column) {
  TensorView one = scales;
  one.data = one.as<float>() + row * one.stride(0) + column;
  one.rank = 1;
  one.dims = {1};
  one.strides = {1};
  return one;
}

absl::Status QuantizeAll(const OpContext& ctx, const GuardedTensor& x, const GuardedTensor& weight,
                         const Fp8GemmTensors& t) {
  QuantizeArgs of_x = {.x = x.view(), .codes = t.x.view(), .scale = t.x_scale.view()};
  QuantizeArgs of_weight = {
      .x = weight.view(), .codes = t.weight.view(), .scale = t.weight_scale.view()};
  if (t.units != Fp8Units::kBlocks) {
    of_x.unit = of_weight.unit =
        t.units == Fp8Units::kAll ? QuantizeUnit::kTensor : QuantizeUnit::kToken;
    RETURN_IF_ERROR(Quantize(ctx, of_x));
    return Quantize(ctx, of_weight);
  }
  RETURN_IF_ERROR(Quantize(ctx, of_x));
  for (int64_t row = 0; row < t.shape.outputs; row += kFp8GemmBlock) {
    for (int64_t input = 0; input < t.shape.inputs; input += kFp8GemmBlock) {
      const int64_t row_end = std::min(row + kFp8GemmBlock, t.shape.outputs);
      const int64_t end = std::min(input + kFp8GemmBlock, t.shape.inputs);
      RETURN_IF_ERROR(Quantize(
          ctx, {.x = weight.view().Rows(row, row_end).Cols(input, end),
                .codes = t.weight.view().Rows(row, row_end).Cols(input, end),
                .scale = Only(t.weight_scale.view(), row / kFp8GemmBlock, input / kFp8GemmBlock),
                .unit = QuantizeUnit::kTensor}));
    }
  }
  return absl::OkStatus();
}

// The product of an element's originals.
struct Original {
  double value = 0;
  double magnitude = 0, square = 0;  // the sums of its products' absolute values and squares
  // What quantisation may add at most, and the square of what that adds up to with either sign.
  double most = 0, spread = 0;
};

double ValueAt(const Values& values, int64_t i) { return values[static_cast<size_t>(i)]; }

// A code lies within half a step of E4M3: 2^-4 of the number, or 2^-10 scales among subnormals; the
// quotient is rounded before.
double Step(double value, double scale) {
  return std::max(std::abs(value) / 16, scale / 1024) + 1e-6 * std::abs(value);
}

// What can be said before a kernel has run of some outputs.
class Oracle {
 public:
  Oracle(const Fp8GemmTensors& t, const Values& x, const Values& weight, bool cuts) {
    const Values x_scale = t.x_scale.Get(), weight_scale = t.weight_scale.Get();
    const Fp8Product product(t, cuts);
    const int64_t inputs = t.shape.inputs;
    for (int64_t token : {0, 1, 3, 4, 7, 9, 16, 23, 33, 38, 63, 71, 99, 127, 131}) {
      if (token >= t.shape.tokens) break;
      for (int64_t output = token % 2; output < kOutputs; output += 2) {
        Original o;
        for (int64_t k = 0; k < inputs; ++k) {
          const double a = ValueAt(x, token * inputs + k), b = ValueAt(weight, output * inputs + k);
          const double of_a = Step(a, ValueAt(x_scale, t.XScaleAt(token, k)));
          const double of_b = Step(b, ValueAt(weight_scale, t.WeightScaleAt(output, k)));
          const double by_a = of_a * std::abs(b), by_b = std::abs(a) * of_b, by_both = of_a * of_b;
          o.value += a * b;
          o.magnitude += std::abs(a * b);
          o.square += a * a * b * b;
          o.most += by_a + by_b + by_both;
          o.spread += by_a * by_a + by_b * by_b + by_both * by_both;
        }
        places_.push_back({token, token * kOutputs + output, o, product.At(token, output)});
      }
    }
  }

  struct Place {
    int64_t token, at;
    Original original;
    Fp8Element codes;
  };
  const std::vector<Place>& places() const { return places_; }

 private:
  std::vector<Place> places_;
};

// Roots of summed squares, of y beside the originals' products and beside the codes' product, over
// what those would be of sums as large as random signs make them, or where signs are not random, of
// the products' absolute values.
struct Errors {
  double of_originals = 0, of_codes = 0;
};

class Fp8GemmErrorTest : public OpTest {
 protected:
  bool gpu() { return device().type() == DeviceType::kCuda; }

  // The first rows of y by a kernel for so many tokens.
  Errors Check(const Oracle& oracle, const Values& y, int64_t tokens, int64_t inputs,
               bool random_signs) {
    // In f32, of the norm: some sums within blocks, and one more for each block.
    const double f32 = 0x1p-24 * (2 + std::sqrt(static_cast<double>(inputs) / 128) / 2);
    double count = 0, norm = 0, of_originals = 0, of_codes = 0, originals_off = 0, codes_off = 0;
    for (const Oracle::Place& place : oracle.places()) {
      if (place.token >= tokens) continue;
      const Original& o = place.original;
      const Fp8Element& c = place.codes;
      const double to_original = y[static_cast<size_t>(place.at)] - o.value;
      const double to_codes = y[static_cast<size_t>(place.at)] - c.value;
      const double off = 1e-6 * c.magnitude + c.cut;
      EXPECT_LE(std::abs(to_codes), off) << place.at;
      EXPECT_LE(std::abs(to_original), o.most + off) << place.at;
      count += 1;
      norm += random_signs ? o.square : o.magnitude * o.magnitude;
      of_originals += to_original * to_original;
      of_codes += to_codes * to_codes;
      originals_off += to_original * to_original / (o.spread + c.spread);
      codes_off += to_codes * to_codes / (c.spread + f32 * f32 * o.square);
    }
    if (random_signs) {
      // Errors are spread evenly over half a step, and that is bound as if its number were the
      // least with such a step: 0.4 of it in the mean, of the fewest outputs (16) at most 0.62.
      EXPECT_LT(std::sqrt(originals_off / count), 0.75);
      EXPECT_LT(std::sqrt(codes_off / count), 1);
    }
    return {std::sqrt(of_originals / norm), std::sqrt(of_codes / norm)};
  }
};

void PrintRow(const std::string& row, const Values& errors) {
  std::printf("%-44s", row.c_str());
  for (double error : errors) std::printf(" %8.1e", error);
  std::printf("\n");
}

// The errors of all kernels by name, in f32, for one kind of numbers: a row a kernel, a column K.
TEST_P(Fp8GemmErrorTest, StaysWithinTheFormatFromShortSumsToLong) {
  const int64_t tokens = gpu() ? kFp8GemmWaysTokens : 8;
  for (const auto& [data, name] : kData) {
    std::vector<std::string> rows;
    std::vector<Values> of_originals, of_codes;
    for (int64_t inputs : kInputs) {
      const GuardedTensor x = Reals(device(), data, true, tokens, inputs);
      const GuardedTensor weight = Reals(device(), data, false, kOutputs, inputs);
      const Values xs = x.Get(), weights = weight.Get();
      size_t row = 0;
      for (Fp8Units units : kFp8ServedUnits) {
        Fp8GemmTensors t(device(), {tokens, inputs, kOutputs, 0, 0}, units, DType::kF32);
        ASSERT_EQ(QuantizeAll(ctx(), x, weight, t), absl::OkStatus());
        const Oracle oracle(t, xs, weights, gpu());
        for (const Fp8GemmWay& way : Fp8GemmWays(device(), units)) {
          const std::string label =
              std::string(name) + ", " + Name(units) + ", " + std::string(way.name);
          SCOPED_TRACE(label + ", " + std::to_string(inputs) + " inputs");
          t.y.SetAll(0);
          ASSERT_EQ(Fp8GemmBy(way.kernel, ctx(), t.Args(way.tokens)), absl::OkStatus());
          const Errors e = Check(oracle, t.y.Get(), way.tokens, inputs, SignsAreRandom(data));
          if (row == rows.size()) {
            rows.push_back(label);
            of_originals.emplace_back();
            of_codes.emplace_back();
          }
          of_originals[row].push_back(e.of_originals);
          of_codes[row++].push_back(e.of_codes);
        }
      }
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      PrintRow(rows[i] + ", originals", of_originals[i]);
      PrintRow(rows[i] + ", codes", of_codes[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Fp8GemmErrorTest, ::testing::ValuesIn(Fp8GemmDevices()),
                         DeviceName);

}  // namespace
}  // namespace millrace
