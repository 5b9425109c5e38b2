// PagedAttention on the CPU: decode against one read of the cache at the memory's read bandwidth,
// prefill against the multiply-add rate. The cache is rotated past the processor's caches, as that
// of a model's layers is, and its pages are dealt in random order.
//
//   bazel run -c opt //kernels/paged_attention:paged_attention_bench -- [threads]
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/bench/bench.h"
#include "kernels/core/check.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/paged_attention/paged_attention.h"
#include "kernels/paged_attention/paged_attention_cases.h"

namespace millrace {
namespace {

constexpr double kSeconds = 1.0;
constexpr int64_t kRotatedBytes = int64_t{192} << 20;

Buffer Take(CpuDevice& device, int64_t bytes) {
  auto buffer = device.Allocate(bytes);
  MR_CHECK(buffer.ok());
  return std::move(buffer).value();
}

void FillNormal(const Buffer& buffer, DType dtype) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < buffer.bytes() / DTypeBytes(dtype); ++i) {
    const float x = normal(generator);
    if (dtype == DType::kF32) {
      static_cast<float*>(buffer.data())[i] = x;
    } else {
      static_cast<BFloat16*>(buffer.data())[i] = ToBFloat16(x);
    }
  }
}

// The tensors of one case, with as many caches as kRotatedBytes hold.
class AttentionBench final {
 public:
  AttentionBench(CpuDevice& device, const PagedAttentionCase& c) : device_(device), case_(c) {
    for (const AttentionSequence& s : c.sequences) {
      starts_.push_back(starts_.back() + s.queries);
      lengths_.push_back(s.keys);
      pages_ += Pages(s.keys);
      max_pages_ = std::max(max_pages_, Pages(s.keys));
    }
    DealPages();
    cache_bytes_ =
        pages_ * c.shape.kv_heads * c.page_tokens * c.shape.head_dim * DTypeBytes(c.cache);
    caches_ = std::max<int64_t>(1, kRotatedBytes / (2 * cache_bytes_));
    k_ = Take(device, caches_ * cache_bytes_);
    v_ = Take(device, caches_ * cache_bytes_);
    q_ = Take(device, Rows() * DTypeBytes(c.query));
    out_ = Take(device, Rows() * DTypeBytes(c.query));
    FillNormal(k_, c.cache);
    FillNormal(v_, c.cache);
    FillNormal(q_, c.query);
    scratch_ =
        Take(device, PagedAttentionWorkspaceBytes(
                         device, c.shape, static_cast<int64_t>(lengths_.size()), starts_.back()));
  }

  BenchTime Run() {
    PagedAttentionPlan plan;
    MR_CHECK(PlanPagedAttention(case_.shape, {}, starts_, lengths_, plan).ok());
    Workspace workspace(scratch_.data(), scratch_.bytes());
    return MeasureRuns(kSeconds, [&](int64_t i) {
      MR_CHECK(PagedAttention({device_, Stream{}, workspace}, plan, Args(i % caches_)).ok());
    });
  }

  // Each key and value of a kv head is read once; two multiply-adds an element of each pair of
  // query and key that it sees.
  BenchWork Work() const {
    BenchWork work;
    for (const AttentionSequence& s : case_.sequences) {
      const double queries = s.queries, keys = s.keys, dim = case_.shape.head_dim;
      work.bytes +=
          2 * keys * case_.shape.kv_heads * dim * static_cast<double>(DTypeBytes(case_.cache));
      const double pairs = queries * (keys - queries) + queries * (queries + 1) / 2;
      work.flops += 4 * pairs * case_.shape.q_heads * dim;
    }
    return work;
  }

 private:
  int64_t Pages(int64_t keys) const { return (keys + case_.page_tokens - 1) / case_.page_tokens; }
  int64_t Rows() const { return starts_.back() * case_.shape.q_heads * case_.shape.head_dim; }

  void DealPages() {
    std::vector<int32_t> deck(static_cast<size_t>(pages_));
    std::iota(deck.begin(), deck.end(), 0);
    std::shuffle(deck.begin(), deck.end(), std::mt19937(2));
    table_.assign(lengths_.size() * static_cast<size_t>(max_pages_), -1);
    for (size_t b = 0; b < lengths_.size(); ++b) {
      for (int64_t i = 0; i < Pages(lengths_[b]); ++i) {
        table_[b * static_cast<size_t>(max_pages_) + static_cast<size_t>(i)] = deck.back();
        deck.pop_back();
      }
    }
  }

  PagedAttentionArgs Args(int64_t cache) {
    const PagedAttentionShape& s = case_.shape;
    const int64_t sequences = static_cast<int64_t>(lengths_.size());
    const auto rows = [&](const Buffer& b) {
      return TensorView::Of(b.data(), case_.query, {starts_.back(), s.q_heads, s.head_dim});
    };
    const auto pages = [&](const Buffer& b) {
      return TensorView::Of(static_cast<char*>(b.data()) + cache * cache_bytes_, case_.cache,
                            {pages_, s.kv_heads, case_.page_tokens, s.head_dim});
    };
    return {.q = rows(q_),
            .k_cache = pages(k_),
            .v_cache = pages(v_),
            .page_table = TensorView::Of(table_.data(), DType::kI32, {sequences, max_pages_}),
            .q_start = TensorView::Of(starts_.data(), DType::kI32, {sequences + 1}),
            .kv_len = TensorView::Of(lengths_.data(), DType::kI32, {sequences}),
            .out = rows(out_),
            .scale = 0.125f};
  }

  CpuDevice& device_;
  const PagedAttentionCase case_;
  std::vector<int32_t> starts_ = {0};
  std::vector<int32_t> lengths_;
  std::vector<int32_t> table_;
  int64_t pages_ = 0, max_pages_ = 1, cache_bytes_ = 0, caches_ = 1;
  Buffer k_, v_, q_, out_, scratch_;
};

void Bench(int threads) {
  auto device = CpuDevice::Create(threads);
  MR_CHECK(device.ok());
  BenchTable table(MeasureCpuCeiling(*(*device)->thread_pool(), **device));
  table.Note((*device)->Properties()->name);
  for (const PagedAttentionCase& c : ServedCases()) {
    AttentionBench bench(**device, c);
    table.Row(c.name, bench.Work(), bench.Run());
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  millrace::Bench(argc > 1 ? std::atoi(argv[1]) : std::max(1, cores));
  return 0;
}
