#include "kernels/moe_exchange/moe_exchange.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
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
        // Near each other in some tokens, anywhere in others.
        const int64_t expert = t % 2 == 0 ? t * 7 + k : rng.Integer(0, c.experts - 1);
        chosen.push_back(static_cast<double>(expert % c.experts));
      }
    }
    if (c.tokens > 5) {
      chosen[1] = -1;
      chosen.back() = static_cast<double>(c.experts);
    }
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

// What a dispatch read and wrote.
struct Written {
  explicit Written(const Tensors& t)
      : x(t.x.Get()),
        experts(t.experts.Get()),
        weights(t.weights.Get()),
        rows(t.rows.Get()),
        source(t.source.Get()),
        counts(t.counts.Get()),
        bytes(t.rows.GetBytes()) {}

  Values x, experts, weights, rows, source, counts;
  std::vector<uint8_t> bytes;  // of rows
};

// y from the values, in the order and with the rounding of the contract.
Values Combined(const Values& rows, const Values& source, int64_t tokens, int64_t hidden) {
  std::vector<float> y(static_cast<size_t>(tokens * hidden), 0.0f);
  for (size_t r = 0; r < source.size(); ++r) {
    if (source[r] < 0 || source[r] >= static_cast<double>(tokens)) continue;
    for (int64_t i = 0; i < hidden; ++i) {
      y[static_cast<size_t>(static_cast<int64_t>(source[r]) * hidden + i)] +=
          static_cast<float>(rows[r * static_cast<size_t>(hidden) + static_cast<size_t>(i)]);
    }
  }
  return Values(y.begin(), y.end());
}

class MoeExchangeTest : public OpTest {
 protected:
  void Combine(const TensorView& rows, const TensorView& source, const TensorView& y) {
    const absl::Status status = MoeCombine(ctx(), {.rows = rows, .source = source, .y = y});
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  }

  // A row's channels, weights and experts are those of the token.
  void CheckRow(const MoeExchangeCase& c, const Written& w, int64_t row, int64_t token) {
    const int64_t width = MoeMessageWidth(c.hidden, c.chosen);
    const auto at = [](const Values& values, int64_t i) { return values[static_cast<size_t>(i)]; };
    ASSERT_EQ(at(w.source, row), static_cast<double>(token));
    for (int64_t i = 0; i < c.hidden; ++i) {
      ASSERT_EQ(at(w.rows, row * width + i), at(w.x, token * c.hidden + i));
    }
    for (int64_t k = 0; k < c.chosen; ++k) {
      const int64_t choice = token * c.chosen + k;
      const int64_t word = row * width + c.hidden + k;
      ASSERT_EQ(at(w.rows, word), at(w.weights, choice));
      int32_t expert = 0;
      std::memcpy(&expert, w.bytes.data() + (word + c.chosen) * 4, sizeof(expert));
      ASSERT_EQ(expert, at(w.experts, choice));
    }
  }

  // As the contract says it, from the values.
  void CheckDispatch(const MoeExchangeCase& c, const Written& w, const Values& source_before) {
    int64_t row = 0;
    double first = 0;
    for (int64_t rank = 0; rank < c.ranks; ++rank) {
      const int64_t before = row;
      const double end =
          first + static_cast<double>(c.experts / c.ranks + (rank < c.experts % c.ranks ? 1 : 0));
      for (int64_t token = 0; token < c.tokens; ++token) {
        const auto experts = w.experts.begin() + token * c.chosen;
        if (std::any_of(experts, experts + c.chosen,
                        [&](double e) { return e >= first && e < end; })) {
          CheckRow(c, w, row++, token);
          if (HasFatalFailure()) return;
        }
      }
      EXPECT_EQ(w.counts[static_cast<size_t>(rank)], static_cast<double>(row - before));
      first = end;
    }
    // What lies behind is as it was.
    const auto used = static_cast<size_t>(row);
    const auto width = static_cast<size_t>(MoeMessageWidth(c.hidden, c.chosen));
    for (size_t i = used; i < w.source.size(); ++i) ASSERT_EQ(w.source[i], source_before[i]);
    for (size_t i = used * width; i < w.rows.size(); ++i) ASSERT_TRUE(std::isnan(w.rows[i])) << i;
  }
};

TEST_P(MoeExchangeTest, PacksEachTokenForEachRankOfItsExperts) {
  for (const MoeExchangeCase& c : kMoeExchangeCases) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(testing::Message() << c.tokens << "x" << c.hidden << " on " << c.ranks);
      Tensors t(device(), c, dtype);
      const Values source_before = t.source.Get();
      const absl::Status status = MoeDispatch(ctx(), t.Args());
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
      CheckDispatch(c, Written(t), source_before);
      EXPECT_TRUE(t.GuardsIntact());
    }
  }
}

TEST_P(MoeExchangeTest, CombinesInOrderAndWritesZeros) {
  TestRng rng(3);
  GuardedTensor rows(device(), DType::kF32, {8, 37}, 2);
  GuardedTensor from(device(), DType::kI32, {8});
  GuardedTensor y(device(), DType::kF32, {5, 37}, 1);
  rows.SetNormal(rng);
  from.Set({1, 3, 0, 1, 3, 9, -1, 1});
  Combine(rows.view(), from.view(), y.view());
  EXPECT_EQ(y.Get(), Combined(rows.Get(), from.Get(), 5, 37));
  EXPECT_TRUE(rows.GuardsIntact() && from.GuardsIntact() && y.GuardsIntact());
  // None came back.
  Combine(rows.view().Rows(0, 0), from.view().Rows(0, 0), y.view());
  EXPECT_EQ(y.Get(), Values(5 * 37, 0.0));
}

TEST_P(MoeExchangeTest, ThousandsOfRowsOfAToken) {
  TestRng rng(4);
  for (const auto& [hidden, size] :
       {std::pair<int64_t, int64_t>{3, 20000}, {8, 20000}, {516, 3000}, {516, 512}, {37, 500}}) {
    SCOPED_TRACE(testing::Message() << size << "x" << hidden);
    GuardedTensor rows(device(), DType::kF32, {size, hidden}, hidden % 2);
    GuardedTensor from(device(), DType::kI32, {size});
    GuardedTensor y(device(), DType::kF32, {3, hidden});
    rows.SetNormal(rng);
    from.SetIntegers(rng, -1, 3);
    Combine(rows.view(), from.view(), y.view());
    EXPECT_EQ(y.Get(), Combined(rows.Get(), from.Get(), 3, hidden));
    EXPECT_TRUE(y.GuardsIntact());
  }
}

// As in a captured graph: the sources are set to none before, and all of the rows are combined.
TEST_P(MoeExchangeTest, ThereAndBackWithoutCounts) {
  for (const MoeExchangeCase& c : kMoeExchangeCases) {
    SCOPED_TRACE(testing::Message() << c.tokens << "x" << c.hidden << " on " << c.ranks);
    Tensors t(device(), c, DType::kF32);
    GuardedTensor y(device(), DType::kF32, {c.tokens, c.hidden}, c.row_padding);
    for (int round = 0; round < 2; ++round) {
      t.source.SetAll(-1);
      ASSERT_TRUE(MoeDispatch(ctx(), t.Args()).ok());
      Combine(MoeMessageChannels(t.rows.view(), c.chosen), t.source.view(), y.view());
      const Values x = t.x.Get(), from = t.source.Get(), got = y.Get();
      Values rows_of(static_cast<size_t>(c.tokens));
      for (double token : from) {
        if (token >= 0) ++rows_of[static_cast<size_t>(token)];
      }
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], x[i] * rows_of[i / static_cast<size_t>(c.hidden)], 1e-5) << i;
      }
      EXPECT_TRUE(t.GuardsIntact() && y.GuardsIntact());
      // Fewer rows than before: those of the first round must not count again.
      t.experts.SetAll(static_cast<double>(c.experts - 1));
    }
  }
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

INSTANTIATE_TEST_SUITE_P(Devices, MoeExchangeTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
