#include "kernels/paged_attention/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>

#include "kernels/lowp/small_float.h"
#include "kernels/paged_attention/paged_attention_cases.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

constexpr double kNaNCode = 0xff;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

PagedAttentionTarget TargetOf(const Device& device) {
  const absl::StatusOr<PagedAttentionTarget> target = PagedAttentionTargetOf(device);
  EXPECT_TRUE(target.ok()) << target.status();
  return target.value_or(PagedAttentionTarget{});
}

// The written plan on the device, of no bytes on the CPU.
class PlanData {
 public:
  PlanData(Device& device, const PagedAttentionPlan& plan) {
    const int64_t bytes = plan.layout.bytes;
    EXPECT_LE(bytes, PagedAttentionPlanBytes(plan.target, plan.shape,
                                             static_cast<int64_t>(plan.kv_len.size()),
                                             plan.q_start.back()));
    std::vector<char> host(static_cast<size_t>(bytes));
    if (bytes > 0) WritePagedAttentionPlan(plan, host.data());
    data_ = std::make_unique<GuardedTensor>(device, DType::kU8, std::vector<int64_t>{bytes});
    data_->Set(std::vector<double>(host.begin(), host.end()));
  }
  const TensorView& view() const { return data_->view(); }

 private:
  std::unique_ptr<GuardedTensor> data_;
};

// Whether the GPU's faster kernels may take the case: bf16 queries, rows on 16 bytes.
bool IsAligned(const PagedAttentionCase& c) {
  return c.query == DType::kBF16 && c.cache != DType::kF32;
}

// Elements after each row of the cache. Some kernels want none.
int64_t PaddingOf(const PagedAttentionCase& c) { return IsAligned(c) ? 0 : 8; }

// The tensors of one call. Pages are dealt in random order; cache rows that no sequence owns, and
// those past a sequence's end, are NaN.
class Batch {
 public:
  Batch(Device& device, const PagedAttentionCase& c, uint64_t seed)
      : Batch(device, c, seed, PaddingOf(c)) {}
  Batch(Device& device, const PagedAttentionCase& c, uint64_t seed, int64_t cache_padding)
      : case_(c), device_(device) {
    TestRng rng(seed);
    for (const AttentionSequence& s : c.sequences) {
      starts_.push_back(starts_.back() + s.queries);
      lengths_.push_back(s.keys);
      max_pages_ = std::max<int64_t>(max_pages_, Pages(s.keys) + 1);
      pages_ += Pages(s.keys);
    }
    DealPages(rng);
    const int64_t n = c.shape.kv_heads, d = c.shape.head_dim;
    // Heads differ, so that another's scale shows.
    k_scale_ = std::make_unique<GuardedTensor>(device, DType::kF32, std::vector<int64_t>{n});
    v_scale_ = std::make_unique<GuardedTensor>(device, DType::kF32, std::vector<int64_t>{n});
    k_scale_->SetUniform(rng, 0.004, 0.2);
    v_scale_->SetUniform(rng, 0.004, 0.2);
    k_ = Cache(rng, *k_scale_, cache_padding);
    v_ = Cache(rng, *v_scale_, cache_padding);
    const bool aligned = IsAligned(c);
    q_ = std::make_unique<GuardedTensor>(
        device, c.query, std::vector<int64_t>{starts_.back(), c.shape.q_heads, d}, aligned ? 8 : 3);
    q_->SetNormal(rng);
    out_ = std::make_unique<GuardedTensor>(device, c.query,
                                           std::vector<int64_t>{starts_.back(), c.shape.q_heads, d},
                                           aligned ? 16 : 5);
    q_start_ = Ints(starts_, {static_cast<int64_t>(starts_.size())});
    kv_len_ = Ints(lengths_, {static_cast<int64_t>(lengths_.size())});
    page_table_ = Ints(table_, {static_cast<int64_t>(lengths_.size()), max_pages_});
    plan_data_ = std::make_unique<PlanData>(device, Plan());
  }

  PagedAttentionArgs Args() const {
    PagedAttentionArgs args = {.q = q_->view(),
                               .k_cache = k_->view(),
                               .v_cache = v_->view(),
                               .page_table = page_table_->view(),
                               .q_start = q_start_->view(),
                               .kv_len = kv_len_->view(),
                               .out = out_->view(),
                               .scale = 0.17f,
                               .plan_data = plan_data_->view()};
    if (case_.cache != DType::kU8) return args;
    args.k_scale = k_scale_->view();
    args.v_scale = v_scale_->view();
    return args;
  }

  PagedAttentionPlan Plan() const {
    PagedAttentionPlan plan;
    EXPECT_TRUE(PlanPagedAttention(case_.shape, TargetOf(device_), starts_, lengths_, plan).ok());
    return plan;
  }

  // From the formula, in double.
  std::vector<double> Oracle() const {
    const std::vector<double> q = q_->Get();
    const std::vector<double> k = Held(*k_, *k_scale_), v = Held(*v_, *v_scale_);
    const int64_t heads = case_.shape.q_heads, d = case_.shape.head_dim;
    std::vector<double> out(q.size());
    for (size_t b = 0; b < lengths_.size(); ++b) {
      for (int32_t row = starts_[b]; row < starts_[b + 1]; ++row) {
        const int64_t seen = lengths_[b] - starts_[b + 1] + row + 1;
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t at = (row * heads + h) * d;
          Head(q.data() + at, k, v, {static_cast<int64_t>(b), h, seen}, out.data() + at);
        }
      }
    }
    return out;
  }

  absl::Status Run(OpContext ctx) {
    out_->SetAll(kNaN);
    return PagedAttention(ctx, Plan(), Args());
  }

  GuardedTensor& q() { return *q_; }
  GuardedTensor& k() { return *k_; }
  GuardedTensor& v() { return *v_; }
  GuardedTensor& out() { return *out_; }
  GuardedTensor& page_table() { return *page_table_; }

  // Row-major offset in a cache of the first element of sequence b's key j, head n.
  int64_t CacheRow(int64_t b, int64_t j, int64_t n) const {
    const int64_t page = table_[static_cast<size_t>(b * max_pages_ + j / case_.page_tokens)];
    return ((page * case_.shape.kv_heads + n) * case_.page_tokens + j % case_.page_tokens) *
           case_.shape.head_dim;
  }

 private:
  struct Where {
    int64_t sequence, head, seen;
  };

  int64_t Pages(int64_t keys) const { return (keys + case_.page_tokens - 1) / case_.page_tokens; }

  void DealPages(TestRng& rng) {
    std::vector<int32_t> deck(static_cast<size_t>(pages_));
    std::iota(deck.begin(), deck.end(), 0);
    for (size_t i = deck.size(); i > 1; --i) {
      std::swap(deck[i - 1],
                deck[static_cast<size_t>(rng.Integer(0, static_cast<int64_t>(i) - 1))]);
    }
    table_.assign(lengths_.size() * static_cast<size_t>(max_pages_), -1);
    for (size_t b = 0; b < lengths_.size(); ++b) {
      for (int64_t i = 0; i < Pages(lengths_[b]); ++i) {
        table_[b * static_cast<size_t>(max_pages_) + static_cast<size_t>(i)] = deck.back();
        deck.pop_back();
      }
    }
  }

  std::unique_ptr<GuardedTensor> Cache(TestRng& rng, const GuardedTensor& scale, int64_t padding) {
    const int64_t n = case_.shape.kv_heads, d = case_.shape.head_dim;
    auto cache = std::make_unique<GuardedTensor>(
        device_, case_.cache, std::vector<int64_t>{pages_, n, case_.page_tokens, d}, padding);
    const std::vector<double> scales = scale.Get();
    const bool codes = case_.cache == DType::kU8;
    std::vector<double> values(static_cast<size_t>(cache->size()), codes ? kNaNCode : kNaN);
    for (size_t b = 0; b < lengths_.size(); ++b) {
      for (int64_t j = 0; j < lengths_[b]; ++j) {
        for (int64_t h = 0; h < n; ++h) {
          double* row = values.data() + CacheRow(static_cast<int64_t>(b), j, h);
          for (int64_t i = 0; i < d; ++i) {
            row[i] = rng.Normal();
            if (codes) row[i] = EncodeE4M3(row[i] / scales[static_cast<size_t>(h)]);
          }
        }
      }
    }
    cache->Set(values);
    return cache;
  }

  // What a cache holds.
  std::vector<double> Held(const GuardedTensor& cache, const GuardedTensor& scale) const {
    std::vector<double> values = cache.Get();
    if (case_.cache != DType::kU8) return values;
    const std::vector<double> scales = scale.Get();
    const auto head = static_cast<size_t>(case_.page_tokens * case_.shape.head_dim);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = kE4M3Values[static_cast<size_t>(values[i])] * scales[i / head % scales.size()];
    }
    return values;
  }

  std::unique_ptr<GuardedTensor> Ints(const std::vector<int32_t>& values,
                                      std::vector<int64_t> shape) const {
    auto t = std::make_unique<GuardedTensor>(device_, DType::kI32, std::move(shape));
    t->Set(std::vector<double>(values.begin(), values.end()));
    return t;
  }

  void Head(const double* q, const std::vector<double>& k, const std::vector<double>& v, Where at,
            double* out) const {
    const int64_t d = case_.shape.head_dim;
    const int64_t n = at.head / (case_.shape.q_heads / case_.shape.kv_heads);
    std::vector<double> scores(static_cast<size_t>(at.seen));
    double maximum = -std::numeric_limits<double>::infinity();
    for (int64_t j = 0; j < at.seen; ++j) {
      const double* key = k.data() + CacheRow(at.sequence, j, n);
      double dot = 0;
      for (int64_t i = 0; i < d; ++i) dot += q[i] * key[i];
      scores[static_cast<size_t>(j)] = dot * static_cast<double>(0.17f);
      maximum = std::max(maximum, scores[static_cast<size_t>(j)]);
    }
    double sum = 0;
    for (double& s : scores) sum += s = std::exp(s - maximum);
    std::fill(out, out + d, 0.0);
    for (int64_t j = 0; j < at.seen; ++j) {
      const double* value = v.data() + CacheRow(at.sequence, j, n);
      for (int64_t i = 0; i < d; ++i) out[i] += scores[static_cast<size_t>(j)] / sum * value[i];
    }
  }

  PagedAttentionCase case_;
  Device& device_;
  std::vector<int32_t> starts_ = {0};
  std::vector<int32_t> lengths_;
  std::vector<int32_t> table_;
  int64_t max_pages_ = 1, pages_ = 0;
  std::unique_ptr<GuardedTensor> q_, k_, v_, out_, q_start_, kv_len_, page_table_;
  std::unique_ptr<GuardedTensor> k_scale_, v_scale_;
  std::unique_ptr<PlanData> plan_data_;
};

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

// A score is a sum of D products of size 1, and a weight is off by as much as its score; outputs in
// bf16 add half a unit in their last place. The GPU's bf16 kernels round weights too: off by 2^-9
// of itself each, of which a few dominate, or by 2^-12 where the cache holds codes.
Tolerance ToleranceOf(const PagedAttentionCase& c, DeviceType device) {
  if (device == DeviceType::kCuda && IsAligned(c)) {
    return {.absolute = 5e-3, .relative = 1.0 / 128};
  }
  const double f32 = 3e-6 * std::max(1.0, c.shape.head_dim / 64.0);
  return {.absolute = f32, .relative = c.query == DType::kF32 ? f32 : 1.0 / 256};
}

class PagedAttentionTest : public OpTest {
 protected:
  void ExpectRight(Batch& batch, const PagedAttentionCase& c) {
    const absl::Status status = batch.Run(ctx());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(AllClose(batch.out().Get(), batch.Oracle(), ToleranceOf(c, device().type())));
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
        EXPECT_TRUE(AllClose(batch.out().Get(), batch.Oracle(), ToleranceOf(c, DeviceType::kCuda)));
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
  EXPECT_TRUE(AllClose(batch.out().Get(), batch.Oracle(), {.absolute = 3e-3}));
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
