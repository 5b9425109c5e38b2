#include "kernels/index_select/index_select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/index_select/index_select_cases.h"
#include "kernels/latent_cache/hadamard_fp4.h"
#include "kernels/latent_cache/testing.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

size_t At(int64_t i) { return static_cast<size_t>(i); }

// Sequences with keys in the cache, and one step's queries.
struct World {
  World(Device& device, const IndexSelectCase& c, std::vector<SequenceStep> steps,
        uint64_t seed = 11)
      : c(c),
        pages(Lengths(steps), c.page_tokens, seed),
        batch(device, pages, steps),
        q(device, c.q, {batch.tokens() + 1, c.heads, c.dim}, c.padding),
        weights(device, c.q, {batch.tokens() + 1, c.heads}, c.padding),
        keys(device, c.keys, {pages.num_pages(), 1, c.page_tokens / c.ratio, c.dim}, c.padding),
        selected(device, DType::kI32, {batch.tokens() + 1, c.chosen}, c.padding) {
    TestRng rng(seed);
    q.SetNormal(rng);
    weights.SetNormal(rng);
    keys.SetNormal(rng);
    selected.SetAll(-77);
  }

  static std::vector<int64_t> Lengths(const std::vector<SequenceStep>& steps) {
    std::vector<int64_t> lengths;
    for (const SequenceStep& s : steps) lengths.push_back(s.before + s.tokens);
    return lengths;
  }

  // One token more than the sequences have.
  IndexSelectArgs Args() const {
    return {.q = q.view(),
            .weights = weights.view(),
            .keys = keys.view(),
            .batch = batch.view(),
            .selected = selected.view(),
            .ratio = c.ratio,
            .scale = scale,
            .hadamard_fp4 = hadamard_fp4};
  }

  int64_t Visible(int64_t t) const { return (batch.position(t) + 1) / c.ratio; }

  // Scores of the entries that token t sees.
  Values Scores(int64_t t, const Values& qs, const Values& ws, const Values& ks) const {
    std::vector<float> query(qs.begin() + t * c.heads * c.dim,
                             qs.begin() + (t + 1) * c.heads * c.dim);
    for (int64_t n = 0; hadamard_fp4 && n < c.heads; ++n) {
      ApplyHadamardFp4(query.data() + n * c.dim, c.dim);
    }
    Values scores;
    for (int64_t s = 0; s < Visible(t); ++s) {
      const int64_t row = pages.RowOf(batch.sequence(t), s * c.ratio, c.ratio);
      double score = 0;
      for (int64_t n = 0; n < c.heads; ++n) {
        double dot = 0;
        for (int64_t d = 0; d < c.dim; ++d) {
          dot += query[At(n * c.dim + d)] * ks[At(row * c.dim + d)];
        }
        score += std::max(dot, 0.0) * ws[At(t * c.heads + n)] * scale;
      }
      scores.push_back(score);
    }
    return scores;
  }

  // What token t selected, padding gone; -1 must all be at the end.
  std::vector<int64_t> Selected(int64_t t) const {
    const Values all = selected.Get();
    std::vector<int64_t> mine;
    for (int64_t i = 0; i < c.chosen; ++i) {
      const auto entry = static_cast<int64_t>(all[At(t * c.chosen + i)]);
      if (entry == -1) continue;
      EXPECT_EQ(static_cast<int64_t>(mine.size()), i) << "token " << t << ": an entry after -1";
      mine.push_back(entry);
    }
    return mine;
  }

  bool GuardsIntact() const {
    return q.GuardsIntact() && weights.GuardsIntact() && keys.GuardsIntact() &&
           selected.GuardsIntact() && batch.GuardsIntact();
  }

  IndexSelectCase c;
  ScatteredPages pages;
  StepBatch batch;
  GuardedTensor q, weights, keys, selected;
  float scale = 0.05f;
  bool hadamard_fp4 = false;
};

class IndexSelectTest : public OpTest {
 protected:
  void Run(const IndexSelectArgs& args) {
    const absl::Status status = IndexSelect(ctx(), args);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  }

  // Rising entries, as many as there should be, none of which is worse than one left out, but by
  // what f32 may confuse.
  void ExpectLargest(const World& world, int64_t t, const Values& scores) {
    const std::vector<int64_t> got = world.Selected(t);
    const auto visible = static_cast<int64_t>(scores.size());
    ASSERT_EQ(static_cast<int64_t>(got.size()), std::min(world.c.chosen, visible)) << "token " << t;
    double largest = 0, worst = std::numeric_limits<double>::infinity();
    for (double score : scores) largest = std::max(largest, std::abs(score));
    std::vector<bool> is_in(scores.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(got[i] >= 0 && got[i] < visible) << "token " << t << ": " << got[i];
      ASSERT_TRUE(i == 0 || got[i - 1] < got[i]) << "token " << t;
      is_in[At(got[i])] = true;
      worst = std::min(worst, scores[At(got[i])]);
    }
    for (size_t s = 0; s < scores.size(); ++s) {
      if (is_in[s]) continue;
      EXPECT_LE(scores[s], worst + largest * 1e-5) << "token " << t << " entry " << s;
    }
  }

  void Check(World& world) {
    Run(world.Args());
    const Values q = world.q.Get(), weights = world.weights.Get(), keys = world.keys.Get();
    for (int64_t t = 0; t < world.batch.tokens(); ++t) {
      ExpectLargest(world, t, world.Scores(t, q, weights, keys));
    }
    const Values all = world.selected.Get();  // the token of no sequence
    EXPECT_EQ(Values(all.end() - world.c.chosen, all.end()), Values(At(world.c.chosen), -77));
    EXPECT_TRUE(world.GuardsIntact());
  }
};

TEST_P(IndexSelectTest, MatchesTheFormulas) {
  for (const IndexSelectCase& c : kIndexSelectCases) {
    SCOPED_TRACE(testing::Message() << c.heads << " heads of " << c.dim << ", " << c.chosen
                                    << " of windows of " << c.ratio);
    // No entry yet, the first, few, one token after many, several across a page's end.
    World world(device(), c,
                {{0, c.ratio - 1},
                 {c.ratio - 1, 1},
                 {0, 0},
                 {2, 5 * c.ratio},
                 {c.ratio * (c.chosen + 3), 1},
                 {c.page_tokens * 2 - 2, 5}});
    Check(world);
  }
}

TEST_P(IndexSelectTest, NoSequencesOrNoTokens) {
  for (const std::vector<SequenceStep>& steps :
       {std::vector<SequenceStep>{}, std::vector<SequenceStep>{{0, 0}, {20, 0}}}) {
    World world(device(), {3, 8, 2, 4, 8}, steps);
    Check(world);  // one token, of no sequence
    IndexSelectArgs args = world.Args();
    args.q = args.q.Rows(0, 0);
    args.weights = args.weights.Rows(0, 0);
    args.selected = args.selected.Rows(0, 0);
    Run(args);
  }
}

TEST_P(IndexSelectTest, LongSequencesAreCutIntoUnits) {
  for (int64_t entries : {255, 256, 257, 1030}) {
    World world(device(), {3, 16, 9, 4, 16}, {{entries * 4 - 1, 1}, {0, 3}, {40, 2}});
    Check(world);
  }
}

TEST_P(IndexSelectTest, EntriesBesideTheCutsOfUnits) {
  World world(device(), {1, 4, 6, 1, 64}, {{769, 1}});
  world.q.SetAll(1);
  world.weights.SetAll(1);
  Values keys = world.keys.Get();
  const std::vector<int64_t> best = {0, 255, 256, 511, 512, 769};
  for (int64_t s : best) {
    for (int64_t d = 0; d < 4; ++d) keys[At(world.pages.RowOf(0, s) * 4 + d)] = 9;
  }
  world.keys.Set(keys);
  Run(world.Args());
  EXPECT_EQ(world.Selected(0), best);
}

TEST_P(IndexSelectTest, AllVisibleWhereTheyFit) {
  World world(device(), {2, 8, 5, 4, 16}, {{0, 27}});
  Run(world.Args());
  for (int64_t t = 0; t < 23; ++t) {
    std::vector<int64_t> want(At((t + 1) / 4));
    std::iota(want.begin(), want.end(), 0);
    EXPECT_EQ(world.Selected(t), want) << "token " << t;
  }
  EXPECT_EQ(world.Selected(23).size(), 5u);  // of six
}

TEST_P(IndexSelectTest, TiesGoToTheLowerEntry) {
  World world(device(), {1, 1, 4, 1, 4}, {{0, 12}});
  world.q.SetAll(1);
  world.weights.SetAll(1);
  Values keys(At(world.keys.size()), 0);
  const Values by_entry = {1, 0, 2, -1, 1, 1, 2, 1, 3, 0, -5, 1};
  for (int64_t s = 0; s < 12; ++s) keys[At(world.pages.RowOf(0, s))] = by_entry[At(s)];
  world.keys.Set(keys);
  Run(world.Args());
  EXPECT_EQ(world.Selected(4), (std::vector<int64_t>{0, 1, 2, 4}));  // 0 and -1 both score 0
  EXPECT_EQ(world.Selected(7), (std::vector<int64_t>{0, 2, 4, 6}));
  EXPECT_EQ(world.Selected(11), (std::vector<int64_t>{0, 2, 6, 8}));
  world.keys.SetAll(1);
  Run(world.Args());
  for (int64_t t = 3; t < 12; ++t) EXPECT_EQ(world.Selected(t), (std::vector<int64_t>{0, 1, 2, 3}));
  world.weights.SetAll(-1);  // -0 and 0 are equal
  for (int64_t s = 0; s < 12; ++s) keys[At(world.pages.RowOf(0, s))] = s % 2 == 0 ? -1 : 0;
  world.keys.Set(keys);
  Run(world.Args());
  EXPECT_EQ(world.Selected(11), (std::vector<int64_t>{0, 1, 2, 3}));
}

// Scores that f32 has exactly and that many entries share, on shapes of each kernel.
TEST_P(IndexSelectTest, ManyTiesAmongManyEntries) {
  for (const IndexSelectCase& c :
       {IndexSelectCase{64, 128, 512, 4, 128, DType::kBF16, DType::kBF16},
        IndexSelectCase{64, 128, 7, 4, 128, DType::kBF16, DType::kBF16},
        IndexSelectCase{5, 40, 512, 4, 128}}) {
    SCOPED_TRACE(testing::Message() << c.heads << " heads, " << c.chosen << " chosen");
    World world(device(), c, {{12345, 1}, {8190, 3}});
    TestRng rng(5);
    const auto few = [&rng](const GuardedTensor& t, int64_t dim) {
      Values values(At(t.size()), 0);
      for (size_t i = 0; i < values.size(); ++i) {
        if (static_cast<int64_t>(i) % dim < 3) values[i] = std::round(rng.Uniform(-1.4f, 1.4f));
      }
      return values;
    };
    world.q.Set(few(world.q, c.dim));
    world.weights.Set(few(world.weights, 1));
    world.scale = 0.25f;
    Values keys = few(world.keys, c.dim);
    for (int64_t s : {0, 5, 1000})
      keys[At(world.pages.RowOf(0, s * c.ratio, c.ratio) * c.dim)] = kNan;
    world.keys.Set(keys);
    Run(world.Args());
    const Values q = world.q.Get(), weights = world.weights.Get();
    for (int64_t t = 0; t < world.batch.tokens(); ++t) {
      Values scores = world.Scores(t, q, weights, keys);
      for (double& score : scores) {
        if (std::isnan(score)) score = -std::numeric_limits<double>::infinity();
      }
      std::vector<int64_t> want(scores.size());
      std::iota(want.begin(), want.end(), 0);
      std::stable_sort(want.begin(), want.end(),
                       [&](int64_t a, int64_t b) { return scores[At(a)] > scores[At(b)]; });
      want.resize(At(c.chosen));
      std::sort(want.begin(), want.end());
      EXPECT_EQ(world.Selected(t), want) << "token " << t;
    }
    EXPECT_TRUE(world.GuardsIntact());
  }
}

// More than the GPU takes at once.
TEST_P(IndexSelectTest, ManyTokens) {
  World world(device(), {3, 8, 9, 4, 16}, {{0, 1100}, {70, 3}});
  Check(world);
}

TEST_P(IndexSelectTest, OneTokenOfEachSequence) {
  for (DType q : {DType::kBF16, DType::kF32}) {
    World world(device(), {64, 128, 32, 4, 64, q, DType::kBF16, 8},
                {{2100, 1}, {0, 1}, {0, 0}, {127, 1}, {700, 1}, {515, 1}});
    Check(world);
  }
}

TEST_P(IndexSelectTest, EachHeadIsCutAtZero) {
  World world(device(), {2, 1, 1, 1, 4}, {{1, 1}});
  world.weights.SetAll(1);
  world.q.Set({1, -1, 0, 0});
  Values keys(At(world.keys.size()), 0);
  keys[At(world.pages.RowOf(0, 0))] = -3;  // heads -3 and 3: 3, where a plain sum is 0
  keys[At(world.pages.RowOf(0, 1))] = 2;
  world.keys.Set(keys);
  Run(world.Args());
  EXPECT_EQ(world.Selected(0), (std::vector<int64_t>{0}));
  world.weights.Set({1, 0.25, 0, 0});
  Run(world.Args());
  EXPECT_EQ(world.Selected(0), (std::vector<int64_t>{1}));
}

TEST_P(IndexSelectTest, ScaleMatters) {
  World world(device(), {2, 4, 3, 1, 8}, {{20, 1}});
  Run(world.Args());
  const std::vector<int64_t> best = world.Selected(0);
  world.scale = -0.05f;
  Check(world);
  EXPECT_NE(world.Selected(0), best);
}

TEST_P(IndexSelectTest, NanScoresLowest) {
  World world(device(), {1, 1, 3, 1, 4}, {{5, 1}});
  world.q.SetAll(1);
  world.weights.SetAll(1);
  Values keys(At(world.keys.size()), 0);
  const Values by_entry = {kNan, 1, kNan, 2, 3, 0};
  for (int64_t s = 0; s < 6; ++s) keys[At(world.pages.RowOf(0, s))] = by_entry[At(s)];
  world.keys.Set(keys);
  Run(world.Args());
  EXPECT_EQ(world.Selected(0), (std::vector<int64_t>{1, 3, 4}));
  world.keys.SetAll(kNan);
  Run(world.Args());
  EXPECT_EQ(world.Selected(0), (std::vector<int64_t>{0, 1, 2}));
}

TEST_P(IndexSelectTest, ServingNumericsRoundTheQueries) {
  for (const IndexSelectCase& c :
       {IndexSelectCase{8, 64, 6, 4, 32, DType::kF32, DType::kBF16, 3},
        IndexSelectCase{8, 64, 6, 4, 32, DType::kBF16, DType::kBF16, 3},
        IndexSelectCase{3, 512, 6, 4, 32},
        IndexSelectCase{64, 128, 6, 4, 32, DType::kF32, DType::kBF16},
        IndexSelectCase{64, 128, 6, 4, 32, DType::kBF16, DType::kBF16}}) {
    SCOPED_TRACE(testing::Message() << c.heads << " heads of " << c.dim);
    World world(device(), c, {{0, 30}, {90, 2}});
    Run(world.Args());
    const std::vector<uint8_t> plain = world.selected.GetBytes();
    world.hadamard_fp4 = true;
    Check(world);
    EXPECT_NE(world.selected.GetBytes(), plain);
  }
}

// Chunks of a sequence, few tokens or many, and the whole select the same.
TEST_P(IndexSelectTest, WhatElseIsInTheBatchChangesNothing) {
  for (const IndexSelectCase& c :
       {IndexSelectCase{24, 32, 6, 4, 16},
        IndexSelectCase{64, 128, 6, 4, 16, DType::kBF16, DType::kBF16}}) {
    World whole(device(), c, {{0, 90}, {0, 33}});
    Run(whole.Args());
    for (int64_t chunk : {3, 64}) {
      for (int64_t begin = 0; begin < 90; begin += chunk) {
        const int64_t size = std::min<int64_t>(chunk, 90 - begin);
        StepBatch batch(device(), whole.pages, {{begin, size}});
        GuardedTensor selected(device(), DType::kI32, {size, c.chosen});
        IndexSelectArgs args = whole.Args();
        args.q = args.q.Rows(begin, begin + size);
        args.weights = args.weights.Rows(begin, begin + size);
        args.batch = batch.view();
        args.selected = selected.view();
        Run(args);
        const Values all = whole.selected.Get();
        EXPECT_EQ(selected.Get(),
                  Values(all.begin() + begin * c.chosen, all.begin() + (begin + size) * c.chosen))
            << "chunk " << chunk << " from " << begin;
      }
    }
  }
}

TEST_P(IndexSelectTest, WorkspaceIsWhatItSaysAndMissedWhenSmall) {
  World world(device(), {24, 32, 6, 4, 16}, {{200, 9}});
  const int64_t enough = IndexSelectWorkspaceBytes(device(), 24, 32, 224 / 4);
  OpTestBed exact(GetParam(), enough);
  OpContext fits{device(), Stream{}, exact.workspace()};
  EXPECT_TRUE(IndexSelect(fits, world.Args()).ok());
  EXPECT_LE(exact.workspace().peak(), enough);
  OpTestBed small(GetParam(), 1024);
  OpContext tight{device(), Stream{}, small.workspace()};
  EXPECT_EQ(IndexSelect(tight, world.Args()).code(), absl::StatusCode::kResourceExhausted);
}

// Of up to so many entries: chunks of fewer have more tokens.
TEST_P(IndexSelectTest, WorkspaceSufficesForFewerEntries) {
  const auto bytes = [&](int64_t entries) {
    return IndexSelectWorkspaceBytes(device(), 64, 128, entries);
  };
  for (int64_t most = 1024; most <= int64_t{1} << 20; most *= 2) {
    for (int64_t entries = 512; entries <= most; entries += most / 16) {
      EXPECT_LE(bytes(entries), bytes(most)) << entries << " of " << most;
    }
  }
}

TEST_P(IndexSelectTest, RefusesWhatDoesNotFit) {
  World world(device(), {3, 8, 4, 4, 16}, {{30, 2}});
  const auto message = [&](auto change) {
    IndexSelectArgs args = world.Args();
    change(args);
    return std::string(IndexSelect(ctx(), args).message());
  };
  EXPECT_EQ(message([](auto& a) { a.weights = a.weights.Cols(0, 2); }),
            "IndexSelect: weights.dim(1) = 2, want 3");
  EXPECT_EQ(message([](auto& a) { a.keys = a.keys.Cols(0, 7); }),
            "IndexSelect: keys.dim(3) = 7, want 8");
  EXPECT_EQ(message([](auto& a) { a.selected = a.selected.Rows(0, 2); }),
            "IndexSelect: selected.dim(0) = 2, want 3");
  EXPECT_EQ(message([](auto& a) { a.selected = a.selected.Cols(0, 0); }),
            "IndexSelect: selected must have room for an entry");
  EXPECT_EQ(message([](auto& a) { a.ratio = 0; }), "IndexSelect: ratio must be at least 1");
  EXPECT_EQ(message([](auto& a) { a.hadamard_fp4 = true; }),
            "IndexSelect: hadamard_fp4 needs heads of a power of two of channels, from 32 to 1024");
  EXPECT_EQ(message([](auto& a) { a.keys.dtype = DType::kU8; }),
            "IndexSelect: keys has dtype uint8, want float32 or bfloat16");
  EXPECT_EQ(message([](auto& a) { a.q = a.q.Rows(0, 1); }),
            "IndexSelect: weights.dim(0) = 3, want 1");
  if (device().type() != DeviceType::kCpu) return;  // lengths are the device's to read
  EXPECT_EQ(message([](auto& a) { a.batch.page_table = a.batch.page_table.Cols(0, 1); }),
            "IndexSelect: kv_len[0] = 32, want 2 to 16");
}

INSTANTIATE_TEST_SUITE_P(Devices, IndexSelectTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
