#include "kernels/paged_attention/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/paged_attention/paged_attention_cases.h"
#include "kernels/paged_attention/testing.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

// A few cases that take every path: few and many rows, split and not, both cache types.
std::vector<PagedAttentionCase> CasesOfEachPath() {
  std::vector<PagedAttentionCase> cases;
  for (const PagedAttentionCase& c : AwkwardCases()) {
    for (const char* name : {"decode_groups_of_3", "a_split_past_early_queries", "prefill",
                             "prefill_f32_cache", "few_rows_of_several_queries"}) {
      if (std::string(c.name) == name) cases.push_back(c);
    }
  }
  for (const PagedAttentionCase& c : BFloat16Cases()) {
    for (const char* name : {"llama_decode", "four_queries", "sixteen_queries", "mixed_llama"}) {
      if (std::string(c.name) == name) cases.push_back(c);
    }
  }
  const std::vector<PagedAttentionCase> on_codes = OnFp8(cases);
  cases.insert(cases.end(), on_codes.begin(), on_codes.end());
  return cases;
}

// What a result may be off by: parts of the weighted values' magnitudes and of itself, and what it
// is off by whatever it is.
struct Rounding {
  double weights = 0, output = 0, absolute = 0;
};

// A score is a sum of D products of size 1, and a weight is off by as much as its score; outputs in
// bf16 add half a unit in their last place. On the GPU's tensor cores weights are rounded too, to
// eight bits as the bf16 values that they meet, or to eleven where codes were widened to f16.
// (Seen on an H200: up to 0.58 of these 2^-8, and 0.57 of these 2^-11.)
Rounding RoundingOf(const PagedAttentionCase& c, DeviceType device) {
  const double f32 = 3e-6 * std::max(1.0, c.shape.head_dim / 64.0);
  Rounding rounding = {.output = c.query == DType::kF32 ? f32 : 1.0 / 256, .absolute = f32};
  if (device == DeviceType::kCuda && IsAligned(c)) {
    rounding.weights = c.cache == DType::kU8 ? 0x1p-11 : 0x1p-8;
  }
  return rounding;
}

void ExpectClose(Batch& batch, const Rounding& rounding) {
  const std::vector<double> out = batch.out().Get();
  const Expected expected = batch.Oracle();
  ASSERT_EQ(out.size(), expected.out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_NEAR(out[i], expected.out[i],
                rounding.weights * expected.magnitude[i] +
                    rounding.output * std::abs(expected.out[i]) + rounding.absolute)
        << "element " << i;
  }
}

class PagedAttentionTest : public OpTest {
 protected:
  void ExpectRight(Batch& batch, const PagedAttentionCase& c) {
    const absl::Status status = batch.Run(ctx());
    ASSERT_TRUE(status.ok()) << status;
    ExpectClose(batch, RoundingOf(c, device().type()));
    EXPECT_TRUE(batch.out().GuardsIntact());
    EXPECT_TRUE(batch.q().GuardsIntact());
    EXPECT_TRUE(batch.k().GuardsIntact());
    EXPECT_TRUE(batch.v().GuardsIntact());
  }

  void ExpectRefused(const PagedAttentionPlan& plan, const PagedAttentionArgs& args,
                     const std::string& message) {
    const absl::Status status = PagedAttention(ctx(), plan, args);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), message);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, PagedAttentionTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

TEST_P(PagedAttentionTest, MatchesTheFormula) {
  for (const PagedAttentionCase& c : AwkwardCases()) {
    SCOPED_TRACE(c.name);
    Batch batch(device(), c, 17);
    ExpectRight(batch, c);
  }
}

TEST_P(PagedAttentionTest, MatchesTheFormulaAtServedSizes) {
  for (const PagedAttentionCase& c : ServedCases()) {
    const bool slow_in_double = c.sequences[0].queries > 512 || c.sequences.size() > 1 ||
                                c.shape.q_heads > 9 || c.cache == DType::kF32;
    if (slow_in_double) continue;
    SCOPED_TRACE(c.name);
    Batch batch(device(), c, 18);
    ExpectRight(batch, c);
  }
}

TEST_P(PagedAttentionTest, MatchesTheFormulaInBFloat16) {
  // On the CPU these add shapes, not paths: one of its devices is enough.
  if (device().type() == DeviceType::kCpu && GetParam().threads != 3) return;
  for (const PagedAttentionCase& c : BFloat16Cases()) {
    SCOPED_TRACE(c.name);
    Batch batch(device(), c, 28);
    ExpectRight(batch, c);
    // Rows apart, which goes to other kernels.
    if (device().type() != DeviceType::kCuda) continue;
    Batch padded(device(), c, 28, 8);
    ExpectRight(padded, c);
  }
}

TEST_P(PagedAttentionTest, MatchesTheFormulaOnCodes) {
  for (const PagedAttentionCase& c : OnFp8(AwkwardCases())) {
    SCOPED_TRACE(c.name);
    Batch batch(device(), c, 31);
    ExpectRight(batch, c);
  }
}

TEST_P(PagedAttentionTest, MatchesTheFormulaOnCodesWithBFloat16Queries) {
  if (device().type() == DeviceType::kCpu && GetParam().threads != 3) return;
  for (const PagedAttentionCase& c : Fp8Cases()) {
    SCOPED_TRACE(c.name);
    Batch batch(device(), c, 32);
    ExpectRight(batch, c);
    if (device().type() != DeviceType::kCuda) continue;
    Batch padded(device(), c, 32, 16);
    ExpectRight(padded, c);
  }
}

// What a captured graph does: the launch of one plan with the work of another.
TEST_P(PagedAttentionTest, TheWrittenPlanDecidesOnCuda) {
  if (device().type() != DeviceType::kCuda) return;
  const std::vector<std::vector<AttentionSequence>> steps = {
      {{1, 5}, {1, 9}, {1, 1}}, {{1, 3000}, {1, 1}, {0, 0}}, {{1, 700}, {1, 900}, {1, 4000}}};
  const PagedAttentionShape shape{8, 2, 128}, odd{4, 2, 72};
  for (const PagedAttentionCase& captured : {
           PagedAttentionCase{"", shape, 16, steps[0], DType::kBF16, DType::kBF16},
           PagedAttentionCase{"", odd, 16, steps[0], DType::kBF16, DType::kBF16},
           PagedAttentionCase{"", shape, 16, steps[0], DType::kU8, DType::kBF16},
       }) {
    const PagedAttentionPlan plan = Batch(device(), captured, 29).Plan();
    for (const auto& step : steps) {
      PagedAttentionCase c = captured;
      c.sequences = step;
      Batch batch(device(), c, 30);
      PagedAttentionPlan launched = plan;
      launched.q_start = batch.Plan().q_start;  // the size of q
      batch.out().SetAll(kNaN);
      for (int run = 0; run < 2; ++run) {
        const absl::Status status = PagedAttention(ctx(), launched, batch.Args());
        ASSERT_TRUE(status.ok()) << status;
        ExpectClose(batch, RoundingOf(c, DeviceType::kCuda));
      }
    }
  }
}

TEST_P(PagedAttentionTest, EmptyBatch) {
  Batch none(device(), {"", {2, 1, 16}, 4, {}}, 1);
  EXPECT_TRUE(none.Run(ctx()).ok());
  Batch idle(device(), {"", {2, 1, 16}, 4, {{0, 0}, {0, 12}}}, 1);
  EXPECT_TRUE(idle.Run(ctx()).ok());
}

TEST_P(PagedAttentionTest, TwoRunsAgreeBitForBitOnAnyNumberOfThreads) {
  DeviceUnderTest other = GetParam();
  other.threads = other.threads == 1 ? 2 : 1;
  OpTestBed bed(other);
  for (const PagedAttentionCase& c : CasesOfEachPath()) {
    SCOPED_TRACE(c.name);
    Batch here(device(), c, 19), there(bed.device(), c, 19);
    ASSERT_TRUE(here.Run(ctx()).ok());
    const std::vector<uint8_t> first = here.out().GetBytes();
    ASSERT_TRUE(here.Run(ctx()).ok());
    EXPECT_EQ(here.out().GetBytes(), first);
    ASSERT_TRUE(there.Run(bed.ctx()).ok());
    EXPECT_EQ(there.out().GetBytes(), first);
  }
}

// A sequence alone and the same among others: the same bits.
TEST_P(PagedAttentionTest, NeighboursDoNotMatter) {
  const PagedAttentionShape shape{6, 2, 32};
  for (const AttentionSequence s : {AttentionSequence{1, 3000}, {5, 900}, {150, 170}}) {
    PagedAttentionCase together{"", shape, 16, {{1, 40}, s, {33, 600}}, DType::kF32};
    Batch batch(device(), together, 20);
    ASSERT_TRUE(batch.Run(ctx()).ok());
    PagedAttentionPlan plan;
    ASSERT_TRUE(PlanPagedAttention(shape, TargetOf(device()), {0, s.queries}, {s.keys}, plan).ok());
    PagedAttentionArgs args = batch.Args();
    const PlanData plan_data(device(), plan);
    args.plan_data = plan_data.view();
    GuardedTensor out(device(), DType::kF32, {s.queries, 6, 32});
    GuardedTensor q_start(device(), DType::kI32, {2}), kv_len(device(), DType::kI32, {1});
    args.q = args.q.Rows(1, 1 + s.queries);
    args.page_table = args.page_table.Rows(1, 2);
    args.q_start = q_start.Set({0, static_cast<double>(s.queries)}).view();
    args.kv_len = kv_len.Set({static_cast<double>(s.keys)}).view();
    args.out = out.view();
    ASSERT_TRUE(PagedAttention(ctx(), plan, args).ok());
    const std::vector<double> all = batch.out().Get(), alone = out.Get();
    for (size_t i = 0; i < alone.size(); ++i) ASSERT_EQ(all[6 * 32 + i], alone[i]) << i;
  }
}

// The last queries of a prompt give the same whether computed with it or after it.
TEST_P(PagedAttentionTest, ChunksAgreeWithTheWhole) {
  constexpr int32_t kKeys = 333;
  const PagedAttentionShape shape{6, 2, 64};
  Batch whole(device(), {"", shape, 16, {{kKeys, kKeys}}, DType::kF32}, 21);
  ASSERT_TRUE(whole.Run(ctx()).ok());
  const std::vector<double> want = whole.out().Get();
  for (const int32_t queries : {1, 7, 64, 200}) {
    PagedAttentionPlan plan;
    ASSERT_TRUE(PlanPagedAttention(shape, TargetOf(device()), {0, queries}, {kKeys}, plan).ok());
    PagedAttentionArgs args = whole.Args();
    const PlanData plan_data(device(), plan);
    args.plan_data = plan_data.view();
    GuardedTensor out(device(), DType::kF32, {queries, 6, 64});
    GuardedTensor q_start(device(), DType::kI32, {2});
    args.q = args.q.Rows(kKeys - queries, kKeys);
    args.q_start = q_start.Set({0, static_cast<double>(queries)}).view();
    args.out = out.view();
    ASSERT_TRUE(PagedAttention(ctx(), plan, args).ok());
    const std::vector<double> tail(want.end() - queries * 6 * 64, want.end());
    EXPECT_TRUE(AllClose(out.Get(), tail, {.absolute = 2e-6})) << queries;
  }
}

TEST_P(PagedAttentionTest, LargeScoresDoNotOverflow) {
  PagedAttentionCase c{"", {4, 2, 16}, 16, {{1, 500}, {70, 70}}, DType::kF32};
  Batch batch(device(), c, 22);
  std::vector<double> q = batch.q().Get();
  for (double& x : q) x *= 300;
  batch.q().Set(q);
  const absl::Status status = batch.Run(ctx());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(AllClose(batch.out().Get(), batch.Oracle().out, {.absolute = 3e-3}));
}

TEST_P(PagedAttentionTest, NaNStaysInItsSequenceAndBeforeItsTile) {
  // Sequence 1's key 100 is NaN: its queries from 100 on, and nothing of sequence 0.
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kU8}) {
    const DType query = dtype == DType::kU8 ? DType::kBF16 : dtype;
    PagedAttentionCase c{"", {2, 1, 64}, 16, {{1, 200}, {200, 200}}, dtype, query};
    Batch batch(device(), c, 23);
    std::vector<double> k = batch.k().Get();
    k[static_cast<size_t>(batch.CacheRow(1, 100, 0))] = dtype == DType::kU8 ? kNaNCode : kNaN;
    batch.k().Set(k);
    ASSERT_TRUE(batch.Run(ctx()).ok());
    const std::vector<double> got = batch.out().Get();
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(std::isnan(got[i]), i >= static_cast<size_t>((1 + 100) * 2 * 64)) << i;
    }
  }
}

TEST_P(PagedAttentionTest, ScaleMatters) {
  Batch batch(device(), {"", {2, 1, 16}, 4, {{3, 9}}, DType::kF32}, 24);
  ASSERT_TRUE(batch.Run(ctx()).ok());
  const std::vector<double> first = batch.out().Get();
  PagedAttentionArgs args = batch.Args();
  args.scale = 0.5f;
  ASSERT_TRUE(PagedAttention(ctx(), batch.Plan(), args).ok());
  EXPECT_FALSE(AllClose(batch.out().Get(), first, {.absolute = 1e-2}));
}

TEST_P(PagedAttentionTest, RefusesWhatDoesNotFit) {
  Batch batch(device(), {"", {4, 2, 16}, 4, {{2, 9}, {1, 5}}, DType::kF32}, 25);
  const PagedAttentionPlan plan = batch.Plan();
  const PagedAttentionArgs good = batch.Args();
  PagedAttentionArgs args = good;
  args.q = good.q.Rows(0, 2);
  ExpectRefused(plan, args, "PagedAttention: q.dim(0) = 2, want 3");
  args = good;
  args.v_cache.dtype = DType::kBF16;
  ExpectRefused(plan, args, "PagedAttention: v_cache has dtype bfloat16, want float32");
  args = good;
  GuardedTensor scale(device(), DType::kF32, {2});
  args.k_scale = args.v_scale = scale.view();
  ExpectRefused(plan, args, "PagedAttention: k_scale and v_scale belong to a cache of uint8");
  args.k_cache.dtype = args.v_cache.dtype = DType::kU8;
  args.v_scale.dims[0] = 1;
  ExpectRefused(plan, args, "PagedAttention: v_scale.dim(0) = 1, want 2");
  args = good;
  args.out = good.out.Cols(0, 8);
  ExpectRefused(plan, args, "PagedAttention: out.dim(2) = 8, want 16");
  args = good;
  args.page_table = good.page_table.Cols(0, 2);
  ExpectRefused(plan, args, "PagedAttention: sequence 0 needs 3 pages, page_table.dim(1) = 2");
  args = good;
  args.k_cache = good.k_cache.Rows(0, 4);
  ExpectRefused(plan, args, "PagedAttention: v_cache.dim(0) = 5, want 4");
}

TEST_P(PagedAttentionTest, RefusesLengthsAndPagesThatAreNotAsPlanned) {
  if (device().type() != DeviceType::kCpu) return;  // the host does not see them
  Batch batch(device(), {"", {4, 2, 16}, 4, {{2, 9}, {1, 5}}, DType::kF32}, 26);
  const PagedAttentionPlan plan = batch.Plan();
  PagedAttentionArgs args = batch.Args();
  GuardedTensor longer(device(), DType::kI32, {2});
  args.kv_len = longer.Set({9, 6}).view();
  ExpectRefused(plan, args, "PagedAttention: kv_len[1] = 6, planned with 5");
  GuardedTensor starts(device(), DType::kI32, {3});
  args = batch.Args();
  args.q_start = starts.Set({0, 1, 3}).view();
  ExpectRefused(plan, args, "PagedAttention: q_start[1] = 1, planned with 2");
  std::vector<double> table = batch.page_table().Get();
  for (const double page : {-1.0, 5.0}) {
    table[2] = page;
    batch.page_table().Set(table);
    ExpectRefused(plan, batch.Args(),
                  std::string("PagedAttention: page_table[0, 2] = ") + (page < 0 ? "-1" : "5") +
                      ", want 0 to 4");
  }
}

TEST_P(PagedAttentionTest, WorkspaceBoundHoldsAndTooLittleIsRefused) {
  for (const PagedAttentionCase& c : CasesOfEachPath()) {
    SCOPED_TRACE(c.name);
    Batch batch(device(), c, 27);
    const int64_t tokens = batch.q().view().dim(0);
    const int64_t bytes = PagedAttentionWorkspaceBytes(
        device(), c.shape, static_cast<int64_t>(c.sequences.size()), tokens);
    OpTestBed bed(GetParam(), bytes);
    OpContext exact = bed.ctx();
    EXPECT_TRUE(batch.Run({device(), exact.stream, exact.workspace}).ok());
  }
  OpTestBed small(GetParam(), 1024);
  Batch batch(device(), AwkwardCases()[1], 27);
  OpContext tight = small.ctx();
  EXPECT_EQ(batch.Run({device(), tight.stream, tight.workspace}).code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace millrace
