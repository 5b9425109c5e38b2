#include "kernels/moe_route/moe_route.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/moe_route/moe_route_cases.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Tolerance kTolerance = {1e-20, 5e-7};
// Two keys that f32 may order either way.
constexpr double kTieDistance = 2e-6;

double Score(double x) { return std::sqrt(std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)))); }

// `logits` and `experts` of one token.
Values ExpectedWeights(const Values& logits, const Values& experts, double scaling) {
  Values weights;
  for (double e : experts) weights.push_back(e < 0 ? 0 : Score(logits[static_cast<size_t>(e)]));
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (sum == 0) return weights;
  for (double& weight : weights) weight = weight / sum * scaling;
  return weights;
}

Values Slice(const Values& values, int64_t token, int64_t size) {
  return Values(values.begin() + token * size, values.begin() + (token + 1) * size);
}

void Append(Values& all, const Values& part) { all.insert(all.end(), part.begin(), part.end()); }

// Operands of one call, of either router.
struct Tensors {
  Tensors(Device& device, const MoeRouteCase& c)
      : logits(device, DType::kF32, {c.tokens, c.experts}, c.row_padding),
        bias(device, DType::kF32, {c.experts}),
        experts(device, DType::kI32, {c.tokens, c.chosen}, c.row_padding),
        weights(device, DType::kF32, {c.tokens, c.chosen}, c.row_padding) {
    TestRng rng(static_cast<uint64_t>(c.tokens * 7919 + c.experts));
    logits.SetNormal(rng, 3);
    bias.SetNormal(rng);
  }

  MoeRouteByScoreArgs ByScore(float scaling = 1.5f) const {
    return {.logits = logits.view(),
            .bias = bias.view(),
            .experts = experts.view(),
            .weights = weights.view(),
            .scaling = scaling};
  }

  MoeRouteByHashArgs ByHash(const GuardedTensor& ids, const GuardedTensor& table,
                            float scaling = 1.5f) const {
    return {.logits = logits.view(),
            .ids = ids.view(),
            .table = table.view(),
            .experts = experts.view(),
            .weights = weights.view(),
            .scaling = scaling};
  }

  bool GuardsIntact() const {
    return logits.GuardsIntact() && bias.GuardsIntact() && experts.GuardsIntact() &&
           weights.GuardsIntact();
  }

  GuardedTensor logits, bias, experts, weights;
};

class MoeRouteTest : public OpTest {
 protected:
  void Run(const MoeRouteByScoreArgs& args) {
    const absl::Status status = MoeRouteByScore(ctx(), args);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  }

  void Run(const MoeRouteByHashArgs& args) {
    const absl::Status status = MoeRouteByHash(ctx(), args);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  }

  // What one token without ties is sent to: against a stable sort of its keys.
  void ExpectLargest(const Values& logits, const Values& bias, const Values& got) {
    Values keys;
    for (size_t e = 0; e < bias.size(); ++e) keys.push_back(Score(logits[e]) + bias[e]);
    std::vector<size_t> order(keys.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return keys[a] > keys[b]; });
    Values distinct = got;
    std::sort(distinct.begin(), distinct.end());
    EXPECT_EQ(std::unique(distinct.begin(), distinct.end()), distinct.end());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(got[i] >= 0 && got[i] < static_cast<double>(keys.size())) << got[i];
      if (got[i] == static_cast<double>(order[i])) continue;
      EXPECT_NEAR(keys[static_cast<size_t>(got[i])], keys[order[i]], kTieDistance) << "place " << i;
    }
  }

  void CheckByScore(const MoeRouteCase& c, float scaling) {
    SCOPED_TRACE(testing::Message() << c.tokens << " tokens, " << c.chosen << " of " << c.experts);
    Tensors t(device(), c);
    Run(t.ByScore(scaling));
    const Values logits = t.logits.Get(), bias = t.bias.Get(), experts = t.experts.Get();
    Values want;
    for (int64_t token = 0; token < c.tokens; ++token) {
      const Values mine = Slice(logits, token, c.experts);
      ExpectLargest(mine, bias, Slice(experts, token, c.chosen));
      Append(want, ExpectedWeights(mine, Slice(experts, token, c.chosen), scaling));
    }
    EXPECT_TRUE(AllClose(t.weights.Get(), want, kTolerance));
    EXPECT_TRUE(t.GuardsIntact());
  }

  void CheckByHash(const MoeRouteCase& c, float scaling) {
    SCOPED_TRACE(testing::Message() << c.tokens << " tokens, " << c.chosen << " of " << c.experts);
    constexpr int64_t kIds = 41;
    Tensors t(device(), c);
    GuardedTensor ids(device(), DType::kI32, {c.tokens});
    GuardedTensor table(device(), DType::kI32, {kIds, c.chosen}, c.row_padding);
    TestRng rng(static_cast<uint64_t>(c.tokens));
    ids.SetIntegers(rng, 0, kIds - 1);
    table.SetIntegers(rng, 0, c.experts - 1);
    Run(t.ByHash(ids, table, scaling));
    const Values logits = t.logits.Get(), rows = table.Get();
    Values experts, want;
    for (double id : ids.Get()) {
      const auto token = static_cast<int64_t>(experts.size()) / c.chosen;
      const Values row = Slice(rows, static_cast<int64_t>(id), c.chosen);
      Append(experts, row);
      Append(want, ExpectedWeights(Slice(logits, token, c.experts), row, scaling));
    }
    EXPECT_EQ(t.experts.Get(), experts);
    EXPECT_TRUE(AllClose(t.weights.Get(), want, kTolerance));
    EXPECT_TRUE(t.GuardsIntact() && table.GuardsIntact());
  }
};

TEST_P(MoeRouteTest, MatchesTheFormulas) {
  for (const MoeRouteCase& c : kMoeRouteCases) {
    CheckByScore(c, 1.5f);
    CheckByHash(c, 1.5f);
  }
}

TEST_P(MoeRouteTest, ScalingMatters) {
  for (float scaling : {1.0f, 2.5f}) {
    CheckByScore({4, 16, 3, 0}, scaling);
    CheckByHash({4, 16, 3, 0}, scaling);
    Tensors t(device(), {4, 16, 3, 0});
    Run(t.ByScore(scaling));
    const Values weights = t.weights.Get();
    EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 4 * scaling, 1e-5);
  }
}

TEST_P(MoeRouteTest, BiasChoosesAndDoesNotWeigh) {
  Tensors t(device(), {1, 4, 2, 0});
  t.logits.Set({1, 2, 3, 4});
  t.bias.Set({10, 0, 9.5, 0});
  Run(t.ByScore());
  EXPECT_EQ(t.experts.Get(), (Values{2, 0}));  // 9.5 + 1.746 and 10 + 1.146
  EXPECT_TRUE(AllClose(t.weights.Get(), ExpectedWeights({1, 2, 3, 4}, {2, 0}, 1.5), kTolerance));
  t.bias.SetAll(0);
  Run(t.ByScore());
  EXPECT_EQ(t.experts.Get(), (Values{3, 2}));
  t.bias.SetAll(-100);
  Run(t.ByScore());
  EXPECT_EQ(t.experts.Get(), (Values{3, 2}));
}

TEST_P(MoeRouteTest, TiesGoToTheLowerId) {
  Tensors t(device(), {3, 300, 7, 0});
  Values logits(900, -1);
  for (size_t e : {299u, 40u, 170u}) logits[e] = 2;                // token 0: three above the rest
  for (size_t e = 0; e < 300; ++e) logits[300 + e] = 5 - (e % 3);  // token 1: hundreds of each
  t.logits.Set(logits);                                            // token 2: all equal
  t.bias.SetAll(0.25);
  Run(t.ByScore());
  EXPECT_EQ(t.experts.Get(), (Values{40, 170, 299, 0, 1,  2,  3,   //
                                     0,  3,   6,   9, 12, 15, 18,  //
                                     0,  1,   2,   3, 4,  5,  6}));
}

TEST_P(MoeRouteTest, ExtremeLogits) {
  Tensors t(device(), {6, 4, 2, 0});
  t.bias.SetAll(0);
  t.logits.Set({1e30,       3e30, 0,     0,           // no overflow in exp
                -30,        -31,  -40,   -50,         // the small scores' digits
                -kInfinity, -1e9, -1e20, -kInfinity,  // nothing but zeros
                kNan,       1,    kNan,  2,           // NaN is chosen last
                kNan,       1,    kNan,  kNan,        // and then poisons its token
                3,          1,    2,     0});
  Run(t.ByScore());
  EXPECT_EQ(t.experts.Get(), (Values{1, 0, 0, 1, 0, 1, 3, 1, 1, 0, 0, 2}));
  Values want = ExpectedWeights({1e30, 3e30}, {1, 0}, 1.5);
  Append(want, ExpectedWeights({-30, -31}, {0, 1}, 1.5));
  Append(want, {0, 0});
  Append(want, ExpectedWeights({0, 1, 0, 2}, {3, 1}, 1.5));
  Append(want, {kNan, kNan});
  Append(want, ExpectedWeights({3, 1, 2}, {0, 2}, 1.5));
  EXPECT_TRUE(AllClose(t.weights.Get(), want, kTolerance));
}

TEST_P(MoeRouteTest, NegativeIdsNameSlots) {
  Tensors t(device(), {5, 8, 2, 0});
  GuardedTensor ids(device(), DType::kI32, {5});
  GuardedTensor last_tokens(device(), DType::kI32, {3});
  GuardedTensor table(device(), DType::kI32, {4, 2});
  table.Set({7, 0, 6, 1, 5, 2, 4, 3});
  ids.Set({2, -1, -3, -2, -4});  // a token, slots 0 and 2, one that holds none, one not there
  last_tokens.Set({3, -1, 0});
  MoeRouteByHashArgs args = t.ByHash(ids, table);
  args.last_tokens = last_tokens.view();
  Run(args);
  EXPECT_EQ(t.experts.Get(), (Values{5, 2, 4, 3, 7, 0, -1, -1, -1, -1}));
  args.last_tokens.reset();
  Run(args);
  EXPECT_EQ(t.experts.Get(), (Values{5, 2, -1, -1, -1, -1, -1, -1, -1, -1}));
}

TEST_P(MoeRouteTest, NothingReachesOutsideTableOrExperts) {
  Tensors t(device(), {4, 3, 2, 0});
  GuardedTensor ids(device(), DType::kI32, {4});
  GuardedTensor table(device(), DType::kI32, {2, 2});
  t.logits.Set({1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3});
  table.Set({3, 1, -5, 2147483647.0});
  ids.Set({0, 1, 2, 2147483647.0});
  Run(t.ByHash(ids, table, 2.0f));
  EXPECT_EQ(t.experts.Get(), (Values{-1, 1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(t.weights.Get(), (Values{0, 2, 0, 0, 0, 0, 0, 0}));
}

TEST_P(MoeRouteTest, TokensAreIndependentAndTwiceTheSame) {
  const MoeRouteCase c = {90, 256, 6, 0};
  Tensors all(device(), c), again(device(), c);
  Run(all.ByScore());
  for (int64_t token = 0; token < c.tokens; ++token) {
    MoeRouteByScoreArgs one = again.ByScore();
    for (TensorView* view : {&one.logits, &one.experts, &one.weights}) {
      *view = view->Rows(token, token + 1);
    }
    Run(one);
  }
  EXPECT_EQ(all.experts.GetBytes(), again.experts.GetBytes());
  EXPECT_EQ(all.weights.GetBytes(), again.weights.GetBytes());
}

// What one device writes for a case, choices by score and then by hash.
std::vector<std::vector<uint8_t>> BytesOf(OpTestBed& bed, const MoeRouteCase& c) {
  Tensors t(bed.device(), c);
  GuardedTensor ids(bed.device(), DType::kI32, {c.tokens});
  GuardedTensor table(bed.device(), DType::kI32, {11, c.chosen}, c.row_padding);
  TestRng rng(static_cast<uint64_t>(c.experts));
  ids.SetIntegers(rng, 0, 10);
  table.SetIntegers(rng, 0, c.experts - 1);
  std::vector<std::vector<uint8_t>> bytes;
  const auto keep = [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(bed.device().Synchronize(bed.ctx().stream).ok());
    bytes.push_back(t.experts.GetBytes());
    bytes.push_back(t.weights.GetBytes());
  };
  // Scores of every size, and among many equal keys.
  for (double scale : {3.0, 40.0, 1e-7}) {
    TestRng noise(17);
    t.logits.SetNormal(noise, scale);
    keep(MoeRouteByScore(bed.ctx(), t.ByScore()));
    keep(MoeRouteByHash(bed.ctx(), t.ByHash(ids, table)));
    t.bias.SetAll(-0.75);
    keep(MoeRouteByScore(bed.ctx(), t.ByScore()));
  }
  return bytes;
}

TEST_P(MoeRouteTest, EveryDeviceWritesTheSameBits) {
  OpTestBed here(GetParam()), cpu({.name = "cpu"});
  for (const MoeRouteCase& c : kMoeRouteCases) {
    SCOPED_TRACE(testing::Message() << c.tokens << " tokens, " << c.chosen << " of " << c.experts);
    EXPECT_EQ(BytesOf(here, c), BytesOf(cpu, c));
  }
}

TEST_P(MoeRouteTest, RefusesWhatDoesNotFit) {
  Tensors t(device(), {2, 4, 3, 0});
  GuardedTensor ids(device(), DType::kI32, {2});
  GuardedTensor table(device(), DType::kI32, {9, 3});
  const auto by_score = [&](auto change) {
    MoeRouteByScoreArgs args = t.ByScore();
    change(args);
    return std::string(MoeRouteByScore(ctx(), args).message());
  };
  const auto by_hash = [&](auto change) {
    MoeRouteByHashArgs args = t.ByHash(ids, table);
    change(args);
    return std::string(MoeRouteByHash(ctx(), args).message());
  };
  EXPECT_EQ(by_score([](auto& a) { a.bias = a.bias.Rows(0, 3); }),
            "MoeRouteByScore: bias.dim(0) = 3, want 4");
  EXPECT_EQ(by_score([](auto& a) { a.weights = a.weights.Cols(0, 2); }),
            "MoeRouteByScore: weights.dim(1) = 2, want 3");
  EXPECT_EQ(by_score([](auto& a) { a.scaling = 0; }), "MoeRouteByScore: scaling must be positive");
  EXPECT_EQ(by_score([](auto& a) {
              a.logits = a.logits.Cols(0, 2);
              a.bias = a.bias.Rows(0, 2);
            }),
            "MoeRouteByScore: a token must go to at least one and at most all experts");
  EXPECT_EQ(by_score([](auto& a) { a.experts.dtype = DType::kI64; }),
            "MoeRouteByScore: experts has dtype int64, want int32");
  EXPECT_EQ(by_hash([](auto& a) { a.ids = a.ids.Rows(0, 1); }),
            "MoeRouteByHash: ids.dim(0) = 1, want 2");
  EXPECT_EQ(by_hash([](auto& a) { a.table = a.table.Cols(0, 2); }),
            "MoeRouteByHash: table.dim(1) = 2, want 3");
  EXPECT_EQ(by_hash([](auto& a) { a.table.dtype = DType::kI64; }),
            "MoeRouteByHash: table has dtype int64, want int32");
  EXPECT_EQ(by_hash([](auto& a) { a.scaling = -1; }), "MoeRouteByHash: scaling must be positive");
}

INSTANTIATE_TEST_SUITE_P(Devices, MoeRouteTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
