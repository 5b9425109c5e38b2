#include "kernels/sample/sample_cpu_row.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/sample/sample_philox.h"

namespace millrace {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Blocks that are worth another thread: 16 thousand logits, about 2 us of work.
constexpr int64_t kBlocksPerTask = 256;

constexpr int64_t RoundUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

bool Larger(const SampleMass& a, const SampleMass& b) { return a.logit > b.logit; }

// The place in a walk over weights, in order, at which their sum passes `target`: the last weight
// above 0 when rounding keeps it below.
int64_t Locate(const float* weights, int64_t n, double target) {
  int64_t last = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (weights[i] <= 0) continue;
    last = i;
    target -= weights[i];
    if (target < 0) break;
  }
  return last;
}

}  // namespace

int64_t SampleScratchBytes(int64_t vocabulary) {
  constexpr int64_t kFloat = sizeof(float);
  return 2 * RoundUp(SampleBlocks(vocabulary) * kFloat) + 2 * RoundUp(vocabulary * kFloat) +
         RoundUp(vocabulary * static_cast<int64_t>(sizeof(SampleMass))) +
         RoundUp(vocabulary * static_cast<int64_t>(sizeof(SampleCandidate)));
}

SampleScratch CutSampleScratch(void* memory, int64_t vocabulary) {
  char* at = static_cast<char*>(memory);
  const auto cut = [&at](int64_t bytes) {
    char* out = at;
    at += RoundUp(bytes);
    return out;
  };
  const int64_t blocks = SampleBlocks(vocabulary);
  constexpr int64_t kFloat = sizeof(float);
  SampleScratch s;
  s.maxima = reinterpret_cast<float*>(cut(blocks * kFloat));
  s.sums = reinterpret_cast<float*>(cut(blocks * kFloat));
  s.logits = reinterpret_cast<float*>(cut(vocabulary * kFloat));
  s.weights = reinterpret_cast<float*>(cut(vocabulary * kFloat));
  s.order =
      reinterpret_cast<SampleMass*>(cut(vocabulary * static_cast<int64_t>(sizeof(SampleMass))));
  s.candidates = reinterpret_cast<SampleCandidate*>(at);
  return s;
}

bool SampleRowView::Maxima() {
  std::atomic<bool> finite{true};
  const auto pass = [&](int64_t begin, int64_t end, int) {
    if (!passes_.maxima({logits_, size_, begin, end}, scratch_.maxima)) {
      finite.store(false, std::memory_order_relaxed);
    }
  };
  const int64_t blocks = SampleBlocks(size_);
  if (pool_ == nullptr) {
    pass(0, blocks, 0);
  } else {
    pool_->ParallelFor(blocks, kBlocksPerTask, pass);
  }
  maximum_ = *std::max_element(scratch_.maxima, scratch_.maxima + blocks);
  return finite.load();
}

double SampleRowView::Sums(float factor) {
  const auto pass = [&](int64_t begin, int64_t end, int) {
    passes_.sums({logits_, size_, begin, end}, maximum_, factor, scratch_.sums);
  };
  const int64_t blocks = SampleBlocks(size_);
  if (pool_ == nullptr) {
    pass(0, blocks, 0);
  } else {
    pool_->ParallelFor(blocks, kBlocksPerTask, pass);
  }
  double total = 0;
  for (int64_t i = 0; i < blocks; ++i) total += scratch_.sums[i];
  return total;
}

int64_t SampleRowView::CountAbove(float bound) const {
  return passes_.count_above({logits_, size_, 0, SampleBlocks(size_)}, bound);
}

bool SampleRowView::Read(const float* logits) {
  logits_ = logits;
  return Maxima();
}

void SampleRowView::Change(const SampleRow& row) {
  float* x = scratch_.logits;
  std::memcpy(x, logits_, static_cast<size_t>(size_) * sizeof(float));
  const auto known = [this](int32_t id) { return id >= 0 && id < size_; };
  for (int32_t i = 0; i < row.num_biases; ++i) {
    if (known(row.bias_ids[i])) x[row.bias_ids[i]] += row.bias_values[i];
  }
  for (int32_t i = 0; i < row.num_banned; ++i) {
    if (known(row.banned_ids[i])) x[row.banned_ids[i]] = kNothing;
  }
  for (int32_t i = 0; i < row.num_penalties; ++i) {
    if (!known(row.penalty_ids[i])) continue;
    float& logit = x[row.penalty_ids[i]];
    logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    const int32_t count = row.penalty_counts[i];
    if (count > 0) {
      logit -= row.frequency_penalty * static_cast<float>(count);
      logit -= row.presence_penalty;
    }
  }
  logits_ = x;
  Maxima();
}

double SampleRowView::LogSum() { return maximum_ + std::log(Sums(1.0f)); }

absl::Span<SampleCandidate> SampleRowView::Gather(float bound) {
  SampleCandidate* out = scratch_.candidates;
  const int64_t blocks = SampleBlocks(size_);
  for (int64_t b = 0; b < blocks; ++b) {
    if (scratch_.maxima[b] < bound) continue;
    const int64_t end = std::min(size_, (b + 1) * kSampleBlock);
    for (int64_t i = b * kSampleBlock; i < end; ++i) {
      *out = {logits_[i], static_cast<int32_t>(i)};
      out += logits_[i] >= bound;
    }
  }
  return {scratch_.candidates, static_cast<size_t>(out - scratch_.candidates)};
}

float SampleRowView::KthLargest(int64_t k) {
  SampleMass* order = scratch_.order;
  const auto select = [order, k](int64_t n) {
    std::nth_element(order, order + k - 1, order + n, Larger);
    return order[k - 1].logit;
  };
  // The k-th largest of the blocks' maxima is at most the k-th largest logit, and few logits are
  // above it: they alone need sorting out.
  const int64_t blocks = SampleBlocks(size_);
  float bound = kNothing;
  if (k <= blocks) {
    for (int64_t i = 0; i < blocks; ++i) order[i].logit = scratch_.maxima[i];
    bound = select(blocks);
  }
  const absl::Span<SampleCandidate> candidates = Gather(bound);
  for (size_t i = 0; i < candidates.size(); ++i) order[i].logit = candidates[i].logit;
  return select(static_cast<int64_t>(candidates.size()));
}

absl::Span<const SampleCandidate> SampleRowView::Top(int64_t count) {
  count = std::min(count, size_);
  if (count == 0) return {};
  const absl::Span<SampleCandidate> candidates = Gather(KthLargest(count));
  std::partial_sort(candidates.begin(), candidates.begin() + count, candidates.end(),
                    [](const SampleCandidate& a, const SampleCandidate& b) {
                      return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
                    });
  return candidates.subspan(0, static_cast<size_t>(count));
}

int32_t SampleRowView::Greedy() const {
  int64_t i = 0;
  while (scratch_.maxima[i] != maximum_) ++i;
  i *= kSampleBlock;
  while (logits_[i] != maximum_) ++i;
  return static_cast<int32_t>(i);
}

int32_t SampleRowView::Draw(const SampleRow& row) {
  const float factor = 1.0f / row.temperature;
  const double uniform = PhiloxUniform(row.seed, row.position);
  const bool filtered = row.min_p > 0 || row.top_p < 1 || (row.top_k > 0 && row.top_k < size_);
  return filtered ? DrawFiltered(row, factor, uniform) : DrawFromAll(factor, uniform);
}

int32_t SampleRowView::DrawFromAll(float factor, double uniform) {
  double target = uniform * Sums(factor);
  int64_t block = 0;
  for (int64_t b = 0; b < SampleBlocks(size_); ++b) {
    if (scratch_.sums[b] <= 0) continue;
    block = b;
    if (target < scratch_.sums[b]) break;
    target -= scratch_.sums[b];
  }
  const int64_t begin = block * kSampleBlock;
  const int64_t n = std::min(kSampleBlock, size_ - begin);
  std::copy_n(logits_ + begin, n, scratch_.weights);
  passes_.exponentials(scratch_.weights, n, maximum_, factor);
  return static_cast<int32_t>(begin + Locate(scratch_.weights, n, target));
}

int32_t SampleRowView::DrawFiltered(const SampleRow& row, float factor, double uniform) {
  float bound = std::numeric_limits<float>::lowest();
  if (row.min_p > 0) {
    bound = maximum_ + row.temperature * std::log(row.min_p);
  }
  if (row.top_k > 0 && row.top_k < size_) bound = std::max(bound, KthLargest(row.top_k));
  double total = -1;  // the sum of the weights of all that are left; -1: of the candidates
  if (row.top_p < 1 && bound == std::numeric_limits<float>::lowest()) {
    // What lies below `depth` weighs, even if it is the whole vocabulary, less than 1 - top_p of
    // the total: the border lies above.
    total = Sums(factor);
    const double depth = std::log(static_cast<double>(size_) / ((1.0 - row.top_p) * total)) + 0.01;
    bound = std::max(bound, static_cast<float>(maximum_ - row.temperature * std::max(depth, 0.01)));
  }
  absl::Span<SampleCandidate> candidates = Gather(bound);
  float* weights = scratch_.weights;
  const auto weigh = [&] {
    for (size_t i = 0; i < candidates.size(); ++i) weights[i] = candidates[i].logit;
    passes_.exponentials(weights, static_cast<int64_t>(candidates.size()), maximum_, factor);
    double sum = 0;
    for (size_t i = 0; i < candidates.size(); ++i) sum += weights[i];
    return sum;
  };
  double sum = weigh();
  if (row.top_p < 1) {
    const double mass = static_cast<double>(row.top_p) * (total < 0 ? sum : total);
    const float border = NucleusBound(candidates, weights, mass);
    SampleCandidate* const end =
        std::remove_if(candidates.begin(), candidates.end(),
                       [border](const SampleCandidate& c) { return c.logit < border; });
    candidates = candidates.subspan(0, static_cast<size_t>(end - candidates.begin()));
    sum = weigh();
  }
  const int64_t at = Locate(weights, static_cast<int64_t>(candidates.size()), uniform * sum);
  return candidates[static_cast<size_t>(at)].id;
}

float SampleRowView::NucleusBound(absl::Span<const SampleCandidate> candidates,
                                  const float* weights, double mass) {
  // A histogram over the logits finds the bin in which the mass is reached; only that is sorted.
  constexpr int kBins = 1024;
  float lowest = maximum_;
  for (const SampleCandidate& c : candidates) lowest = std::min(lowest, c.logit);
  if (lowest == maximum_) return maximum_;
  const double top = maximum_;
  const double scale = (kBins - 1) / (top - lowest);
  const auto bin_of = [&](float logit) { return static_cast<int>((top - logit) * scale); };
  double bins[kBins] = {};
  for (size_t i = 0; i < candidates.size(); ++i) bins[bin_of(candidates[i].logit)] += weights[i];
  int bin = 0;
  double reached = 0;  // by the bins before
  while (bin < kBins - 1 && reached + bins[bin] < mass) reached += bins[bin++];

  SampleMass* order = scratch_.order;
  int64_t n = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (bin_of(candidates[i].logit) == bin) order[n++] = {candidates[i].logit, weights[i]};
  }
  std::sort(order, order + n, Larger);
  for (int64_t i = 0; i < n; ++i) {
    reached += order[i].weight;
    if (reached >= mass) return order[i].logit;
  }
  return lowest;  // the mass is all there is, up to rounding
}

}  // namespace millrace
