#include "kernels/latent_attention/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/latent_attention/latent_attention_cases.h"
#include "kernels/latent_cache/testing.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

size_t At(int64_t i) { return static_cast<size_t>(i); }

// Sequences with rows in the cache, and one step's queries; `out` has one token more than they.
struct World {
  World(Device& device, const LatentAttentionCase& c, std::vector<SequenceStep> steps,
        uint64_t seed = 5)
      : c(c),
        pages(Lengths(steps), c.page_tokens, seed),
        batch(device, pages, steps),
        q(device, c.q, {batch.tokens() + 1, c.heads, c.dim}, c.padding),
        out(device, c.q, {batch.tokens() + 1, c.heads, c.dim}, c.padding),
        window_rows(LatentStore(device, c.rows, pages.num_pages(), c.page_tokens, c.dim)),
        compressed_rows(LatentStore(device, c.rows, pages.num_pages(),
                                    c.page_tokens / std::max<int64_t>(c.ratio, 1), c.dim)),
        selected(device, DType::kI32, {batch.tokens() + 1, std::max<int64_t>(c.chosen, 1)}, 2),
        sinks(device, DType::kF32, {c.heads}),
        window(c.window),
        scale(static_cast<float>(1 / std::sqrt(static_cast<double>(c.dim)))) {
    TestRng rng(seed);
    q.SetNormal(rng, 2);
    out.SetAll(-77);
    FillLatentStore(window_rows, rng);
    FillLatentStore(compressed_rows, rng);
    sinks.SetNormal(rng, 2);
    selected.Set(RandomSelection(rng));
  }

  static std::vector<int64_t> Lengths(const std::vector<SequenceStep>& steps) {
    std::vector<int64_t> lengths;
    for (const SequenceStep& s : steps) lengths.push_back(s.before + s.tokens);
    return lengths;
  }

  int64_t Visible(int64_t t) const { return c.ratio == 0 ? 0 : (batch.position(t) + 1) / c.ratio; }

  // Distinct visible entries in rising order, then -1.
  Values RandomSelection(TestRng& rng) const {
    Values all;
    for (int64_t t = 0; t < batch.tokens() + 1; ++t) {
      Values mine;
      const int64_t visible = t < batch.tokens() ? Visible(t) : 0;
      for (int64_t s = 0; s < visible; ++s) {
        const auto room = c.chosen - static_cast<int64_t>(mine.size());
        if (rng.Integer(0, visible - s - 1) < room) mine.push_back(static_cast<double>(s));
      }
      mine.resize(At(std::max<int64_t>(c.chosen, 1)), -1);
      all.insert(all.end(), mine.begin(), mine.end());
    }
    return all;
  }

  LatentAttentionArgs Args() const {
    LatentAttentionArgs args = {.q = q.view(),
                                .window_rows = window_rows.view(),
                                .sinks = sinks.view(),
                                .batch = batch.view(),
                                .out = out.view(),
                                .window = window,
                                .scale = scale};
    if (c.ratio > 0) args.compressed_rows = compressed_rows.view();
    if (c.chosen > 0) args.selected = selected.view();
    return args;
  }

  // Indices into the stores' rows that token t sees: of the window, of the compressed.
  std::pair<std::vector<size_t>, std::vector<size_t>> Keys(int64_t t) const {
    std::pair<std::vector<size_t>, std::vector<size_t>> keys;
    const int64_t b = batch.sequence(t), position = batch.position(t);
    for (int64_t p = std::max<int64_t>(0, position - window + 1); p <= position; ++p) {
      keys.first.push_back(At(pages.RowOf(b, p)));
    }
    const auto add = [&](int64_t s) {
      if (s >= 0 && s < Visible(t)) {
        keys.second.push_back(At(pages.RowOf(b, s * c.ratio, c.ratio)));
      }
    };
    const Values chosen = selected.Get();
    for (int64_t i = 0; i < c.chosen; ++i) {
      add(static_cast<int64_t>(chosen[At(t * c.chosen + i)]));
    }
    for (int64_t s = 0; c.chosen == 0 && s < Visible(t); ++s) add(s);
    return keys;
  }

  // The output of token t's heads, in double.
  Values Expected(int64_t t, const TestRows& windows, const TestRows& compressed,
                  const Values& queries) const {
    const auto [near, far] = Keys(t);
    std::vector<const Values*> keys;
    for (size_t row : near) keys.push_back(&windows[row]);
    for (size_t row : far) keys.push_back(&compressed[row]);
    Values all;
    const Values sink = sinks.Get();
    for (int64_t n = 0; n < c.heads; ++n) {
      const Values head = Attended(queries.data() + (t * c.heads + n) * c.dim, keys, sink[At(n)]);
      all.insert(all.end(), head.begin(), head.end());
    }
    return all;
  }

  Values Attended(const double* query, const std::vector<const Values*>& keys, double sink) const {
    Values scores;
    double maximum = sink;
    for (const Values* key : keys) {
      double dot = 0;
      for (int64_t d = 0; d < c.dim; ++d) dot += query[d] * (*key)[At(d)];
      scores.push_back(dot * scale);
      maximum = std::max(maximum, scores.back());
    }
    double sum = std::exp(sink - maximum);
    Values mixed(At(c.dim), 0);
    for (size_t j = 0; j < keys.size(); ++j) {
      const double w = std::exp(scores[j] - maximum);
      sum += w;
      for (size_t d = 0; d < mixed.size(); ++d) mixed[d] += w * (*keys[j])[d];
    }
    for (double& x : mixed) x /= sum;
    return mixed;
  }

  Values Out(int64_t t) const {
    const Values all = out.Get();
    return Values(all.begin() + t * c.heads * c.dim, all.begin() + (t + 1) * c.heads * c.dim);
  }

  bool GuardsIntact() const {
    return q.GuardsIntact() && out.GuardsIntact() && window_rows.GuardsIntact() &&
           compressed_rows.GuardsIntact() && selected.GuardsIntact() && sinks.GuardsIntact() &&
           batch.GuardsIntact();
  }

  LatentAttentionCase c;
  ScatteredPages pages;
  StepBatch batch;
  GuardedTensor q, out, window_rows, compressed_rows, selected, sinks;
  int64_t window;
  float scale;
};

class LatentAttentionTest : public OpTest {
 protected:
  void Run(const LatentAttentionArgs& args) {
    const absl::Status status = LatentAttention(ctx(), args);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  }

  void Check(World& world) {
    Run(world.Args());
    const TestRows windows = LatentStoreRows(world.window_rows);
    const TestRows compressed = LatentStoreRows(world.compressed_rows);
    const Values queries = world.q.Get();
    const Tolerance tolerance = ToleranceOf(world);
    for (int64_t t = 0; t < world.batch.tokens(); ++t) {
      ASSERT_TRUE(
          AllClose(world.Out(t), world.Expected(t, windows, compressed, queries), tolerance))
          << "token " << t << " at " << world.batch.position(t);
    }
    EXPECT_EQ(world.Out(world.batch.tokens()), Values(At(world.c.heads * world.c.dim), -77));
    EXPECT_TRUE(world.GuardsIntact());
  }

  // bf16 outputs are rounded. Behind bf16 queries a GPU rounds weights to bf16 as well: each is off
  // by at most 2^-9 of itself, so a sum by at most 2^-9 of the rows' largest magnitude, which
  // FillLatentStore keeps below 8.
  Tolerance ToleranceOf(const World& world) {
    if (world.c.q == DType::kF32) return {2e-5, 1e-5};
    const bool rounds_weights = GetParam().type != DeviceType::kCpu;
    return {rounds_weights ? 0x1p-9 * 8 : 2e-4, 4e-3};
  }

  // The rows of both stores that no token sees.
  void Poison(World& world) {
    for (const bool is_window : {true, false}) {
      GuardedTensor& store = is_window ? world.window_rows : world.compressed_rows;
      std::vector<bool> is_seen(LatentStoreRows(store).size());
      for (int64_t t = 0; t < world.batch.tokens(); ++t) {
        const auto [near, far] = world.Keys(t);
        for (size_t row : is_window ? near : far) is_seen[row] = true;
      }
      Values values = store.Get();
      for (size_t i = 0; i < values.size(); ++i) {
        if (!is_seen[i / At(world.c.dim)]) values[i] = kNan;
      }
      store.Set(values);
    }
  }
};

// No compressed row yet, the window not full, exactly full, one past; exactly at a window of 4 and
// of 128; long, and several tokens over a page's end; a sequence without tokens.
std::vector<SequenceStep> StepsOf(const LatentAttentionCase& c) {
  return {{0, 1},
          {0, 3},
          {c.window - 1, 2},
          {0, 0},
          {std::max<int64_t>(c.ratio, 2) - 2, 3},
          {2 * c.page_tokens - 2, 4},
          {c.page_tokens + c.ratio, 1}};
}

std::string NameOf(const LatentAttentionCase& c) {
  return std::to_string(c.heads) + " heads of " + std::to_string(c.dim) + ", window " +
         std::to_string(c.window) + ", ratio " + std::to_string(c.ratio) + ", chosen " +
         std::to_string(c.chosen) + ", rows " + std::string(DTypeName(c.rows));
}

TEST_P(LatentAttentionTest, MatchesTheFormulas) {
  for (const LatentAttentionCase& c : kLatentAttentionCases) {
    SCOPED_TRACE(NameOf(c));
    World world(device(), c, StepsOf(c));
    Check(world);
  }
}

TEST_P(LatentAttentionTest, EveryLengthOfASequence) {
  for (int64_t chosen : {0, 3}) {
    World world(device(), {3, 16, 5, 8, 4, chosen}, {{0, 45}});
    Check(world);
  }
  World world(device(), {2, 16, 16, 128, 128, 0}, {{0, 260}});
  Check(world);
}

TEST_P(LatentAttentionTest, NoSequencesOrNoTokens) {
  for (const std::vector<SequenceStep>& steps :
       {std::vector<SequenceStep>{}, std::vector<SequenceStep>{{0, 0}, {20, 0}}}) {
    World world(device(), {3, 16, 5, 8, 4, 2}, steps);
    Check(world);  // one token, of no sequence
    LatentAttentionArgs args = world.Args();
    args.q = args.q.Rows(0, 0);
    args.out = args.out.Rows(0, 0);
    args.selected = args.selected->Rows(0, 0);
    Run(args);
  }
}

TEST_P(LatentAttentionTest, RowsThatNoTokenSeesNeverMatter) {
  for (int64_t chosen : {0, 2}) {
    for (const LatentAttentionCase& c :
         {LatentAttentionCase{4, 32, 6, 16, 4, chosen},
          LatentAttentionCase{4, 512, 6, 16, 4, chosen, DType::kBF16, DType::kBF16}}) {
      SCOPED_TRACE(NameOf(c));
      World world(device(), c, {{0, 1}, {40, 3}, {7, 9}});
      Poison(world);
      Check(world);
    }
  }
}

// A shape as it is, and with what tensor cores take.
std::vector<LatentAttentionCase> AlsoServed(LatentAttentionCase c) {
  LatentAttentionCase served = c;
  served.dim = 512;
  served.q = served.rows = DType::kBF16;
  return {c, served};
}

TEST_P(LatentAttentionTest, EntriesThatATokenDoesNotSeeCountForNothing) {
  for (const LatentAttentionCase& c : AlsoServed({2, 16, 4, 8, 4, 5})) {
    SCOPED_TRACE(NameOf(c));
    World world(device(), c, {{21, 1}});  // sees 5 entries
    world.selected.Set({-1, 1, 5, 2000000000, 3, -1, -1, -1, -1, -1});
    Check(world);
    World lone(device(), c, {{21, 1}});
    lone.selected.SetAll(-1);
    Check(lone);
    World third(device(), c, {{21, 1}});
    third.selected.Set({1, 3, -1, -1, -1, -1, -1, -1, -1, -1});
    Run(third.Args());
    EXPECT_EQ(world.Out(0), third.Out(0));
  }
}

TEST_P(LatentAttentionTest, ManyKeysInSeveralBlocks) {
  for (int64_t window : {63, 64, 65, 200}) {
    for (const LatentAttentionCase& c : AlsoServed({5, 32, window, 64, 2, 0})) {
      SCOPED_TRACE(NameOf(c));
      World world(device(), c, {{500, 2}, {62, 4}});
      Check(world);
    }
  }
}

TEST_P(LatentAttentionTest, ManyHolesInALongSelection) {
  constexpr int64_t kChosen = 700;
  for (const LatentAttentionCase& c : AlsoServed({18, 32, 9, 64, 1, kChosen})) {
    SCOPED_TRACE(NameOf(c));
    World world(device(), c, {{300, 2}});
    Values selected;
    for (int64_t i = 0; i < 3 * kChosen; ++i) {
      const int64_t entry = i % kChosen;
      selected.push_back(entry % 3 == 0 ? static_cast<double>(entry) : -1);  // some unseen
    }
    world.selected.Set(selected);
    Check(world);
  }
}

TEST_P(LatentAttentionTest, ParametersMatter) {
  for (const LatentAttentionCase& c : AlsoServed({4, 32, 6, 16, 4, 3})) {
    SCOPED_TRACE(NameOf(c));
    World base(device(), c, {{30, 2}});
    Run(base.Args());
    const auto changed = [&](auto change) {
      World world(device(), c, {{30, 2}});
      change(world);
      Check(world);
      EXPECT_NE(world.Out(0), base.Out(0));
    };
    changed([](World& w) { w.scale *= 2; });
    changed([](World& w) { w.window = 7; });
    changed([](World& w) { w.window = 5; });
    changed([](World& w) { w.sinks.SetAll(1); });
    changed([](World& w) { w.selected.Set({0, 1, 2, 0, 1, 2, 0, 1, 2}); });
  }
}

TEST_P(LatentAttentionTest, SinksOfAnySize) {
  for (const LatentAttentionCase& c : AlsoServed({4, 16, 5, 8, 4, 0})) {
    SCOPED_TRACE(NameOf(c));
    World world(device(), c, {{0, 9}});
    world.sinks.Set({-kInfinity, 300, -300, 0});
    Check(world);
    const Values out = world.Out(8);
    for (int64_t d = 0; d < c.dim; ++d) EXPECT_EQ(out[At(c.dim + d)], 0) << d;  // all the sink's
  }
}

TEST_P(LatentAttentionTest, LargeScores) {
  World world(device(), {3, 32, 40, 16, 4, 0}, {{90, 2}});
  world.scale = 30;
  Run(world.Args());
  const TestRows windows = LatentStoreRows(world.window_rows);
  const TestRows compressed = LatentStoreRows(world.compressed_rows);
  for (int64_t t = 0; t < 2; ++t) {
    EXPECT_TRUE(AllClose(world.Out(t), world.Expected(t, windows, compressed, world.q.Get()),
                         {5e-3, 1e-3}));
  }
}

TEST_P(LatentAttentionTest, NanReachesTheTokensThatSeeIt) {
  for (const LatentAttentionCase& c : AlsoServed({2, 16, 4, 8})) {
    World world(device(), c, {{0, 12}});
    Values rows = world.window_rows.Get();
    rows[At(world.pages.RowOf(0, 5) * c.dim + 3)] = kNan;
    world.window_rows.Set(rows);
    Run(world.Args());
    for (int64_t t = 0; t < 12; ++t) {
      EXPECT_EQ(std::isnan(world.Out(t)[0]), t >= 5 && t < 9) << t;
    }
  }
}

// One token of a world on its own, with `tokens` of its sequence before and after it.
Values Alone(Device& device, const OpContext& ctx, World& world, int64_t t, int64_t neighbours) {
  const int64_t begin = std::max<int64_t>(0, t - neighbours);
  const int64_t end = std::min(world.batch.tokens(), t + neighbours + 1);
  StepBatch batch(device, world.pages, {{world.batch.position(begin), end - begin}},
                  {world.batch.sequence(t)});
  LatentAttentionArgs args = world.Args();
  args.q = args.q.Rows(begin, end);
  args.out = args.out.Rows(begin, end);
  if (args.selected) args.selected = args.selected->Rows(begin, end);
  args.batch = batch.view();
  const absl::Status status = LatentAttention(ctx, args);
  EXPECT_TRUE(status.ok()) << status;
  return world.Out(t);
}

TEST_P(LatentAttentionTest, WhatElseIsInTheBatchChangesNoBit) {
  for (const LatentAttentionCase& c :
       {LatentAttentionCase{64, 64, 20, 16, 4, 6}, LatentAttentionCase{37, 32, 90, 32, 8, 0},
        LatentAttentionCase{64, 512, 128, 128, 4, 8, DType::kBF16, DType::kU8}}) {
    SCOPED_TRACE(NameOf(c));
    const int64_t tokens = c.dim == 512 ? 10 : 70;
    World world(device(), c, {{130, tokens}});
    Run(world.Args());
    std::vector<Values> whole;
    for (int64_t t = 0; t < tokens; ++t) whole.push_back(world.Out(t));
    for (int64_t t = 0; t < tokens; t += c.dim == 512 ? 3 : 7) {
      EXPECT_EQ(Alone(device(), ctx(), world, t, 0), whole[At(t)]) << t;
      EXPECT_EQ(Alone(device(), ctx(), world, t, 4), whole[At(t)]) << t;
    }
  }
}

// As many tokens as make blocks of a GPU take 64 heads, 32 and 16 have the same bits.
TEST_P(LatentAttentionTest, HowManyTokensThereAreChangesNoBit) {
  const LatentAttentionCase c = {64, 512, 20, 16, 4, 6, DType::kBF16, DType::kU8};
  World world(device(), c, {{50, 300}});
  Run(world.Args());
  const Values last = world.Out(299), middle = world.Out(150);
  for (int64_t neighbours : {0, 49, 100}) {
    EXPECT_EQ(Alone(device(), ctx(), world, 299, neighbours), last) << neighbours;
    EXPECT_EQ(Alone(device(), ctx(), world, 150, neighbours), middle) << neighbours;
  }
}

TEST_P(LatentAttentionTest, ThreadsChangeNoBit) {
  World world(device(), {40, 32, 20, 16, 4, 6}, {{77, 1}, {3, 5}});
  Run(world.Args());
  const std::vector<uint8_t> bits = world.out.GetBytes();
  for (int threads : {1, 4, 7}) {
    DeviceUnderTest other = GetParam();
    if (other.type != DeviceType::kCpu) continue;
    other.threads = threads;
    OpTestBed bed(other);
    World again(bed.device(), {40, 32, 20, 16, 4, 6}, {{77, 1}, {3, 5}});
    ASSERT_TRUE(LatentAttention(bed.ctx(), again.Args()).ok());
    EXPECT_EQ(again.out.GetBytes(), bits) << threads << " threads";
  }
}

TEST_P(LatentAttentionTest, PagesMayLieApart) {
  World world(device(), {3, 32, 10, 4, 2, 0}, {{0, 6}});
  Run(world.Args());
  const std::vector<uint8_t> want = world.out.GetBytes();
  // The same pages, each followed by one of NaN.
  const auto spread = [&](const GuardedTensor& store) {
    const TensorView& v = store.view();
    auto wide = std::make_unique<GuardedTensor>(
        device(), v.dtype, std::vector<int64_t>{2 * v.dim(0), 1, v.dim(2), v.dim(3)});
    const Values from = store.Get();
    Values to(from.size() * 2, kNan);
    const int64_t page = v.dim(2) * v.dim(3);
    for (int64_t i = 0; i < v.dim(0); ++i) {
      std::copy_n(from.begin() + i * page, page, to.begin() + 2 * i * page);
    }
    wide->Set(to);
    return wide;
  };
  const auto windows = spread(world.window_rows), compressed = spread(world.compressed_rows);
  LatentAttentionArgs args = world.Args();
  for (auto [view, wide] : {std::pair{&args.window_rows, windows.get()},
                            std::pair{&*args.compressed_rows, compressed.get()}}) {
    const int64_t pages = view->dim(0);
    *view = wide->view();
    view->dims[0] = pages;
    view->strides[0] *= 2;
  }
  Run(args);
  EXPECT_EQ(world.out.GetBytes(), want);
}

TEST_P(LatentAttentionTest, WorkspaceIsWhatItSaysAndMissedWhenSmall) {
  World world(device(), {40, 48, 6, 16, 4, 0}, {{20, 9}});
  const int64_t enough = LatentAttentionWorkspaceBytes(device(), 40, 48);
  if (GetParam().type != DeviceType::kCpu) {
    EXPECT_EQ(enough, 0);
    return;
  }
  OpTestBed exact(GetParam(), enough);
  OpContext fits{device(), Stream{}, exact.workspace()};
  EXPECT_TRUE(LatentAttention(fits, world.Args()).ok());
  OpTestBed small(GetParam(), 1024);
  OpContext tight{device(), Stream{}, small.workspace()};
  EXPECT_EQ(LatentAttention(tight, world.Args()).code(), absl::StatusCode::kResourceExhausted);
}

class LatentAttentionRefusalTest : public LatentAttentionTest {
 protected:
  template <typename Change>
  std::string Message(Change change, const LatentAttentionCase& c = {3, 32, 6, 16, 4, 2}) {
    World world(device(), c, {{30, 2}});
    LatentAttentionArgs args = world.Args();
    change(args);
    return std::string(LatentAttention(ctx(), args).message());
  }
};

TEST_P(LatentAttentionRefusalTest, Heads) {
  EXPECT_EQ(Message([](auto& a) { a.out = a.out.Rows(0, 2); }),
            "LatentAttention: out.dim(0) = 2, want 3");
  EXPECT_EQ(Message([](auto& a) { a.out.dtype = DType::kBF16; }),
            "LatentAttention: out has dtype bfloat16, want float32");
  EXPECT_EQ(Message([](auto& a) { a.sinks = a.sinks.Rows(0, 2); }),
            "LatentAttention: sinks.dim(0) = 2, want 3");
  EXPECT_EQ(Message([](auto&) {}, {2, 24, 6, 16}),
            "LatentAttention: heads must have a multiple of 16 channels");
  EXPECT_EQ(Message([](auto& a) { a.window = 0; }), "LatentAttention: window must be at least 1");
}

TEST_P(LatentAttentionRefusalTest, Rows) {
  EXPECT_EQ(Message([](auto& a) { a.window_rows = a.window_rows.Cols(0, 16); }),
            "LatentAttention: window_rows.dim(3) = 16, want 32");
  EXPECT_EQ(Message([](auto& a) { a.compressed_rows->dtype = DType::kBF16; }),
            "LatentAttention: compressed_rows must have the dtype of window_rows");
  EXPECT_EQ(Message([](auto& a) { *a.compressed_rows = a.compressed_rows->Rows(0, 1); }),
            "LatentAttention: compressed_rows must have as many pages as window_rows");
  EXPECT_EQ(Message([](auto& a) { a.compressed_rows->dims[2] = 3; }),
            "LatentAttention: compressed_rows: rows of a page must divide the page's tokens");
  EXPECT_EQ(Message([](auto& a) { a.compressed_rows.reset(); }),
            "LatentAttention: selected needs compressed_rows");
  EXPECT_EQ(Message([](auto& a) { *a.selected = a.selected->Rows(0, 2); }),
            "LatentAttention: selected.dim(0) = 2, want 3");
  EXPECT_EQ(Message([](auto&) {}, {2, 64, 6, 16, 4, 0, DType::kF32, DType::kU8}),
            "LatentAttention: window_rows: FP8 rows have 512 channels");
}

TEST_P(LatentAttentionRefusalTest, Batch) {
  EXPECT_EQ(Message([](auto& a) { a.batch.kv_len = a.batch.kv_len.Rows(0, 0); }),
            "LatentAttention: kv_len.dim(0) = 0, want 1");
  if (GetParam().type != DeviceType::kCpu) return;  // only the CPU reads lengths
  EXPECT_EQ(Message([](auto& a) { a.batch.page_table = a.batch.page_table.Cols(0, 1); }),
            "LatentAttention: kv_len[0] = 32, want 2 to 16");
}

INSTANTIATE_TEST_SUITE_P(Devices, LatentAttentionTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);
INSTANTIATE_TEST_SUITE_P(Devices, LatentAttentionRefusalTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
