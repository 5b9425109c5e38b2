#include "kernels/sample/sample.h"

#include <string>

#include "kernels/sample/sample_cases.h"
#include "kernels/sample/testing.h"

namespace millrace {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

double LogSum(const std::vector<double>& x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double v : x) sum += std::exp(v - top);
  return top + std::log(sum);
}

// Ids by falling logit, equal ones by rising id.
std::vector<size_t> Order(const std::vector<double>& x) {
  std::vector<size_t> order(x.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  return order;
}

std::vector<double> RowOf(const std::vector<double>& all, size_t row, size_t width) {
  return {all.begin() + static_cast<int64_t>(row * width),
          all.begin() + static_cast<int64_t>((row + 1) * width)};
}

class SampleTest : public OpTest {
 protected:
  void ExpectRefused(const SampleArgs& args, const std::string& message) {
    const absl::Status status = Sample(ctx(), args);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), message);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, SampleTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

TEST_P(SampleTest, NoRows) {
  SampleCall call(device(), 0, 10);
  call.Run(ctx());
}

TEST_P(SampleTest, GreedyTakesTheLargestAtEverySize) {
  TestRng rng(1);
  for (const int64_t v : {1, 2, 3, 63, 64, 65, 127, 1000, 4097, 49152, 128256}) {
    SampleCall call(device(), 3, v);
    call.logits.SetNormal(rng);
    const std::vector<double> logits = call.logits.Get();
    const std::vector<uint8_t> before = call.logits.GetBytes();
    call.Run(ctx());
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(call.ids.Get()[i], Order(RowOf(logits, i, static_cast<size_t>(v)))[0]) << v;
      EXPECT_EQ(call.flags.Get()[i], 0);
    }
    EXPECT_EQ(call.logits.GetBytes(), before);
  }
}

TEST_P(SampleTest, GreedyTakesTheLowestIdOfEqualLogits) {
  SampleCall call(device(), 2, 300);
  std::vector<double> logits(600, -1);
  for (const size_t i : {70u, 71u, 150u, 299u, 300u + 63u, 300u + 64u}) logits[i] = 2;
  call.logits.Set(logits);
  call.rows[1].temperature = 1e-6f;  // below kMinTemperature
  call.Run(ctx());
  EXPECT_EQ(call.ids.Get(), (std::vector<double>{70, 63}));
}

TEST_P(SampleTest, GreedyAppliesPenaltiesBiasAndBans) {
  const int32_t one[] = {1}, two[] = {2};
  const int32_t count[] = {3};
  const float bias[] = {-4.0f};
  SampleCall call(device(), 6, 4);
  std::vector<double> logits;
  for (int i = 0; i < 6; ++i) logits.insert(logits.end(), {0.5, 3, 2, -1});
  call.logits.Set(logits);
  for (SampleRow& row : call.rows) {
    row.penalty_ids = one;
    row.penalty_counts = count;
    row.num_penalties = 1;
  }
  call.rows[1].repetition_penalty = 2;
  call.rows[2].frequency_penalty = 0.5f;
  call.rows[3].presence_penalty = 1.5f;
  call.rows[4].bias_ids = one;
  call.rows[4].bias_values = bias;
  call.rows[4].num_biases = 1;
  call.rows[5].frequency_penalty = 2;
  call.rows[5].banned_ids = two;
  call.rows[5].num_banned = 1;
  call.Run(ctx());
  EXPECT_EQ(call.ids.Get(), (std::vector<double>{1, 2, 2, 2, 2, 0}));
}

TEST_P(SampleTest, LogprobsAreOfTheRawLogits) {
  TestRng rng(2);
  const int32_t banned[] = {0, 1, 2};
  for (const int64_t v : {5, 64, 1000, 49152}) {
    SampleCall call(device(), 4, v);
    call.logits.SetNormal(rng, 3.0);
    const std::vector<double> logits = call.logits.Get();
    const int32_t asked[] = {-1, 0, 5, 20};
    for (size_t i = 0; i < 4; ++i) {
      call.rows[i].num_top_logprobs = asked[i];
      call.rows[i].temperature = 0.5f;
      call.rows[i].seed = i;
      call.rows[i].banned_ids = banned;
      call.rows[i].num_banned = 3;
    }
    call.Run(ctx());
    const std::vector<double> ids = call.ids.Get(), got = call.logprob.Get();
    const std::vector<double> top_ids = call.top_ids.Get(), top = call.top_logprobs.Get();
    for (size_t i = 0; i < 4; ++i) {
      const std::vector<double> row = RowOf(logits, i, static_cast<size_t>(v));
      const double log_sum = LogSum(row);
      const double want = asked[i] < 0 ? 0 : row[static_cast<size_t>(ids[i])] - log_sum;
      EXPECT_NEAR(got[i], want, 3e-6);
      const std::vector<size_t> order = Order(row);
      for (size_t j = 0; j < 20; ++j) {
        const bool any = static_cast<int32_t>(j) < asked[i] && j < order.size();
        EXPECT_EQ(top_ids[i * 20 + j], any ? static_cast<double>(order[j]) : -1);
        EXPECT_NEAR(top[i * 20 + j], any ? row[order[j]] - log_sum : 0, 3e-6);
      }
    }
  }
}

TEST_P(SampleTest, EqualLogitsAreListedById) {
  SampleCall call(device(), 1, 500);
  std::vector<double> logits(500, 1.0);
  logits[400] = 2;
  call.logits.Set(logits);
  call.rows[0].num_top_logprobs = 20;
  call.Run(ctx());
  const std::vector<double> top = call.top_ids.Get();
  EXPECT_EQ(top[0], 400);
  for (size_t j = 1; j < 20; ++j) EXPECT_EQ(top[j], static_cast<double>(j - 1));
}

TEST_P(SampleTest, BansLeaveOneOrNone) {
  std::vector<int32_t> banned;
  for (int32_t i = 0; i < 130; ++i) {
    if (i != 77) banned.push_back(i);
  }
  banned.push_back(77);
  TestRng rng(3);
  SampleCall call(device(), 5, 130);
  call.logits.SetNormal(rng);
  for (size_t i = 0; i < 5; ++i) {
    call.rows[i] = {.temperature = 1.0f, .num_top_logprobs = 1, .seed = i};
    call.rows[i].banned_ids = banned.data();
    call.rows[i].num_banned = i == 3 ? 130 : 129;
  }
  call.rows[0].temperature = 0;
  call.rows[1].top_p = 0.5f;
  call.rows[2].top_k = 7;
  call.Run(ctx());
  EXPECT_EQ(call.ids.Get(), (std::vector<double>{77, 77, 77, -1, 77}));
  EXPECT_EQ(call.flags.Get(), (std::vector<double>{0, 0, 0, 2, 0}));
  EXPECT_EQ(call.logprob.Get()[3], 0);
  EXPECT_GE(call.top_ids.Get()[3 * 20], 0);  // what the model said is still known
}

TEST_P(SampleTest, FaultyRowsAreFlaggedAndHarmNobody) {
  TestRng rng(4);
  SampleCall call(device(), 8, 333);
  call.logits.SetNormal(rng);
  for (size_t i = 0; i < 8; ++i) {
    call.rows[i] = {.temperature = i % 2 ? 1.0f : 0.0f, .num_top_logprobs = 2, .seed = i};
  }
  call.Run(ctx());
  const std::vector<double> ids = call.ids.Get(), logprob = call.logprob.Get();
  std::vector<double> logits = call.logits.Get();
  const double faults[] = {kNaN, kInf, -kInf, kNaN};
  const size_t places[] = {0, 332, 64, 200};
  for (size_t f = 0; f < 4; ++f) logits[(2 * f + 1) * 333 + places[f]] = faults[f];
  call.logits.Set(logits);
  call.Run(ctx());
  for (size_t i = 0; i < 8; ++i) {
    const bool bad = i % 2 == 1;
    EXPECT_EQ(call.flags.Get()[i], bad) << i;
    EXPECT_EQ(call.ids.Get()[i], bad ? -1 : ids[i]) << i;
    EXPECT_EQ(call.logprob.Get()[i], bad ? 0 : logprob[i]) << i;
    EXPECT_EQ(call.top_ids.Get()[i * 20] == -1, bad) << i;
  }
}

TEST_P(SampleTest, OverflowingPenaltiesAreFlagged) {
  const int32_t id[] = {1}, count[] = {1};
  SampleCall call(device(), 1, 3);
  call.logits.Set({0, 1e30, 0});
  call.rows[0] = {
      .repetition_penalty = 1e-20f, .penalty_ids = id, .penalty_counts = count, .num_penalties = 1};
  call.Run(ctx());
  EXPECT_EQ(call.flags.Get()[0], 1);
}

void FillMixed(SampleCall& call, uint64_t seed) {
  static constexpr int32_t kIds[] = {1, 5, 900};
  static constexpr int32_t kCounts[] = {0, 2, 1};
  TestRng rng(seed);
  call.logits.SetNormal(rng, 2.0);
  for (size_t i = 0; i < call.rows.size(); ++i) {
    SampleRow& row = call.rows[i];
    row = {.temperature = i % 4 ? 0.9f : 0.0f,
           .top_k = i % 3 ? 40 : 0,
           .top_p = i % 5 ? 0.9f : 1.0f,
           .min_p = i % 7 ? 0 : 0.03f,
           .num_top_logprobs = static_cast<int32_t>(i % 22) - 1,
           .seed = 100 + i,
           .position = static_cast<int64_t>(i * i)};
    if (i % 2 == 0) continue;
    row.repetition_penalty = 1.3f;
    row.penalty_ids = kIds;
    row.penalty_counts = kCounts;
    row.num_penalties = 3;
  }
}

TEST_P(SampleTest, TwoRunsAgreeBitForBitOnAnyNumberOfThreads) {
  DeviceUnderTest other = GetParam();
  other.threads = other.threads == 1 ? 4 : 1;
  OpTestBed bed(other);
  for (const int64_t rows : {1, 3, 24}) {
    SampleCall here(device(), rows, 49152), there(bed.device(), rows, 49152);
    FillMixed(here, 6);
    FillMixed(there, 6);
    here.Run(ctx());
    const auto first = here.Bytes();
    here.Run(ctx());
    EXPECT_EQ(here.Bytes(), first);
    there.Run(bed.ctx());
    EXPECT_EQ(there.Bytes(), first);
  }
}

TEST_P(SampleTest, NeighboursDoNotMatter) {
  SampleCall all(device(), 24, 1003);
  FillMixed(all, 7);
  all.Run(ctx());
  for (size_t i = 0; i < 24; ++i) {
    SampleCall alone(device(), 1, 1003);
    alone.logits.Set(RowOf(all.logits.Get(), i, 1003));
    alone.rows[0] = all.rows[i];
    alone.Run(ctx());
    EXPECT_EQ(alone.ids.Get()[0], all.ids.Get()[i]);
    EXPECT_EQ(alone.logprob.Get()[0], all.logprob.Get()[i]);
    EXPECT_EQ(alone.top_logprobs.Get(), RowOf(all.top_logprobs.Get(), i, 20));
  }
}

TEST_P(SampleTest, RowsThatAreOffAreNotLookedAt) {
  TestRng rng(12);
  SampleCall call(device(), 3, 500);
  call.logits.SetNormal(rng);
  std::vector<double> logits = call.logits.Get();
  logits[500 + 7] = kNaN;
  call.logits.Set(logits);
  for (size_t i = 0; i < 3; ++i) {
    call.rows[i] = {.temperature = 1, .num_top_logprobs = 3, .slot = static_cast<int32_t>(i)};
  }
  call.rows[1] = {.top_p = -3, .num_penalties = 99, .slot = 1, .off = 1};
  call.Run(ctx());
  EXPECT_EQ(call.ids.Get()[1], -1);
  EXPECT_EQ(call.flags.Get(), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(call.logprob.Get()[1], 0);
  EXPECT_EQ(RowOf(call.top_ids.Get(), 1, 20), std::vector<double>(20, -1));
  EXPECT_EQ(RowOf(call.top_logprobs.Get(), 1, 20), std::vector<double>(20, 0));
  EXPECT_EQ(call.last_tokens.Get()[0], call.ids.Get()[0]);
  EXPECT_EQ(call.last_tokens.Get()[1], -7);
  EXPECT_EQ(call.last_tokens.Get()[2], call.ids.Get()[2]);
}

TEST_P(SampleTest, LastTokensGetTheIdAtTheRowsSlot) {
  TestRng rng(13);
  SampleCall call(device(), 5, 70);
  call.logits.SetNormal(rng);
  std::vector<double> logits = call.logits.Get();
  logits[3 * 70] = kInf;
  call.logits.Set(logits);
  const int32_t slots[] = {39, -1, 0, 17, 40};
  for (size_t i = 0; i < 5; ++i) call.rows[i].slot = slots[i];
  call.Run(ctx());
  std::vector<double> want(SampleCall::kSlots, -7);
  want[39] = call.ids.Get()[0];
  want[0] = call.ids.Get()[2];
  want[17] = 0;  // of a flagged row: any id that an embedding can look up
  EXPECT_EQ(call.last_tokens.Get(), want);
}

TEST_P(SampleTest, IdsOutsideTheVocabularyArePassedOver) {
  const int32_t ids[] = {-1, 70, 1 << 30, 5};
  const int32_t counts[] = {1, 1, 1, 1};
  const float values[] = {9, 9, 9, 9};
  SampleCall call(device(), 3, 70);
  call.logits.SetAll(0);
  for (SampleRow& row : call.rows) row.bias_ids = ids, row.bias_values = values, row.num_biases = 4;
  call.rows[1].banned_ids = ids;
  call.rows[1].num_banned = 4;
  call.rows[2].penalty_ids = ids;
  call.rows[2].penalty_counts = counts;
  call.rows[2].num_penalties = 4;
  call.rows[2].presence_penalty = 10;
  ASSERT_TRUE(Sample(ctx(), call.Args()).ok());
  EXPECT_EQ(call.ids.Get(), (std::vector<double>{5, 0, 0}));
}

TEST_P(SampleTest, RefusesWhatDoesNotFit) {
  SampleCall call(device(), 2, 8);
  SampleArgs args = call.Args();
  args.logits = args.logits.Rows(0, 1);
  ExpectRefused(args, "Sample: ids.dim(0) = 2, want 1");
  args = call.Args();
  args.logits.dtype = DType::kBF16;
  ExpectRefused(args, "Sample: logits has dtype bfloat16, want float32");
  args = call.Args();
  args.ids = args.ids.Rows(0, 1);
  ExpectRefused(args, "Sample: ids.dim(0) = 1, want 2");
  args = call.Args();
  args.top_ids = args.top_ids.Cols(0, 5);
  ExpectRefused(args, "Sample: top_ids.dim(1) = 5, want 20");
  args = call.Args();
  args.logits = args.logits.Cols(0, 0);
  ExpectRefused(args, "Sample: logits.dim(1) = 0, want at least 1");
  args = call.Args();
  args.rows = nullptr;
  ExpectRefused(args, "Sample: rows is null");
  args = call.Args();
  args.last_tokens = args.logits;
  ExpectRefused(args, "Sample: last_tokens has rank 2, want 1");
}

TEST_P(SampleTest, WorkspaceBoundHoldsAndTooLittleIsRefused) {
  for (const int64_t rows : {1, 2, 9}) {
    SampleCall call(device(), rows, 1003);
    FillMixed(call, 8);
    OpTestBed exact(GetParam(), SampleWorkspaceBytes(device(), rows, 1003));
    call.Run({device(), exact.ctx().stream, exact.workspace()});
    if (exact.workspace().bytes() == 0) continue;  // needs none
    OpTestBed small(GetParam(), 1003);
    EXPECT_EQ(Sample({device(), small.ctx().stream, small.workspace()}, call.Args()).code(),
              absl::StatusCode::kResourceExhausted);
  }
}

struct ScoreCall {
  ScoreCall(Device& device, int64_t rows, int64_t vocabulary, int64_t top)
      : logits(device, DType::kF32, {rows, vocabulary}, 5),
        targets(device, DType::kI32, {rows}),
        logprob(device, DType::kF32, {rows}),
        rank(device, DType::kI32, {rows}),
        top_ids(device, DType::kI32, {rows, top}, 1),
        top_logprobs(device, DType::kF32, {rows, top}, 2) {}

  TokenLogprobsArgs Args() const {
    return {.logits = logits.view(),
            .targets = targets.view(),
            .logprob = logprob.view(),
            .rank = rank.view(),
            .top_ids = top_ids.view(),
            .top_logprobs = top_logprobs.view()};
  }

  GuardedTensor logits, targets, logprob, rank, top_ids, top_logprobs;
};

TEST_P(SampleTest, TokenLogprobsMatchTheFormula) {
  TestRng rng(9);
  for (const int64_t rows : {0, 1, 2, 7}) {
    for (const int64_t top : {0, 1, 20}) {
      constexpr size_t kV = 700;
      ScoreCall call(device(), rows, kV, top);
      call.logits.SetIntegers(rng, -40, 40);  // many equal ones
      call.targets.SetIntegers(rng, 0, kV - 1);
      ASSERT_TRUE(TokenLogprobs(ctx(), call.Args()).ok());
      const std::vector<double> logits = call.logits.Get();
      for (size_t i = 0; i < static_cast<size_t>(rows); ++i) {
        const std::vector<double> row = RowOf(logits, i, kV);
        const double target = row[static_cast<size_t>(call.targets.Get()[i])];
        EXPECT_NEAR(call.logprob.Get()[i], target - LogSum(row), 1e-5);
        EXPECT_EQ(call.rank.Get()[i],
                  1 + std::count_if(row.begin(), row.end(), [&](double x) { return x > target; }));
        const std::vector<size_t> order = Order(row);
        for (size_t j = 0; j < static_cast<size_t>(top); ++j) {
          const size_t at = i * static_cast<size_t>(top) + j;
          EXPECT_EQ(call.top_ids.Get()[at], static_cast<double>(order[j]));
          EXPECT_NEAR(call.top_logprobs.Get()[at], row[order[j]] - LogSum(row), 1e-5);
        }
      }
      EXPECT_TRUE(call.top_ids.GuardsIntact());
      EXPECT_TRUE(call.top_logprobs.GuardsIntact());
    }
  }
}

TEST_P(SampleTest, TokenLogprobsOfAFaultyRowAreNaN) {
  ScoreCall call(device(), 3, 4, 6);
  call.logits.Set({0, 1, 2, 3, 0, kNaN, 2, 3, 0, 1, 2, 3});
  call.targets.Set({2, 2, 2});
  ASSERT_TRUE(TokenLogprobs(ctx(), call.Args()).ok());
  EXPECT_TRUE(std::isnan(call.logprob.Get()[1]));
  EXPECT_EQ(call.logprob.Get()[0], call.logprob.Get()[2]);
  EXPECT_EQ(call.rank.Get(), (std::vector<double>{2, 0, 2}));
  EXPECT_EQ(call.top_ids.Get(),
            (std::vector<double>{3, 2, 1, 0, -1, -1, -1, -1, -1, -1, -1, -1, 3, 2, 1, 0, -1, -1}));
}

TEST_P(SampleTest, TokenLogprobsOfATargetOutsideTheVocabularyAreNaN) {
  ScoreCall call(device(), 3, 4, 1);
  call.logits.SetAll(1);
  call.targets.Set({-1, 3, 4});
  ASSERT_TRUE(TokenLogprobs(ctx(), call.Args()).ok());
  EXPECT_EQ(call.rank.Get(), (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(call.top_ids.Get(), (std::vector<double>{0, 0, 0}));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(std::isnan(call.logprob.Get()[i]), i != 1) << i;
}

TEST(CheckSampleRowTest, RefusesParametersOutOfRange) {
  const auto refused = [](SampleRow row, const std::string& message) {
    const absl::Status status = CheckSampleRow(row, 8);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), "Sample: row." + message);
    row.off = 1;
    EXPECT_TRUE(CheckSampleRow(row, 8).ok());
  };
  EXPECT_TRUE(CheckSampleRow({}, 8).ok());
  refused({.temperature = -1}, "temperature = -1, want 0 or more");
  refused({.temperature = std::nanf("")}, "temperature = nan, want 0 or more");
  refused({.top_k = -1}, "top_k = -1, want 0 or more");
  refused({.top_p = 0}, "top_p = 0, want above 0, up to 1");
  refused({.top_p = 1.5f}, "top_p = 1.5, want above 0, up to 1");
  refused({.min_p = -0.5f}, "min_p = -0.5, want 0 to 1");
  refused({.repetition_penalty = 0}, "repetition_penalty = 0, want above 0");
  refused({.frequency_penalty = HUGE_VALF}, "frequency_penalty = inf, want a finite number");
  refused({.presence_penalty = std::nanf("")}, "presence_penalty = nan, want a finite number");
  refused({.num_top_logprobs = 21}, "num_top_logprobs = 21, want -1 to 20");
  refused({.num_top_logprobs = -2}, "num_top_logprobs = -2, want -1 to 20");
  refused({.num_penalties = -1}, "num_penalties = -1, want 0 or more");
  refused({.num_biases = -1}, "num_biases = -1, want 0 or more");
  refused({.num_banned = -1}, "num_banned = -1, want 0 or more");
  const int32_t ids[] = {0, 8}, counts[] = {0, 0};
  const float values[] = {1, HUGE_VALF};
  refused({.penalty_ids = ids, .penalty_counts = counts, .num_penalties = 2},
          "penalty_ids[1] = 8, want 0 to 7");
  refused({.bias_ids = ids, .bias_values = values, .num_biases = 2},
          "bias_ids[1] = 8, want 0 to 7");
  refused({.bias_ids = counts, .bias_values = values, .num_biases = 2},
          "bias_values[1] = inf, want a finite number");
  const int32_t negative[] = {-1};
  refused({.banned_ids = negative, .num_banned = 1}, "banned_ids[0] = -1, want 0 to 7");
}

TEST_P(SampleTest, TokenLogprobsRefusesWhatDoesNotFit) {
  ScoreCall call(device(), 2, 4, 3);
  call.logits.SetAll(0);
  call.targets.SetAll(1);
  const auto message = [&](const TokenLogprobsArgs& args) {
    return std::string(TokenLogprobs(ctx(), args).message());
  };
  TokenLogprobsArgs args = call.Args();
  args.rank = args.rank.Rows(0, 1);
  EXPECT_EQ(message(args), "TokenLogprobs: rank.dim(0) = 1, want 2");
  ScoreCall wide(device(), 2, 30, 21);
  wide.targets.SetAll(0);
  EXPECT_EQ(message(wide.Args()), "TokenLogprobs: top_ids.dim(1) must be at most 20");
}

}  // namespace
}  // namespace millrace
