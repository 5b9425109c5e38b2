#include "kernels/kv_compress/kv_compress.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/kv_compress/kv_compress_cases.h"
#include "kernels/latent_cache/hadamard_fp4.h"
#include "kernels/latent_cache/testing.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kEps = 1e-3f;

size_t At(int64_t i) { return static_cast<size_t>(i); }

// Sequences with all their projections, the weights, and what the op keeps of them.
class World {
 public:
  World(Device& device, const KvCompressCase& c, std::vector<int64_t> lengths, uint64_t seed = 7)
      : shape({c.ratio, c.dim, c.carry_blocks > 0}),
        pages(lengths, c.page_tokens, seed),
        ape(device, DType::kF32, {c.ratio, shape.projected()}, 3),
        weight(device, c.weight, {c.dim}),
        inv_freq(device, DType::kF32, {c.pairs}),
        state(device, DType::kF32, {NumSlots(), shape.state_rows(), shape.state_width()}),
        carry(device, DType::kF32,
              {pages.num_pages(), 1, std::max<int64_t>(c.carry_blocks, 1), shape.carry_width()}),
        store(LatentStore(device, c.store, pages.num_pages(), c.page_tokens / c.ratio, c.dim)),
        device_(device) {
    TestRng rng(seed);
    for (int64_t length : lengths) {
      for (auto* all : {&kv_, &score_}) {
        TestRows rows;
        for (int64_t p = 0; p < length; ++p) rows.push_back(RandomRow(rng));
        all->push_back(std::move(rows));
      }
    }
    ape.SetNormal(rng);
    weight.SetUniform(rng, 0.5, 2);
    inv_freq.SetUniform(rng, 0, 1);
    FillLatentStore(store, rng);
    // state and carry stay full of NaN: nothing may count that was not written before.
  }

  int64_t NumSlots() const { return pages.sequences() + 2; }
  // Not in order.
  int64_t SlotOf(int64_t b) const { return NumSlots() - 1 - b; }
  int64_t Length(int64_t b) const { return static_cast<int64_t>(kv_[At(b)].size()); }
  Values& kv(int64_t b, int64_t p) { return kv_[At(b)][At(p)]; }
  Values& score(int64_t b, int64_t p) { return score_[At(b)][At(p)]; }

  // The row of entry s of sequence b, by the formulas.
  Values Expected(int64_t b, int64_t s) const {
    std::vector<std::pair<int64_t, int64_t>> parts;  // position, first channel
    const int64_t r = shape.ratio;
    for (int64_t p = s * r - (shape.overlap ? r : 0); p < (s + 1) * r; ++p) {
      if (p >= 0) parts.emplace_back(p, shape.overlap && p >= s * r ? shape.dim : 0);
    }
    const Values apes = ape.Get();
    Values row;
    for (int64_t i = 0; i < shape.dim; ++i) row.push_back(Pooled(b, parts, i, apes));
    double sum = 0;
    for (double x : row) sum += x * x;
    const double norm = std::sqrt(sum / static_cast<double>(shape.dim) + eps);
    const Values weights = weight.Get();
    for (size_t i = 0; i < row.size(); ++i) row[i] = row[i] / norm * weights[i];
    Rotate(row, static_cast<double>(s * r));
    return row;
  }

  // One step; `padding_tokens` more belong to no sequence.
  absl::Status Step(const OpContext& ctx, const std::vector<SequenceStep>& step,
                    std::vector<int64_t> order = {}, int64_t padding_tokens = 0) {
    StepBatch batch(device_, pages, step, order);
    const int64_t tokens = batch.tokens() + padding_tokens;
    GuardedTensor kv(device_, DType::kF32, {tokens, shape.projected()}, 5);
    GuardedTensor score(device_, DType::kF32, {tokens, shape.projected()}, 2);
    GuardedTensor slots(device_, DType::kI32, {static_cast<int64_t>(step.size())});
    Values kvs, scores, slot_ids;
    for (int64_t t = 0; t < tokens; ++t) {
      const bool is_real = t < batch.tokens();
      const Values none(At(shape.projected()), 0);
      const auto append = [&](Values& to, const std::vector<TestRows>& from) {
        const Values& row = is_real ? from[At(batch.sequence(t))][At(batch.position(t))] : none;
        to.insert(to.end(), row.begin(), row.end());
      };
      append(kvs, kv_);
      append(scores, score_);
    }
    kv.Set(kvs);
    score.Set(scores);
    for (size_t b = 0; b < step.size(); ++b) {
      slot_ids.push_back(
          static_cast<double>(SlotOf(order.empty() ? static_cast<int64_t>(b) : order[b])));
    }
    slots.Set(slot_ids);
    const absl::Status status = KvCompress(ctx, Args(batch, kv, score, slots));
    if (!status.ok()) return status;
    EXPECT_TRUE(kv.GuardsIntact() && score.GuardsIntact() && slots.GuardsIntact());
    return device_.Synchronize(ctx.stream);
  }

  // All tokens of all sequences in one step.
  absl::Status Whole(const OpContext& ctx) {
    std::vector<SequenceStep> step;
    for (int64_t b = 0; b < pages.sequences(); ++b) step.push_back({0, Length(b)});
    return Step(ctx, step);
  }

  KvCompressArgs Args(StepBatch& batch, const GuardedTensor& kv, const GuardedTensor& score,
                      const GuardedTensor& slots) const {
    KvCompressArgs args = {.kv = kv.view(),
                           .score = score.view(),
                           .ape = ape.view(),
                           .norm_weight = weight.view(),
                           .inv_freq = inv_freq.view(),
                           .batch = batch.view(),
                           .state_slots = slots.view(),
                           .state = state.view(),
                           .store = store.view(),
                           .norm_eps = eps,
                           .hadamard_fp4 = hadamard_fp4};
    if (shape.overlap) args.carry = carry.view();
    return args;
  }

  bool GuardsIntact() const {
    return ape.GuardsIntact() && weight.GuardsIntact() && inv_freq.GuardsIntact() &&
           state.GuardsIntact() && carry.GuardsIntact() && store.GuardsIntact();
  }

  KvCompressShape shape;
  ScatteredPages pages;
  float eps = kEps;
  bool hadamard_fp4 = false;
  GuardedTensor ape, weight, inv_freq, state, carry, store;

 private:
  Values RandomRow(TestRng& rng) const {
    Values row;
    for (int64_t i = 0; i < shape.projected(); ++i) row.push_back(static_cast<float>(rng.Normal()));
    return row;
  }

  double Pooled(int64_t b, const std::vector<std::pair<int64_t, int64_t>>& parts, int64_t channel,
                const Values& apes) const {
    double maximum = -kInfinity, sum = 0, mixed = 0;
    const auto score = [&](int64_t p, int64_t c) {
      return score_[At(b)][At(p)][At(c)] + apes[At(p % shape.ratio * shape.projected() + c)];
    };
    for (auto [p, c] : parts) maximum = std::max(maximum, score(p, c + channel));
    for (auto [p, c] : parts) {
      const double w = std::exp(score(p, c + channel) - maximum);
      sum += w;
      mixed += w * kv_[At(b)][At(p)][At(c + channel)];
    }
    return mixed / sum;
  }

  void Rotate(Values& row, double position) const {
    const Values frequencies = inv_freq.Get();
    double* pair = row.data() + row.size() - 2 * frequencies.size();
    for (double f : frequencies) {
      const double c = std::cos(position * f), s = std::sin(position * f);
      const double a = pair[0], b = pair[1];
      pair[0] = a * c - b * s;
      pair[1] = b * c + a * s;
      pair += 2;
    }
  }

  Device& device_;
  std::vector<TestRows> kv_, score_;  // [sequence][position][channel]
};

Tolerance ToleranceOf(DType store) {
  return store == DType::kF32 ? Tolerance{2e-5, 1e-5} : Tolerance{1e-4, 4e-3};
}

class KvCompressTest : public OpTest {
 protected:
  void RunWhole(World& world) {
    const absl::Status status = world.Whole(ctx());
    ASSERT_TRUE(status.ok()) << status;
  }

  void Step(World& world, const std::vector<SequenceStep>& step, std::vector<int64_t> order = {}) {
    const absl::Status status = world.Step(ctx(), step, std::move(order));
    ASSERT_TRUE(status.ok()) << status;
  }

  // Every complete entry's row is as the formulas have it, and every other row as it was.
  void ExpectRows(const World& world, const TestRows& before) {
    const TestRows got = LatentStoreRows(world.store);
    TestRows rest = before;
    for (int64_t b = 0; b < world.pages.sequences(); ++b) {
      for (int64_t s = 0; s < world.Length(b) / world.shape.ratio; ++s) {
        const size_t row = At(world.pages.RowOf(b, s * world.shape.ratio, world.shape.ratio));
        rest[row] = got[row];
        EXPECT_TRUE(AllClose(got[row], world.Expected(b, s), ToleranceOf(world.store.view().dtype)))
            << "sequence " << b << " entry " << s;
      }
    }
    EXPECT_EQ(got, rest);
    EXPECT_TRUE(world.GuardsIntact());
  }

  // Steps of at most `chunk` tokens of each sequence, whose places in the batch rotate.
  void RunInChunks(World& world, int64_t chunk) {
    const int64_t sequences = world.pages.sequences();
    int64_t longest = 0;
    for (int64_t b = 0; b < sequences; ++b) longest = std::max(longest, world.Length(b));
    for (int64_t round = 0, done = 0; done < longest; ++round, done += chunk) {
      std::vector<SequenceStep> step;
      std::vector<int64_t> order;
      for (int64_t i = 0; i < sequences; ++i) {
        const int64_t b = (i + round) % sequences;
        order.push_back(b);
        step.push_back({std::min(done, world.Length(b)),
                        std::clamp<int64_t>(world.Length(b) - done, 0, chunk)});
      }
      Step(world, step, order);
    }
  }
};

std::string NameOf(const KvCompressCase& c) {
  return "ratio " + std::to_string(c.ratio) + ", dim " + std::to_string(c.dim) + ", pages of " +
         std::to_string(c.page_tokens) + ", carry blocks " + std::to_string(c.carry_blocks);
}

TEST_P(KvCompressTest, MatchesTheFormulas) {
  for (const KvCompressCase& c : kKvCompressCases) {
    SCOPED_TRACE(NameOf(c));
    // None, not quite one, exactly one, a page and one more, some pages and a part.
    World world(
        device(), c,
        {0, c.ratio - 1, c.ratio, c.page_tokens + c.ratio, 2 * c.page_tokens + c.ratio / 2});
    const TestRows before = LatentStoreRows(world.store);
    RunWhole(world);
    ExpectRows(world, before);
  }
}

TEST_P(KvCompressTest, HowASequenceIsCutChangesNothing) {
  for (const KvCompressCase& c : kKvCompressCases) {
    const std::vector<int64_t> lengths = {2 * c.page_tokens + c.ratio + 1, c.page_tokens - 1,
                                          c.page_tokens + 3};
    World whole(device(), c, lengths);
    RunWhole(whole);
    for (int64_t chunk : {1, 3, 64, 129}) {
      if (chunk < 64 && c.page_tokens * c.dim > 4000) continue;  // slow, and like the small ones
      SCOPED_TRACE(NameOf(c) + ", chunks of " + std::to_string(chunk));
      World cut(device(), c, lengths);
      RunInChunks(cut, chunk);
      EXPECT_EQ(cut.store.GetBytes(), whole.store.GetBytes());
    }
  }
}

TEST_P(KvCompressTest, ADecodedTokenAtATimeMatchesToo) {
  for (const KvCompressCase& c :
       {KvCompressCase{4, 512, 32, 128, 1}, KvCompressCase{128, 512, 32, 128}}) {
    SCOPED_TRACE(NameOf(c));
    World whole(device(), c, {260}), cut(device(), c, {260});
    RunWhole(whole);
    Step(cut, {{0, 121}});
    for (int64_t p = 121; p < 260; ++p) Step(cut, {{p, 1}});
    EXPECT_EQ(cut.store.GetBytes(), whole.store.GetBytes());
  }
}

TEST_P(KvCompressTest, StartsAgainAtAnyBlockInAnySlot) {
  for (const KvCompressCase& c : kKvCompressCases) {
    SCOPED_TRACE(NameOf(c));
    const int64_t block = c.page_tokens / std::max<int64_t>(c.carry_blocks, 1);
    const int64_t length = 2 * c.page_tokens + c.ratio + 1;
    World whole(device(), c, {length});
    RunWhole(whole);
    for (int64_t start = block; start < length; start += block) {
      World again(device(), c, {length});
      Step(again, {{0, start}});
      again.state.SetAll(std::numeric_limits<double>::quiet_NaN());
      Step(again, {{start, 1}});
      Step(again, {{start + 1, length - start - 1}});
      EXPECT_EQ(again.store.GetBytes(), whole.store.GetBytes()) << "from " << start;
    }
  }
}

TEST_P(KvCompressTest, Fp8RowsAreTheFormatsOfTheFloatRows) {
  for (const KvCompressCase& c : kKvCompressFp8Cases) {
    SCOPED_TRACE(NameOf(c));
    KvCompressCase plain = c;
    plain.store = DType::kF32;
    World floats(device(), plain, {300, 129}), bytes(device(), c, {300, 129});
    RunWhole(floats);
    RunWhole(bytes);
    const TestRows want = LatentStoreRows(floats.store), got = LatentStoreRows(bytes.store);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t s = 0; s < floats.Length(b) / c.ratio; ++s) {
        const size_t row = At(floats.pages.RowOf(b, s * c.ratio, c.ratio));
        EXPECT_EQ(got[row], AsStored(want[row], DType::kU8)) << b << " " << s;
      }
    }
  }
}

TEST_P(KvCompressTest, HadamardFp4IsAppliedLast) {
  for (DType store : {DType::kF32, DType::kBF16}) {
    const KvCompressCase c = {4, 128, 32, 128, 1, store};
    KvCompressCase floats = c;
    floats.store = DType::kF32;
    World plain(device(), floats, {140}), rounded(device(), c, {140});
    rounded.hadamard_fp4 = true;
    RunWhole(plain);
    RunWhole(rounded);
    const TestRows before = LatentStoreRows(plain.store), got = LatentStoreRows(rounded.store);
    for (int64_t s = 0; s < 140 / 4; ++s) {
      const size_t row = At(plain.pages.RowOf(0, s * 4, 4));
      std::vector<float> want(before[row].begin(), before[row].end());
      ApplyHadamardFp4(want.data(), 128);
      EXPECT_EQ(got[row], Values(want.begin(), want.end())) << s;
    }
  }
}

TEST_P(KvCompressTest, ParametersMatter) {
  const KvCompressCase c = {4, 16, 4, 16, 1};
  World base(device(), c, {23});
  RunWhole(base);
  const auto changed = [&](auto change) {
    World world(device(), c, {23});
    change(world);
    const TestRows before = LatentStoreRows(world.store);
    RunWhole(world);
    ExpectRows(world, before);
    EXPECT_NE(world.store.GetBytes(), base.store.GetBytes());
  };
  changed([](World& w) { w.eps = 2; });
  changed([](World& w) { w.ape.SetAll(0); });
  changed([](World& w) { w.weight.SetAll(1); });
  changed([](World& w) { w.inv_freq.SetAll(0.5); });
  changed([](World& w) { w.score(0, 3)[17] += 1; });
  changed([](World& w) { w.kv(0, 3)[1] += 1; });
}

TEST_P(KvCompressTest, ExtremeScores) {
  for (int64_t blocks : {0, 1}) {
    World world(device(), {4, 8, 2, 8, blocks}, {20});
    for (int64_t p = 0; p < 20; ++p) {
      for (double& x : world.score(0, p)) x = static_cast<float>(x * 1e4);
    }
    world.score(0, 5)[2] = -kInfinity;
    const TestRows before = LatentStoreRows(world.store);
    RunWhole(world);
    ExpectRows(world, before);
  }
}

TEST_P(KvCompressTest, NanReachesTheEntriesThatPoolIt) {
  World world(device(), {4, 8, 2, 8, 1}, {20});
  world.kv(0, 5)[1] = std::numeric_limits<double>::quiet_NaN();  // its part in entry 2
  RunWhole(world);
  const TestRows got = LatentStoreRows(world.store);
  for (int64_t s = 0; s < 5; ++s) {
    const Values& row = got[At(world.pages.RowOf(0, s * 4, 4))];
    EXPECT_EQ(std::isnan(row[0]), s == 2) << s;
  }
}

TEST_P(KvCompressTest, PaddingChangesNothing) {
  const KvCompressCase c = {4, 32, 8, 8, 1};
  World plain(device(), c, {13, 9}), padded(device(), c, {13, 9});
  RunWhole(plain);
  // Two places without tokens, and tokens of no sequence.
  const absl::Status status =
      padded.Step(ctx(), {{0, 0}, {0, 13}, {0, 9}, {0, 0}}, {0, 0, 1, 1}, 3);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(padded.store.GetBytes(), plain.store.GetBytes());
  EXPECT_EQ(padded.state.GetBytes(), plain.state.GetBytes());
  EXPECT_EQ(padded.carry.GetBytes(), plain.carry.GetBytes());
}

TEST_P(KvCompressTest, NoTokens) {
  World world(device(), {4, 32, 8, 8, 1}, {13});
  const std::vector<uint8_t> before = world.store.GetBytes();
  for (int64_t padding : {0, 3}) {
    const absl::Status status = world.Step(ctx(), {{0, 0}}, {}, padding);
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(world.store.GetBytes(), before);
}

TEST_P(KvCompressTest, TouchesItsOwnStateAlone) {
  for (int64_t blocks : {0, 1}) {
    World world(device(), {4, 32, 8, 8, blocks}, {13, 9});
    world.state.SetAll(5);
    Step(world, {{0, 13}});
    const Values state = world.state.Get();
    const int64_t slot = world.shape.state_rows() * world.shape.state_width();
    for (size_t i = 0; i < state.size(); ++i) {
      if (static_cast<int64_t>(i) / slot == world.SlotOf(0)) continue;
      ASSERT_EQ(state[i], 5) << i;
    }
  }
}

class KvCompressRefusalTest : public KvCompressTest {
 protected:
  // What the op says of operands after `change`.
  template <typename Change>
  std::string Message(Change change, const KvCompressCase& c = {4, 32, 8, 8, 1}) {
    World world(device(), c, {9});
    StepBatch batch(device(), world.pages, {{0, 9}});
    GuardedTensor kv(device(), DType::kF32, {9, world.shape.projected()});
    GuardedTensor score(device(), DType::kF32, {9, world.shape.projected()});
    GuardedTensor slots(device(), DType::kI32, {1});
    slots.Set({0});
    KvCompressArgs args = world.Args(batch, kv, score, slots);
    change(args);
    const std::vector<uint8_t> before = world.store.GetBytes();
    const std::string message(KvCompress(ctx(), args).message());
    EXPECT_EQ(world.store.GetBytes(), before);
    return message;
  }
};

TEST_P(KvCompressRefusalTest, Projections) {
  EXPECT_EQ(Message([](auto& a) { a.score = a.score.Cols(0, 32); }),
            "KvCompress: score.dim(1) = 32, want 64");
  EXPECT_EQ(Message([](auto& a) { a.ape = a.ape.Rows(0, 0); }),
            "KvCompress: ape must have a row for each token of a window");
  EXPECT_EQ(Message([](auto& a) {
              for (TensorView* t : {&a.kv, &a.score, &a.ape}) *t = t->Cols(0, 63);
            }),
            "KvCompress: with a carry, kv must have two halves");
  EXPECT_EQ(Message([](auto& a) { a.kv.dtype = DType::kBF16; }),
            "KvCompress: kv has dtype bfloat16, want float32");
}

TEST_P(KvCompressRefusalTest, Rows) {
  EXPECT_EQ(Message([](auto& a) { a.norm_eps = 0; }), "KvCompress: norm_eps must be positive");
  EXPECT_EQ(Message([](auto& a) { a.norm_weight = a.norm_weight.Rows(0, 31); }),
            "KvCompress: norm_weight.dim(0) = 31, want 32");
  EXPECT_EQ(Message([](auto& a) { a.store = a.store.Cols(0, 31); }),
            "KvCompress: store.dim(3) = 31, want 32");
  EXPECT_EQ(Message([](auto& a) { a.inv_freq = a.ape.Rows(0, 1).Cols(0, 17); }, {4, 32, 8, 8, 1}),
            "KvCompress: inv_freq has rank 2, want 1");
  EXPECT_EQ(Message([](auto&) {}, {4, 6, 1, 8, 1}),
            "KvCompress: a row must have a multiple of 4 channels, at most 1024");
  EXPECT_EQ(Message([](auto&) {}, {4, 512, 16, 8, 1, DType::kU8}),
            "KvCompress: store: FP8 rows have 64 rotated channels");
  EXPECT_EQ(Message([](auto& a) { a.hadamard_fp4 = true; }, {4, 48, 8, 8, 1}),
            "KvCompress: hadamard_fp4 needs rows of a power of two of channels, from 32 to 1024");
}

TEST_P(KvCompressRefusalTest, StateAndCarry) {
  EXPECT_EQ(Message([](auto& a) { a.carry.reset(); }),
            "KvCompress: norm_weight.dim(0) = 32, want 64");
  EXPECT_EQ(Message([](auto& a) { a.state = a.state.Cols(0, 64); }),
            "KvCompress: state.dim(2) = 64, want 128");
  EXPECT_EQ(Message([](auto& a) { a.state.strides[0] += 4; }), "KvCompress: state must be dense");
  EXPECT_EQ(Message([](auto& a) { *a.carry = a.carry->Rows(0, 1); }),
            "KvCompress: carry.dim(0) = 1, want 4");
  EXPECT_EQ(Message([](auto& a) { a.carry->dims[2] = 3; }),
            "KvCompress: carry: a block must be a whole number of windows");
  EXPECT_EQ(Message([](auto& a) { a.state = a.state.Rows(0, 0); }),
            "KvCompress: state_slots[0] = 0, want 0 to -1");
}

TEST_P(KvCompressRefusalTest, Batch) {
  EXPECT_EQ(Message([](auto& a) { a.batch.page_table = a.batch.page_table.Cols(0, 1); }),
            "KvCompress: kv_len[0] = 9, want 9 to 8");
  EXPECT_EQ(Message([](auto& a) { a.state_slots = a.state_slots.Rows(0, 0); }),
            "KvCompress: state_slots.dim(0) = 0, want 1");
  EXPECT_EQ(Message([](auto& a) { a.batch.q_start.dtype = DType::kI64; }),
            "KvCompress: q_start has dtype int64, want int32");
}

INSTANTIATE_TEST_SUITE_P(Devices, KvCompressTest, ::testing::ValuesIn(DevicesUnderTest()),
                         DeviceName);
INSTANTIATE_TEST_SUITE_P(Devices, KvCompressRefusalTest, ::testing::ValuesIn(DevicesUnderTest()),
                         DeviceName);

}  // namespace
}  // namespace millrace
