// What the op's test runs on: the tensors of a call, and its result by the formula.
#ifndef KERNELS_PAGED_ATTENTION_TESTING_H_
#define KERNELS_PAGED_ATTENTION_TESTING_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/lowp/small_float.h"
#include "kernels/paged_attention/paged_attention.h"
#include "kernels/paged_attention/paged_attention_cases.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/test_rng.h"

namespace millrace {

inline constexpr double kNaNCode = 0xff;
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

inline PagedAttentionTarget TargetOf(const Device& device) {
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
inline bool IsAligned(const PagedAttentionCase& c) {
  return c.query == DType::kBF16 && c.cache != DType::kF32;
}

// Elements after each row of the cache. Some kernels want none.
inline int64_t PaddingOf(const PagedAttentionCase& c) { return IsAligned(c) ? 0 : 8; }

// A result by the formula, and the sum of its weighted values' magnitudes: what an error of the
// weights is a part of.
struct Expected {
  std::vector<double> out, magnitude;
};

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
  Expected Oracle() const {
    const std::vector<double> q = q_->Get();
    const std::vector<double> k = Held(*k_, *k_scale_), v = Held(*v_, *v_scale_);
    const int64_t heads = case_.shape.q_heads, d = case_.shape.head_dim;
    Expected expected = {std::vector<double>(q.size()), std::vector<double>(q.size())};
    for (size_t b = 0; b < lengths_.size(); ++b) {
      for (int32_t row = starts_[b]; row < starts_[b + 1]; ++row) {
        const int64_t seen = lengths_[b] - starts_[b + 1] + row + 1;
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t at = (row * heads + h) * d;
          Head(q.data() + at, k, v, {static_cast<int64_t>(b), h, seen, at}, expected);
        }
      }
    }
    return expected;
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
    int64_t sequence, head, seen, out;
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
            Expected& expected) const {
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
    double* const out = expected.out.data() + at.out;
    double* const magnitude = expected.magnitude.data() + at.out;
    for (int64_t j = 0; j < at.seen; ++j) {
      const double* value = v.data() + CacheRow(at.sequence, j, n);
      const double weight = scores[static_cast<size_t>(j)] / sum;
      for (int64_t i = 0; i < d; ++i) {
        out[i] += weight * value[i];
        magnitude[i] += weight * std::abs(value[i]);
      }
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

}  // namespace millrace

#endif  // KERNELS_PAGED_ATTENTION_TESTING_H_
