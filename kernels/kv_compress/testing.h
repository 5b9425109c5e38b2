// For the test of kv_compress: sequences with their projections, steps of them, and what the
// formulas make of them.
#ifndef KERNELS_KV_COMPRESS_TESTING_H_
#define KERNELS_KV_COMPRESS_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/kv_compress/kv_compress.h"
#include "kernels/kv_compress/kv_compress_cases.h"
#include "kernels/latent_cache/testing.h"
#include "kernels/testing/guarded_tensor.h"

namespace millrace {

using Values = std::vector<double>;

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline size_t At(int64_t i) { return static_cast<size_t>(i); }

// Sequences with all their projections, the weights, and what the op keeps of them.
class World {
 public:
  World(Device& device, const KvCompressCase& c, std::vector<int64_t> lengths, uint64_t seed = 7)
      : shape({c.ratio, c.dim, c.carry_blocks > 0}),
        pages(lengths, c.page_tokens, seed),
        ape(device, DType::kF32, {c.ratio, shape.projected()}, 3 * c.padding),
        weight(device, c.weight, {c.dim}),
        inv_freq(device, DType::kF32, {c.pairs}),
        state(device, DType::kF32, {NumSlots(), shape.state_rows(), shape.state_width()}),
        carry(device, DType::kF32,
              {pages.num_pages(), 1, std::max<int64_t>(c.carry_blocks, 1), shape.carry_width()}),
        store(LatentStore(device, c.store, pages.num_pages(), c.page_tokens / c.ratio, c.dim)),
        padding_(c.padding),
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
    GuardedTensor kv(device_, DType::kF32, {tokens, shape.projected()}, 5 * padding_);
    GuardedTensor score(device_, DType::kF32, {tokens, shape.projected()}, 2 * padding_);
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
  float eps = 1e-3f;
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

  int64_t padding_;
  Device& device_;
  std::vector<TestRows> kv_, score_;  // [sequence][position][channel]
};

}  // namespace millrace

#endif  // KERNELS_KV_COMPRESS_TESTING_H_
