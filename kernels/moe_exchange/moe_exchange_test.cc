#include "kernels/moe_exchange/moe_exchange.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/moe_exchange/moe_exchange_cases.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

// Operands of one dispatch.
struct Tensors {
  Tensors(Device& device, const MoeExchangeCase& c, DType dtype)
      : x(device, dtype, {c.tokens, c.hidden}, c.row_padding),
        experts(device, DType::kI32, {c.tokens, c.chosen}, c.row_padding),
        weights(device, DType::kF32, {c.tokens, c.chosen}, c.row_padding),
        num_experts(c.experts),
        rows(device, DType::kF32,
             {c.tokens * std::min(c.chosen, c.ranks) + 1, MoeMessageWidth(c.hidden, c.chosen)}),
        source(device, DType::kI32, {c.tokens * std::min(c.chosen, c.ranks) + 1}),
        counts(device, DType::kI32, {c.ranks}) {
    TestRng rng(static_cast<uint64_t>(c.tokens * 31 + c.hidden));
    x.SetNormal(rng);
    weights.SetUniform(rng, 0, 1);
    Values chosen;
    for (int64_t t = 0; t < c.tokens; ++t) {
      for (int64_t k = 0; k < c.chosen; ++k) {
        chosen.push_back(static_cast<double>((t * 7 + k) % c.experts));
      }
    }
    if (c.tokens > 5) chosen[1] = -1;
    experts.Set(chosen);
  }

  MoeDispatchArgs Args() const {
    return {.x = x.view(),
            .experts = experts.view(),
            .weights = weights.view(),
            .num_experts = num_experts,
            .rows = rows.view(),
            .source = source.view(),
            .counts = counts.view()};
  }
  bool GuardsIntact() const {
    for (const GuardedTensor* t : {&x, &experts, &weights, &rows, &source, &counts}) {
      if (!t->GuardsIntact()) return false;
    }
    return true;
  }

  GuardedTensor x, experts, weights;
  int64_t num_experts;
  GuardedTensor rows, source, counts;
};

class MoeExchangeTest : public OpTest {
 protected:
  // As the contract says it, from the values.
  void CheckDispatch(const MoeExchangeCase& c, const Tensors& t) {
    const Values x = t.x.Get(), experts = t.experts.Get(), weights = t.weights.Get();
    const Values rows = t.rows.Get(), source = t.source.Get();
    const Values counts = t.counts.Get();
    const int64_t width = MoeMessageWidth(c.hidden, c.chosen);
    const TensorView named = MoeMessageExperts(t.rows.view(), c.chosen);
    int64_t row = 0;
    double first = 0;
    for (int64_t rank = 0; rank < c.ranks; ++rank) {
      int64_t count = 0;
      const double end =
          first + static_cast<double>(c.experts / c.ranks + (rank < c.experts % c.ranks ? 1 : 0));
      for (int64_t token = 0; token < c.tokens; ++token) {
        bool holds = false;
        for (int64_t k = 0; k < c.chosen; ++k) {
          const double e = experts[static_cast<size_t>(token * c.chosen + k)];
          holds |= e >= first && e < end;
        }
        if (!holds) continue;
        ASSERT_EQ(source[static_cast<size_t>(row)], static_cast<double>(token));
        for (int64_t i = 0; i < c.hidden; ++i) {
          ASSERT_EQ(rows[static_cast<size_t>(row * width + i)],
                    x[static_cast<size_t>(token * c.hidden + i)]);
        }
        for (int64_t k = 0; k < c.chosen; ++k) {
          const size_t choice = static_cast<size_t>(token * c.chosen + k);
          ASSERT_EQ(rows[static_cast<size_t>(row * width + c.hidden + k)], weights[choice]);
          ASSERT_EQ(named.as<int32_t>()[row * named.stride(0) + k], experts[choice]);
        }
        ++row;
        ++count;
      }
      EXPECT_EQ(counts[static_cast<size_t>(rank)], static_cast<double>(count));
      first = end;
    }
  }
};

TEST_P(MoeExchangeTest, PacksEachTokenForEachRankOfItsExperts) {
  for (const MoeExchangeCase& c : kMoeExchangeCases) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(testing::Message() << c.tokens << "x" << c.hidden << " on " << c.ranks);
      Tensors t(device(), c, dtype);
      ASSERT_TRUE(MoeDispatch(ctx(), t.Args()).ok());
      ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
      CheckDispatch(c, t);
      EXPECT_TRUE(t.GuardsIntact());
    }
  }
}

TEST_P(MoeExchangeTest, CombinesInOrderAndWritesZeros) {
  TestRng rng(3);
  const Values source = {1, 3, 0, 1, 3, 9, -1, 1};
  GuardedTensor rows(device(), DType::kF32, {8, 37}, 2);
  GuardedTensor from(device(), DType::kI32, {8});
  GuardedTensor y(device(), DType::kF32, {5, 37}, 1);
  rows.SetNormal(rng);
  from.Set(source);
  ASSERT_TRUE(MoeCombine(ctx(), {.rows = rows.view(), .source = from.view(), .y = y.view()}).ok());
  ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  Values want(5 * 37, 0.0);
  const Values values = rows.Get();
  for (size_t r = 0; r < source.size(); ++r) {
    if (source[r] < 0 || source[r] >= 5) continue;
    for (size_t i = 0; i < 37; ++i)
      want[static_cast<size_t>(source[r]) * 37 + i] += values[r * 37 + i];
  }
  EXPECT_TRUE(AllClose(y.Get(), want, {1e-6, 1e-6}));
  EXPECT_TRUE(rows.GuardsIntact() && from.GuardsIntact() && y.GuardsIntact());
  // None came back.
  ASSERT_TRUE(
      MoeCombine(ctx(),
                 {.rows = rows.view().Rows(0, 0), .source = from.view().Rows(0, 0), .y = y.view()})
          .ok());
  EXPECT_EQ(y.Get(), Values(5 * 37, 0.0));
}

TEST_P(MoeExchangeTest, RefusesWhatDoesNotFit) {
  Tensors t(device(), {7, 8, 9, 3, 4, 0}, DType::kF32);
  const auto message = [&](auto change) {
    MoeDispatchArgs args = t.Args();
    change(args);
    return std::string(MoeDispatch(ctx(), args).message());
  };
  EXPECT_EQ(message([](auto& a) { a.weights = a.weights.Cols(0, 2); }),
            "MoeDispatch: weights.dim(1) = 2, want 3");
  EXPECT_NE(message([](auto& a) { a.num_experts = 3; }).find("each rank an expert"),
            std::string::npos);
  EXPECT_NE(message([](auto& a) {
              a.rows = a.rows.Rows(0, 20);
              a.source = a.source.Rows(0, 20);
            }).find("room"),
            std::string::npos);
  EXPECT_EQ(message([](auto& a) { a.rows = a.rows.Cols(0, 13); }),
            "MoeDispatch: rows.dim(1) = 13, want 14");
  EXPECT_EQ(
      MoeCombine(ctx(), {.rows = t.x.view(), .source = t.counts.view(), .y = t.x.view()}).message(),
      "MoeCombine: source.dim(0) = 4, want 7");
}

INSTANTIATE_TEST_SUITE_P(Devices, MoeExchangeTest, ::testing::ValuesIn(DevicesUnderTest()),
                         DeviceName);

}  // namespace
}  // namespace millrace
