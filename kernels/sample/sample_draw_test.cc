// Sample()'s draws against the distribution computed in double from its definition.
#include <functional>
#include <string>
#include <utility>

#include "kernels/sample/sample_philox.h"
#include "kernels/sample/testing.h"

namespace millrace {
namespace {

class SampleDrawTest : public OpTest {
 protected:
  // How often each token came in `draws` draws at positions 0, 1, ... from one row of logits.
  std::vector<int> Count(const std::vector<double>& logits, const SampleRow& row, int draws) {
    constexpr int kBatch = 1000;
    const int64_t vocabulary = static_cast<int64_t>(logits.size());
    SampleCall call(device(), kBatch, 1);
    GuardedTensor shared(device(), DType::kF32, {1, vocabulary});
    shared.Set(logits);
    TensorView same = shared.view();  // every row reads the same logits
    same.dims[0] = kBatch;
    same.strides[0] = 0;
    std::vector<int> counts(logits.size());
    for (int done = 0; done < draws; done += kBatch) {
      for (int i = 0; i < kBatch; ++i) {
        call.rows[static_cast<size_t>(i)] = row;
        call.rows[static_cast<size_t>(i)].position = done + i;
      }
      SampleArgs args = call.Args();
      args.logits = same;
      const absl::Status status = Sample(ctx(), args);
      EXPECT_TRUE(status.ok()) << status;
      for (const double id : call.ids.Get()) ++counts[static_cast<size_t>(id)];
    }
    return counts;
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, SampleDrawTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

std::vector<double> NormalLogits(uint64_t seed, size_t n, double scale) {
  TestRng rng(seed);
  std::vector<double> x(n);
  for (double& v : x) v = static_cast<float>(scale * rng.Normal());
  return x;
}

// (chi-square - degrees) / its standard deviation, tokens expected less than 10 times taken
// together; infinite when an impossible token came.
double ChiSquareExcess(const std::vector<int>& counts, const std::vector<double>& p) {
  double draws = 0, chi = 0, rare = 0, rare_expected = 0;
  for (const int c : counts) draws += c;
  int cells = 0;
  const auto add = [&](double count, double expected) {
    chi += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0 && counts[i] > 0) return HUGE_VAL;
    if (p[i] * draws >= 10) {
      add(counts[i], p[i] * draws);
    } else {
      rare += counts[i];
      rare_expected += p[i] * draws;
    }
  }
  if (rare_expected > 1) add(rare, rare_expected);
  return cells < 2 ? 0 : (chi - (cells - 1)) / std::sqrt(2.0 * (cells - 1));
}

// Some of the tokens that the lists below name are likely ones, so that lists matter.
std::vector<double> ListedLogits() {
  std::vector<double> x = NormalLogits(1, 200, 2.0);
  x[3] = 4.5, x[5] = 4, x[60] = 3.5, x[199] = -3;
  return x;
}

constexpr int32_t kListed[] = {3, 5, 8, 60, 199};
constexpr int32_t kCounts[] = {0, 1, 4, 2, 0};
constexpr float kBias[] = {2.0f, -1.0f, 0.5f, 3.0f, 4.0f};

SampleRow Listed() {
  SampleRow row{.temperature = 1.0f, .seed = 11};
  row.penalty_ids = kListed;
  row.penalty_counts = kCounts;
  row.num_penalties = 5;
  return row;
}

struct DrawCase {
  const char* name;
  std::function<void(SampleRow&)> change;
};

const std::vector<DrawCase>& DrawCases() {
  static const std::vector<DrawCase>& cases = *new std::vector<DrawCase>{
      {"temperature", [](SampleRow& r) { r.temperature = 0.6f; }},
      {"hot", [](SampleRow& r) { r.temperature = 3.0f; }},
      {"top_k", [](SampleRow& r) { r.top_k = 17; }},
      {"top_k_1", [](SampleRow& r) { r.top_k = 1; }},
      {"top_p", [](SampleRow& r) { r.top_p = 0.7f; }},
      {"top_p_small", [](SampleRow& r) { r.top_p = 0.01f; }},
      {"min_p", [](SampleRow& r) { r.min_p = 0.1f; }},
      {"top_k_then_top_p", [](SampleRow& r) { r.top_k = 40, r.top_p = 0.8f; }},
      {"all_filters", [](SampleRow& r) { r.top_k = 60, r.top_p = 0.9f, r.min_p = 0.05f; }},
      {"repetition", [](SampleRow& r) { r.repetition_penalty = 2.5f; }},
      {"frequency", [](SampleRow& r) { r.frequency_penalty = -0.8f; }},
      {"presence", [](SampleRow& r) { r.presence_penalty = -2.0f; }},
      {"bias", [](SampleRow& r) { r.bias_ids = kListed, r.bias_values = kBias, r.num_biases = 5; }},
      {"banned", [](SampleRow& r) { r.banned_ids = kListed, r.num_banned = 5; }},
      {"everything",
       [](SampleRow& r) {
         r.temperature = 0.9f, r.top_k = 90, r.top_p = 0.95f, r.min_p = 0.01f;
         r.repetition_penalty = 1.2f, r.frequency_penalty = 0.3f, r.presence_penalty = -1.5f;
         r.bias_ids = kListed, r.bias_values = kBias, r.num_biases = 5;
         r.banned_ids = kListed + 4, r.num_banned = 1;
       }},
  };
  return cases;
}

TEST_P(SampleDrawTest, PlainSamplingFollowsTheSoftmax) {
  const std::vector<double> logits = ListedLogits();
  const SampleRow row = Listed();
  const std::vector<int> counts = Count(logits, row, 100000);
  EXPECT_LT(std::fabs(ChiSquareExcess(counts, Distribution(logits, row))), 4);
}

TEST_P(SampleDrawTest, EachParameterGivesItsDistribution) {
  const std::vector<double> logits = ListedLogits();
  const std::vector<double> plain = Distribution(logits, Listed());
  for (const DrawCase& c : DrawCases()) {
    SCOPED_TRACE(c.name);
    SampleRow row = Listed();
    c.change(row);
    const std::vector<int> counts = Count(logits, row, 20000);
    EXPECT_LT(std::fabs(ChiSquareExcess(counts, Distribution(logits, row))), 4);
    EXPECT_GT(ChiSquareExcess(counts, plain), 20) << "as if the parameter were not there";
  }
}

// Each draw is the inverse CDF at the generator's number: exact but within rounding of a border.
TEST_P(SampleDrawTest, DrawsAreTheInverseCdfAtServedSizes) {
  for (const size_t vocabulary : {49152u, 128256u, 4095u, 65u}) {
    const std::vector<double> logits = NormalLogits(vocabulary, vocabulary, 3.0);
    SampleCall call(device(), 6, static_cast<int64_t>(vocabulary));
    std::vector<double> all;
    for (size_t i = 0; i < 6; ++i) all.insert(all.end(), logits.begin(), logits.end());
    call.logits.Set(all);
    for (size_t i = 0; i < 6; ++i) call.rows[i] = {.temperature = 0.8f, .seed = 5 + i};
    call.rows[1].top_k = 50;
    call.rows[2].top_p = 0.9f;
    call.rows[3].min_p = 0.02f;
    call.rows[4].temperature = 20.0f, call.rows[4].top_p = 0.999f;
    call.rows[5].top_k = 3000, call.rows[5].top_p = 0.5f;
    std::vector<std::vector<double>> p;
    for (const SampleRow& row : call.rows) p.push_back(Distribution(logits, row));
    for (int64_t position = 0; position < 40; ++position) {
      for (SampleRow& row : call.rows) row.position = position << 31;
      call.Run(ctx());
      const std::vector<double> ids = call.ids.Get();
      for (size_t i = 0; i < 6; ++i) {
        const double u = PhiloxUniform(call.rows[i].seed, call.rows[i].position);
        const size_t id = static_cast<size_t>(ids[i]);
        double below = 0;
        for (size_t j = 0; j < id; ++j) below += p[i][j];
        ASSERT_GT(p[i][id], 0);
        ASSERT_GE(u, below - 1e-5) << i;
        ASSERT_LE(u, below + p[i][id] + 1e-5) << i;
      }
    }
  }
}

// Lists of ids all over the vocabulary.
struct Lists {
  Lists(TestRng& rng, int64_t vocabulary) {
    for (int64_t id = rng.Integer(0, 9); id < vocabulary;
         id += 1 + rng.Integer(0, vocabulary / 80)) {
      ids.push_back(static_cast<int32_t>(id));
      counts.push_back(static_cast<int32_t>(rng.Integer(0, 3)));
      values.push_back(static_cast<float>(rng.Normal()));
    }
  }

  void Fill(SampleRow& row) const {
    const int32_t n = static_cast<int32_t>(ids.size());
    row.repetition_penalty = 1.3f, row.frequency_penalty = 0.2f, row.presence_penalty = -0.4f;
    row.penalty_ids = ids.data(), row.penalty_counts = counts.data(), row.num_penalties = n;
    row.bias_ids = ids.data() + n / 2, row.bias_values = values.data(), row.num_biases = n / 2;
    row.banned_ids = ids.data(), row.num_banned = n / 5;
  }

  std::vector<int32_t> ids, counts;
  std::vector<float> values;
};

// Every filter alone and with others, few and many left, with and without lists and logprobs.
void FillAll(SampleCall& call, const Lists& lists) {
  for (size_t i = 0; i < call.rows.size(); ++i) {
    SampleRow& row = call.rows[i];
    row = {.temperature = i % 9 == 8 ? 0.0f : i % 5 == 4 ? 3.0f : 0.8f, .seed = 70 + i};
    if (i % 2) row.top_k = i % 6 == 5 ? 700 : 40;
    if (i % 3) row.top_p = i % 4 ? 0.9f : 0.6f;
    if (i % 7 == 3) row.min_p = 0.02f;
    row.num_top_logprobs = static_cast<int32_t>(i % 22) - 1;
    row.slot = static_cast<int32_t>(i);
    if (i % 4 >= 2) lists.Fill(row);
  }
}

// How far the row's number is from where another id would be drawn.
double DistanceFromBorders(const std::vector<double>& logits, const SampleRow& row, size_t id) {
  const std::vector<double> p = Distribution(logits, row);
  const double u = PhiloxUniform(row.seed, row.position);
  double below = 0;
  for (size_t i = 0; i < id; ++i) below += p[i];
  return std::min(std::fabs(u - below), std::fabs(u - below - p[id]));
}

TEST_P(SampleDrawTest, AgreesWithTheScalarCpuButAtBorders) {
  OpTestBed bed({.name = "cpu", .threads = 1, .isa = CpuIsa::kScalar});
  TestRng rng(20);
  // On a GPU also so many rows that some of each lie in registers, and rows that no cluster holds.
  std::vector<std::pair<int64_t, int64_t>> cases = {{3, 1}, {3, 5}, {30, 1003}, {12, 49152}};
  if (device().type() == DeviceType::kCuda) {
    cases.insert(cases.end(), {{40, 128256}, {3, 151936}, {2, 1100000}});
  }
  for (const auto& [rows, vocabulary] : cases) {
    SCOPED_TRACE(vocabulary);
    const Lists lists(rng, vocabulary);
    SampleCall here(device(), rows, vocabulary), there(bed.device(), rows, vocabulary);
    here.logits.SetNormal(rng, 3.0);
    const std::vector<double> logits = here.logits.Get();
    there.logits.Set(logits);
    FillAll(here, lists);
    FillAll(there, lists);
    OpTestBed room(GetParam(), SampleWorkspaceBytes(device(), rows, vocabulary));
    here.Run({device(), ctx().stream, room.workspace()});
    there.Run(bed.ctx());
    EXPECT_EQ(here.flags.Get(), there.flags.Get());
    EXPECT_EQ(here.top_ids.Get(), there.top_ids.Get());
    EXPECT_TRUE(AllClose(here.top_logprobs.Get(), there.top_logprobs.Get(), {.absolute = 1e-5}));
    const std::vector<double> ids = here.ids.Get(), want = there.ids.Get();
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == want[i]) continue;
      ASSERT_GE(ids[i], 0) << i;
      const auto first = logits.begin() + static_cast<int64_t>(i) * vocabulary;
      EXPECT_LT(DistanceFromBorders({first, first + vocabulary}, here.rows[i],
                                    static_cast<size_t>(ids[i])),
                3e-5)
          << i;
    }
  }
}

TEST_P(SampleDrawTest, TiesAtTheBordersStayTogether) {
  const std::vector<double> logits = {2, 1, 3, 1, 1, 0};
  SampleRow row{.temperature = 1.0f, .top_k = 3, .seed = 1};
  std::vector<int> counts = Count(logits, row, 5000);  // the third largest is 1, thrice
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(counts[i] > 0, i != 5) << i;
  row.top_k = 0;
  row.top_p = 0.92f;  // 3 and 2 reach 0.80, one 1 more 0.88, two 0.93 and all three 0.97
  counts = Count(logits, row, 5000);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(counts[i] > 0, i != 5) << i;
  const std::vector<double> flat(100, 0.5);
  row.top_p = 0.3f;
  counts = Count(flat, row, 20000);
  EXPECT_LT(std::fabs(ChiSquareExcess(counts, std::vector<double>(100, 0.01))), 4);
  row.min_p = 1.0f;  // keeps what equals the largest
  row.top_p = 1.0f;
  counts = Count(logits, row, 1000);
  EXPECT_EQ(counts[2], 1000);
}

TEST_P(SampleDrawTest, TopKOfTheVocabularyAndMoreKeepsAll) {
  const std::vector<double> logits = NormalLogits(3, 70, 1.0);
  SampleRow row{.temperature = 1.0f, .seed = 4};
  const std::vector<int> all = Count(logits, row, 3000);
  for (const int32_t k : {70, 71, 2147483647}) {
    row.top_k = k;
    EXPECT_EQ(Count(logits, row, 3000), all) << k;
  }
}

TEST_P(SampleDrawTest, SeedAndPositionMatter) {
  const std::vector<double> logits = NormalLogits(5, 1000, 1.0);
  SampleCall call(device(), 300, 1000);
  std::vector<double> all;
  for (int i = 0; i < 300; ++i) all.insert(all.end(), logits.begin(), logits.end());
  call.logits.Set(all);
  for (size_t i = 0; i < 300; ++i) {  // 100 positions, 100 seeds, 100 high halves of seeds
    call.rows[i] = {.temperature = 1.0f, .seed = 9, .position = 3};
    if (i < 100) call.rows[i].position = static_cast<int64_t>(i);
    if (i / 100 == 1) call.rows[i].seed = i;
    if (i / 100 == 2) call.rows[i].seed = i << 32;
  }
  call.Run(ctx());
  const std::vector<double> ids = call.ids.Get();
  for (auto part = ids.begin(); part != ids.end(); part += 100) {
    std::vector<double> distinct(part, part + 100);
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    EXPECT_GT(distinct.size(), 60u);
  }
}

TEST(PhiloxTest, MatchesThePublishedVectors) {
  using Four = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, UniformIsUniform) {
  std::vector<int> counts(100);
  for (int64_t i = 0; i < 100000; ++i) {
    const double u = PhiloxUniform(7, i);
    ASSERT_TRUE(0 <= u && u < 1);
    ++counts[static_cast<size_t>(u * 100)];
  }
  EXPECT_LT(std::fabs(ChiSquareExcess(counts, std::vector<double>(100, 0.01))), 4);
}

}  // namespace
}  // namespace millrace
