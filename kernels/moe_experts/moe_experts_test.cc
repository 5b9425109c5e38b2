#include "kernels/moe_experts/moe_experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/lowp/small_float.h"
#include "kernels/moe_experts/moe_experts_cases.h"
#include "kernels/stored_matrix/random_stored_matrix.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

// The codes' values have a spread of several units: this many inputs would take SwiGLU far out.
constexpr double kSmall = 0.02;

// Operands of one call.
struct Tensors {
  Tensors(Device& device, const MoeExpertsCase& c, const StoredKind& kind)
      : rng(static_cast<uint64_t>(c.tokens * 7919 + c.hidden * 31 + c.width)),
        shape(c),
        x(device, DType::kF32, {c.tokens, c.hidden}, c.row_padding),
        experts(device, DType::kI32, {c.tokens, c.chosen}, c.row_padding),
        weights(device, DType::kF32, {c.tokens, c.chosen}, c.row_padding),
        y(device, DType::kF32, {c.tokens, c.hidden}, c.row_padding),
        gate(device, rng, kind, {.count = c.experts, .rows = c.width, .cols = c.hidden}),
        up(device, rng, kind, {.count = c.experts, .rows = c.width, .cols = c.hidden}),
        down(device, rng, kind, {.count = c.experts, .rows = c.hidden, .cols = c.width}) {
    x.SetNormal(rng, kSmall);
    weights.SetUniform(rng, 0.1, 2);
    Values ids;  // distinct within a token
    for (int64_t t = 0; t < c.tokens; ++t) {
      const int64_t start = rng.Integer(0, c.all_experts - 1);
      for (int64_t k = 0; k < c.chosen; ++k) {
        ids.push_back(static_cast<double>((start + k) % c.all_experts));
      }
    }
    experts.Set(ids);
  }

  MoeExpertsArgs Args() const {
    return {.x = x.view(),
            .experts = experts.view(),
            .weights = weights.view(),
            .gate = gate.view(),
            .up = up.view(),
            .down = down.view(),
            .first_expert = static_cast<int32_t>(shape.first_expert),
            .limit = shape.limit,
            .y = y.view()};
  }

  bool GuardsIntact() const {
    return x.GuardsIntact() && experts.GuardsIntact() && weights.GuardsIntact() && y.GuardsIntact();
  }

  TestRng rng;
  MoeExpertsCase shape;
  GuardedTensor x, experts, weights, y;
  RandomStoredMatrix gate, up, down;
};

double Clamped(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

// What activations become: 2^ceil(log2(amax / 448)) for each 128, and E4M3 of what is left.
// `slack`: how far each may move where it is this near (relative) to where the rounding turns.
constexpr double kNearTurn = 1e-5;
void Round(Values& x, Values& slack) {
  slack.assign(x.size(), 0.0);
  for (size_t begin = 0; begin < x.size(); begin += 128) {
    const size_t end = std::min(begin + 128, x.size());
    double amax = 1e-4;
    for (size_t i = begin; i < end; ++i) amax = std::max(amax, std::abs(x[i]));
    const double scale = std::exp2(std::ceil(std::log2(amax / 448)));
    const auto rounded = [&](double v) {
      return static_cast<double>(kE4M3Values[EncodeE4M3(v / scale)]) * scale;
    };
    for (size_t i = begin; i < end; ++i) {
      slack[i] = std::abs(rounded(x[i] * (1 + kNearTurn)) - rounded(x[i] * (1 - kNearTurn)));
      x[i] = rounded(x[i]);
    }
  }
}

// How far a token's outputs may be off.
struct Bounds {
  double scale = 0;  // the largest magnitude on the way
  Values slack;  // of each output, where roundings in front of down turn; empty without roundings
};

// One expert's answer to one token, by the formula.
Values Answer(const Tensors& t, int64_t expert, const double* x, double weight, Bounds& bounds) {
  const bool rounds = !bounds.slack.empty();
  const double limit = t.shape.limit > 0 ? static_cast<double>(t.shape.limit)
                                         : std::numeric_limits<double>::infinity();
  Values hidden;
  for (int64_t i = 0; i < t.shape.width; ++i) {
    double gate = 0, up = 0;
    for (int64_t d = 0; d < t.shape.hidden; ++d) {
      gate += t.gate.At(expert, i, d) * x[d];
      up += t.up.At(expert, i, d) * x[d];
    }
    gate = Clamped(gate, -1e300, limit);
    hidden.push_back(gate / (1 + std::exp(-gate)) * Clamped(up, -limit, limit) * weight);
  }
  Values turns;
  if (rounds) Round(hidden, turns);
  Values out;
  for (int64_t d = 0; d < t.shape.hidden; ++d) {
    double sum = 0, magnitude = 0;
    for (int64_t i = 0; i < t.shape.width; ++i) {
      const double product = t.down.At(expert, d, i) * hidden[static_cast<size_t>(i)];
      sum += product;
      magnitude += std::abs(product);
      if (rounds) {
        bounds.slack[static_cast<size_t>(d)] +=
            std::abs(t.down.At(expert, d, i)) * turns[static_cast<size_t>(i)];
      }
    }
    bounds.scale = std::max(bounds.scale, magnitude);
    out.push_back(sum);
  }
  return out;
}

void ExpectFormula(const Tensors& t, ActivationRounding rounding = ActivationRounding::kNone) {
  const bool rounds = rounding == ActivationRounding::kFp8Per128;
  const Values x = t.x.Get(), ids = t.experts.Get(), weights = t.weights.Get(), got = t.y.Get();
  for (int64_t token = 0; token < t.shape.tokens; ++token) {
    Values want(static_cast<size_t>(t.shape.hidden), 0.0), unused;
    Bounds bounds;
    const double* const begin = x.data() + token * t.shape.hidden;
    Values row(begin, begin + t.shape.hidden);
    if (rounds) {
      Round(row, unused);
      bounds.slack.assign(want.size(), 0.0);
    }
    for (int64_t k = 0; k < t.shape.chosen; ++k) {
      const auto at = static_cast<size_t>(token * t.shape.chosen + k);
      const int64_t expert = static_cast<int64_t>(ids[at]) - t.shape.first_expert;
      if (expert < 0 || expert >= t.shape.experts) continue;
      const Values one = Answer(t, expert, row.data(), weights[at], bounds);
      for (size_t d = 0; d < want.size(); ++d) want[d] += one[d];
    }
    for (size_t d = 0; d < want.size(); ++d) {
      // Sums of gate and up lose 2^-24 of their magnitudes here and there, which SwiGLU may
      // multiply by its slope.
      ASSERT_NEAR(got[static_cast<size_t>(token * t.shape.hidden) + d], want[d],
                  4e-6 * bounds.scale + (rounds ? bounds.slack[d] : 0))
          << "token " << token << " channel " << d;
    }
  }
  EXPECT_TRUE(t.GuardsIntact());
}

class MoeExpertsTest : public OpTest {
 protected:
  void Run(const MoeExpertsArgs& args) {
    const absl::Status status = MoeExperts(ctx(), args);
    ASSERT_TRUE(status.ok()) << status;
  }
  // Alone and among others they have the same bits.
  void ExpectTokensAlone(const MoeExpertsCase& c, const StoredKind& kind,
                         ActivationRounding rounding);
};

TEST_P(MoeExpertsTest, MatchesTheFormulaInEveryFormat) {
  for (const StoredKind& kind : kStoredKinds) {
    for (const MoeExpertsCase& c : kMoeExpertsCases) {
      SCOPED_TRACE(testing::Message()
                   << KindName(kind) << " " << c.tokens << " x " << c.hidden << " by " << c.width
                   << ", " << c.chosen << " of " << c.all_experts);
      Tensors t(device(), c, kind);
      Run(t.Args());
      ExpectFormula(t);
    }
  }
}

TEST_P(MoeExpertsTest, LimitAndWeightsMatter) {
  const MoeExpertsCase c = {4, 64, 32, 4, 0, 4, 2};
  for (const float limit : {0.0f, 0.01f, 100.0f}) {
    MoeExpertsCase limited = c;
    limited.limit = limit;
    Tensors t(device(), limited, {StoredFormat::kMxFp4});
    t.x.SetNormal(t.rng, 1);
    Run(t.Args());
    ExpectFormula(t);
    const Values before = t.y.Get();
    t.weights.SetAll(0);
    Run(t.Args());
    EXPECT_EQ(t.y.Get(), Values(before.size(), 0.0));
  }
}

TEST_P(MoeExpertsTest, OtherRanksExpertsCountNothing) {
  Tensors t(device(), {4, 64, 32, 6, 2, 3, 3}, {StoredFormat::kMxFp4});
  t.experts.Set({0, 1, 5, -1, -1, -1, 4, 1, -7, 2147483647, 2, -2147483648});
  Run(t.Args());
  ExpectFormula(t);
  const Values y = t.y.Get();
  EXPECT_EQ(Values(y.begin(), y.begin() + 2 * 64), Values(2 * 64, 0.0));
  EXPECT_NE(Values(y.begin() + 2 * 64, y.begin() + 3 * 64), Values(64, 0.0));
}

TEST_P(MoeExpertsTest, BFloat16Activations) {
  Tensors t(device(), {9, 96, 64, 4, 0, 4, 2}, {StoredFormat::kNvFp4});
  GuardedTensor narrow(device(), DType::kBF16, {9, 96}, 1);
  narrow.Set(t.x.Get());
  MoeExpertsArgs args = t.Args();
  args.x = narrow.view();
  Run(args);
  t.x.Set(narrow.Get());
  ExpectFormula(t);
}

// Rounding in front of gate and up, and once more in front of down.
TEST_P(MoeExpertsTest, RoundsBothActivations) {
  const MoeExpertsCase c = {1, 32, 32, 1, 0, 1, 1};
  for (const bool quantised : {true, false}) {
    Tensors t(device(), c, {quantised ? StoredFormat::kMxFp4 : StoredFormat::kBF16});
    MoeExpertsArgs args = t.Args();
    Run(args);
    const Values exact = t.y.Get();
    args.rounding = ActivationRounding::kFp8Per128;
    Run(args);
    const Values rounded = t.y.Get();
    EXPECT_EQ(exact != rounded, quantised);
    double error = 0, size = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      error += std::pow(exact[i] - rounded[i], 2);
      size += std::pow(exact[i], 2);
    }
    // E4M3 is within 2^-4 of a number.
    EXPECT_LT(std::sqrt(error / size), 0.1);
  }
  // An input that E4M3 has, so that what differs is the rounding in front of down.
  Tensors t(device(), c, {StoredFormat::kMxFp4});
  Values x(32, 0.0);
  x[3] = 1.0;
  t.x.Set(x);
  t.weights.SetAll(1);
  MoeExpertsArgs args = t.Args();
  Run(args);
  const Values exact = t.y.Get();
  args.rounding = ActivationRounding::kFp8Per128;
  Run(args);
  EXPECT_NE(t.y.Get(), exact);
}

// What the kernels of GPUs take for served models: NVFP4 with activations rounded.
TEST_P(MoeExpertsTest, RoundedActivationsByTheFormula) {
  const auto expect = [&](const StoredKind& kind, const MoeExpertsCase& c) {
    SCOPED_TRACE(testing::Message() << KindName(kind) << " " << c.tokens << " x " << c.hidden
                                    << " by " << c.width << ", " << c.chosen);
    Tensors t(device(), c, kind);
    MoeExpertsArgs args = t.Args();
    args.rounding = ActivationRounding::kFp8Per128;
    t.y.SetAll(std::numeric_limits<double>::quiet_NaN());
    Run(args);
    ExpectFormula(t, args.rounding);
    const std::vector<uint8_t> first = t.y.GetBytes();
    Run(args);
    EXPECT_EQ(t.y.GetBytes(), first);
  };
  for (const MoeExpertsCase& c : kMoeExpertsRoundedCases) expect({StoredFormat::kNvFp4}, c);
  expect({StoredFormat::kNvFp4, false, true}, kMoeExpertsRoundedCases[0]);
  expect({StoredFormat::kFp8}, kMoeExpertsRoundedCases[0]);
  expect({StoredFormat::kMxFp4}, kMoeExpertsRoundedCases[0]);
}

// The scale of a block of 16 that is NaN spoils its expert's tokens.
TEST_P(MoeExpertsTest, NanScalesStayInTheirExpert) {
  Tensors t(device(), {4, 256, 256, 3, 0, 3, 1}, {StoredFormat::kNvFp4});
  t.experts.Set({0, 1, 2, 0});
  t.up.SetNan(2, 15, 255);
  t.down.SetNan(1, 255, 0);
  MoeExpertsArgs args = t.Args();
  args.rounding = ActivationRounding::kFp8Per128;
  Run(args);
  const Values y = t.y.Get();
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(std::isnan(y[i]), i / 256 == 2 || i == 511) << i;
  }
}

void MoeExpertsTest::ExpectTokensAlone(const MoeExpertsCase& c, const StoredKind& kind,
                                       ActivationRounding rounding) {
  Tensors all(device(), c, kind), some(device(), c, kind);
  MoeExpertsArgs args = all.Args();
  args.rounding = rounding;
  Run(args);
  for (int64_t begin = 0, size = 1; begin < c.tokens; begin += size, ++size) {
    const int64_t end = std::min(begin + size, c.tokens);
    MoeExpertsArgs part = some.Args();
    part.rounding = rounding;
    for (TensorView* view : {&part.x, &part.experts, &part.weights, &part.y}) {
      *view = view->Rows(begin, end);
    }
    Run(part);
  }
  EXPECT_EQ(all.y.GetBytes(), some.y.GetBytes()) << KindName(kind);
}

TEST_P(MoeExpertsTest, ATokenDoesNotDependOnTheOthers) {
  for (const StoredKind& kind : kStoredKinds) {
    ExpectTokensAlone({300, 64, 96, 5, 1, 4, 2, 0, 1.0f}, kind, ActivationRounding::kNone);
  }
  ExpectTokensAlone({90, 512, 256, 9, 1, 7, 4, 0, 1.0f}, {StoredFormat::kNvFp4},
                    ActivationRounding::kFp8Per128);
}

// A sum of as many terms, in the order of the choices: two ranks' parts add up to the whole.
TEST_P(MoeExpertsTest, RanksAddUp) {
  const MoeExpertsCase c = {17, 64, 32, 4, 0, 4, 3};
  Tensors t(device(), c, {StoredFormat::kFp8});
  Run(t.Args());
  const Values whole = t.y.Get();
  Values sum(whole.size(), 0.0);
  for (int32_t expert = 0; expert < 4; ++expert) {
    MoeExpertsArgs args = t.Args();
    args.first_expert = expert;
    args.gate = args.gate.Matrix(expert);
    args.up = args.up.Matrix(expert);
    args.down = args.down.Matrix(expert);
    Run(args);
    const Values part = t.y.Get();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  EXPECT_TRUE(AllClose(sum, whole, {1e-5, 1e-5}));
}

TEST_P(MoeExpertsTest, NanStaysInItsToken) {
  Tensors t(device(), {4, 64, 32, 3, 0, 3, 1}, {StoredFormat::kFp8});
  t.experts.Set({0, 1, 2, 0});
  t.gate.SetNan(2, 5, 7);
  Values x = t.x.Get();
  x[64] = std::numeric_limits<double>::quiet_NaN();
  t.x.Set(x);
  Run(t.Args());
  const Values y = t.y.Get();
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 64 == 1 || i / 64 == 2);
}

TEST_P(MoeExpertsTest, RefusesWhatDoesNotFit) {
  Tensors t(device(), {2, 64, 32, 4, 0, 4, 2}, {StoredFormat::kMxFp4});
  const auto reason = [&](auto change) {
    MoeExpertsArgs args = t.Args();
    change(args);
    return std::string(MoeExperts(ctx(), args).message());
  };
  EXPECT_EQ(reason([](auto& a) { a.weights = a.weights.Cols(0, 1); }),
            "MoeExperts: weights.dim(1) = 1, want 2");
  EXPECT_EQ(reason([](auto& a) { a.x = a.x.Cols(0, 63); }), "MoeExperts: x.dim(1) = 63, want 64");
  EXPECT_EQ(reason([](auto& a) { a.up = a.up.Matrix(0); }),
            "MoeExperts: up must have gate's format, number of matrices and sizes");
  EXPECT_EQ(reason([](auto& a) { a.down = a.gate; }),
            "MoeExperts: down must have gate's number of matrices and its sizes exchanged");
  EXPECT_EQ(reason([](auto& a) { a.first_expert = -1; }),
            "MoeExperts: first_expert must not be negative");
  EXPECT_EQ(reason([](auto& a) { a.limit = -1; }), "MoeExperts: limit must not be negative");
  const std::string on = device().type() == DeviceType::kCpu ? " on cpu" : " on cuda";
  EXPECT_EQ(
      reason([](auto& a) { a.down.scales.dims[2] = 2; }),
      "MoeExperts: down.scales is uint8[4, 64, 2]" + on + ", want dense uint8[4, 64, 1]" + on);
}

// As many as a rank of the largest served model has without expert parallelism.
TEST_P(MoeExpertsTest, HundredsOfExperts) {
  Tensors t(device(), {70, 32, 32, 384, 0, 384, 6}, {StoredFormat::kMxFp4});
  Run(t.Args());
  ExpectFormula(t);
}

TEST_P(MoeExpertsTest, NothingChosenGivesZeros) {
  const auto expect_zeros = [&](const MoeExpertsCase& c) {
    Tensors t(device(), c, {StoredFormat::kNvFp4});
    t.y.SetAll(1);
    MoeExpertsArgs args = t.Args();
    args.rounding = ActivationRounding::kFp8Per128;
    Run(args);
    EXPECT_EQ(t.y.Get(), Values(static_cast<size_t>(c.tokens * c.hidden), 0.0));
    EXPECT_TRUE(t.GuardsIntact());
  };
  expect_zeros({3, 64, 32, 4, 0, 4, 0, 1});
  expect_zeros({3, 256, 256, 4, 0, 0, 2});
}

TEST_P(MoeExpertsTest, NeedsTheWorkspaceItSays) {
  for (int64_t tokens : {1, 300}) {
    Tensors t(device(), {tokens, 64, 96, 5, 0, 5, 3}, {StoredFormat::kFp8});
    const int64_t bytes =
        MoeExpertsWorkspaceBytes(device(), {.hidden = 64, .width = 96, .experts = 5, .chosen = 3});
    GuardedTensor memory(device(), DType::kU8, {bytes});
    Workspace enough(memory.view().data, bytes), small(memory.view().data, 1024);
    EXPECT_TRUE(MoeExperts({device(), Stream{}, enough}, t.Args()).ok());
    EXPECT_TRUE(memory.GuardsIntact());
    EXPECT_EQ(MoeExperts({device(), Stream{}, small}, t.Args()).code(),
              absl::StatusCode::kResourceExhausted);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MoeExpertsTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

// Bits must not depend on how many threads there are.
TEST(MoeExpertsThreadsTest, AgreeBitForBit) {
  std::vector<std::vector<uint8_t>> results;
  for (int threads : {1, 2, 3, 5}) {
    OpTestBed bed({.name = "cpu", .threads = threads, .isa = DetectIsa()});
    Tensors t(bed.device(), {30, 160, 96, 6, 0, 6, 2}, {StoredFormat::kNvFp4});
    ASSERT_TRUE(MoeExperts(bed.ctx(), t.Args()).ok());
    results.push_back(t.y.GetBytes());
    EXPECT_EQ(results.back(), results.front()) << threads << " threads";
  }
}

}  // namespace
}  // namespace millrace
