#include "kernels/kv_compress/kv_compress.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/kv_compress/kv_compress_cases.h"
#include "kernels/kv_compress/testing.h"
#include "kernels/latent_cache/hadamard_fp4.h"
#include "kernels/latent_cache/testing.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

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
         std::to_string(c.page_tokens) + ", carry blocks " + std::to_string(c.carry_blocks) +
         ", padding " + std::to_string(c.padding);
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

// More entries than an H200 has in hand at once: its blocks make several each.
TEST_P(KvCompressTest, ManyEntries) {
  for (const KvCompressCase& c : {KvCompressCase{4, 8, 2, 64, 1}, KvCompressCase{1, 8, 1, 64, 0}}) {
    SCOPED_TRACE(NameOf(c));
    World world(device(), c, {c.ratio * 2250 + 1, 3, c.ratio * 2251});
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
  for (KvCompressCase c : kKvCompressHadamardCases) {
    SCOPED_TRACE(NameOf(c));
    KvCompressCase floats = c;
    floats.store = DType::kF32;
    const int64_t length = 2 * c.page_tokens + 3;
    World plain(device(), floats, {length}), rounded(device(), c, {length});
    rounded.hadamard_fp4 = true;
    RunWhole(plain);
    RunWhole(rounded);
    const TestRows before = LatentStoreRows(plain.store), got = LatentStoreRows(rounded.store);
    for (int64_t s = 0; s < length / c.ratio; ++s) {
      const size_t row = At(plain.pages.RowOf(0, s * c.ratio, c.ratio));
      std::vector<float> want(before[row].begin(), before[row].end());
      ApplyHadamardFp4(want.data(), c.dim);
      EXPECT_TRUE(AllClose(got[row], Values(want.begin(), want.end()), {0, 0})) << s;
    }
  }
}

TEST_P(KvCompressTest, HadamardFp4OfWhatIsNotFinite) {
  World world(device(), {4, 64, 2, 8, 1, DType::kBF16}, {20});
  world.hadamard_fp4 = true;
  world.kv(0, 5)[3] = kInfinity;  // its part in entry 2
  RunWhole(world);
  const TestRows got = LatentStoreRows(world.store);
  for (int64_t s = 0; s < 5; ++s) {
    for (double x : got[At(world.pages.RowOf(0, s * 4, 4))]) EXPECT_EQ(std::isnan(x), s == 2) << s;
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

// Sequences whose numbers make no sense, between two that do.
TEST_P(KvCompressTest, OnTheGpuWhatIsOutOfRangeCountsAsNone) {
  if (device().type() == DeviceType::kCpu) return;
  for (int64_t blocks : {0, 1}) {
    const KvCompressCase c = {4, 32, 8, 8, blocks};
    for (int change = 0; change < 5; ++change) {
      World world(device(), c, {13, 13, 13}), same(device(), c, {13, 13, 13});
      const auto run = [&](World& w, bool is_changed) {
        StepBatch batch(device(), w.pages, {{0, 13}, {0, is_changed ? 13 : 0}, {0, 13}});
        const int64_t tokens = batch.tokens();
        GuardedTensor kv(device(), DType::kF32, {tokens, w.shape.projected()});
        GuardedTensor score(device(), DType::kF32, {tokens, w.shape.projected()});
        GuardedTensor slots(device(), DType::kI32, {3});
        Values rows;
        for (int64_t t = 0; t < tokens; ++t) {
          const Values& row = w.kv(batch.sequence(t), batch.position(t));
          rows.insert(rows.end(), row.begin(), row.end());
        }
        kv.Set(rows);
        score.Set(rows);
        slots.Set({0, is_changed && change == 0 ? 9.0 : is_changed && change == 1 ? -1.0 : 1.0, 2});
        if (is_changed && change == 2) batch.kv_len().Set({13, 12, 13});  // fewer than the step's
        Values table = batch.table().Get();
        const int64_t pages = w.pages.max_pages();
        if (is_changed && change >= 3) {
          for (int64_t i = 0; i < pages; ++i) table[At(pages + i)] = change == 3 ? -1 : 99;
        }
        batch.table().Set(table);
        const absl::Status status = KvCompress(ctx(), w.Args(batch, kv, score, slots));
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
      };
      run(world, true);
      run(same, false);
      EXPECT_EQ(world.store.GetBytes(), same.store.GetBytes()) << change;
      EXPECT_EQ(world.carry.GetBytes(), same.carry.GetBytes()) << change;
      EXPECT_TRUE(world.GuardsIntact());
    }
  }
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
}

TEST_P(KvCompressRefusalTest, Batch) {
  EXPECT_EQ(Message([](auto& a) { a.state_slots = a.state_slots.Rows(0, 0); }),
            "KvCompress: state_slots.dim(0) = 0, want 1");
  EXPECT_EQ(Message([](auto& a) { a.batch.q_start.dtype = DType::kI64; }),
            "KvCompress: q_start has dtype int64, want int32");
}

TEST_P(KvCompressRefusalTest, OnTheCpuValuesOutOfRange) {
  if (device().type() != DeviceType::kCpu) return;
  EXPECT_EQ(Message([](auto& a) { a.batch.page_table = a.batch.page_table.Cols(0, 1); }),
            "KvCompress: kv_len[0] = 9, want 9 to 8");
  EXPECT_EQ(Message([](auto& a) { a.state = a.state.Rows(0, 0); }),
            "KvCompress: state_slots[0] = 0, want 0 to -1");
}

INSTANTIATE_TEST_SUITE_P(Devices, KvCompressTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);
INSTANTIATE_TEST_SUITE_P(Devices, KvCompressRefusalTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
