// PagedAttention: decode against one read of the cache, prefill by its multiply-adds. Each call
// reads other pages, dealt in random order, of a cache far larger than the processor's, as the
// layers of a model do.
//
//   bazel run -c opt //kernels/paged_attention:paged_attention_bench -- [--device=cpu]
//   [--threads=N]
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/lowp/small_float.h"
#include "kernels/paged_attention/paged_attention.h"
#include "kernels/paged_attention/paged_attention_cases.h"

namespace millrace {
namespace {

constexpr int64_t kRotatedBytes = int64_t{512} << 20;
constexpr int64_t kMostSets = 16;

// The tensors of one case, with as many sets of pages as kRotatedBytes hold.
class AttentionBench final {
 public:
  AttentionBench(BenchBed& bed, const PagedAttentionCase& c, const PagedAttentionTarget& target)
      : bed_(bed), case_(c) {
    for (const AttentionSequence& s : c.sequences) {
      starts_.push_back(starts_.back() + s.queries);
      lengths_.push_back(s.keys);
      pages_ += Pages(s.keys);
      max_pages_ = std::max(max_pages_, Pages(s.keys));
    }
    MR_CHECK(PlanPagedAttention(c.shape, target, starts_, lengths_, plan_).ok());
    UploadPlan();
    const PagedAttentionShape& s = c.shape;
    const int64_t set_bytes =
        2 * pages_ * s.kv_heads * c.page_tokens * s.head_dim * DTypeBytes(c.cache);
    sets_ = std::clamp<int64_t>(kRotatedBytes / set_bytes, 1, kMostSets);
    DealPages();
    operands_.push_back(
        bed.Operand(c.cache, {sets_ * pages_, s.kv_heads, c.page_tokens, s.head_dim}));
    operands_.push_back(
        bed.Operand(c.cache, {sets_ * pages_, s.kv_heads, c.page_tokens, s.head_dim}));
    if (c.cache == DType::kU8) {
      for (const BenchOperand& cache : operands_) FillCodes(cache.At(0));
      scales_.push_back(
          bed.Floats(std::vector<float>(static_cast<size_t>(s.kv_heads), 1.0f / 256)));
    }
    operands_.push_back(bed.Operand(c.query, {starts_.back(), s.q_heads, s.head_dim}));
    operands_.push_back(bed.Operand(c.query, {starts_.back(), s.q_heads, s.head_dim}));
    starts_operand_.push_back(bed.Integers(DType::kI32, {starts_.begin(), starts_.end()}));
    starts_operand_.push_back(bed.Integers(DType::kI32, {lengths_.begin(), lengths_.end()}));
  }

  void Run() {
    bed_.Row(case_.name, Work(),
             [&](int64_t i) { MR_CHECK(PagedAttention(bed_.ctx(), plan_, Args(i)).ok()); });
  }

 private:
  int64_t Pages(int64_t keys) const { return (keys + case_.page_tokens - 1) / case_.page_tokens; }
  int64_t Sequences() const { return static_cast<int64_t>(lengths_.size()); }

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

  // Codes of numbers that are uniform in [-256, 256), a few megabytes of them again and again.
  void FillCodes(const TensorView& cache) {
    std::mt19937 rng(3);
    std::vector<uint8_t> codes(static_cast<size_t>(std::min<int64_t>(cache.size(), 4 << 20)));
    for (uint8_t& code : codes) {
      code = EncodeE4M3(static_cast<double>(rng()) / (uint64_t{1} << 23) - 256);
    }
    const Stream stream = bed_.ctx().stream;
    for (int64_t at = 0; at < cache.size(); at += static_cast<int64_t>(codes.size())) {
      const int64_t bytes = std::min(cache.size() - at, static_cast<int64_t>(codes.size()));
      MR_CHECK(
          bed_.device()
              .Copy(cache.as<char>() + at, codes.data(), bytes, CopyKind::kHostToDevice, stream)
              .ok());
    }
    MR_CHECK(bed_.device().Synchronize(stream).ok());
  }

  void UploadPlan() {
    const int64_t bytes = plan_.layout.bytes;
    if (bytes == 0) return;
    std::vector<char> host(static_cast<size_t>(bytes));
    WritePagedAttentionPlan(plan_, host.data());
    auto buffer = bed_.device().Allocate(bytes);
    MR_CHECK(buffer.ok());
    plan_memory_ = std::move(buffer).value();
    const Stream stream = bed_.ctx().stream;
    MR_CHECK(bed_.device()
                 .Copy(plan_memory_.data(), host.data(), bytes, CopyKind::kHostToDevice, stream)
                 .ok());
    MR_CHECK(bed_.device().Synchronize(stream).ok());
  }

  // One page table a set, none with a page of another.
  void DealPages() {
    std::vector<int64_t> deck(static_cast<size_t>(sets_ * pages_));
    std::iota(deck.begin(), deck.end(), 0);
    std::shuffle(deck.begin(), deck.end(), std::mt19937(2));
    for (int64_t set = 0; set < sets_; ++set) {
      std::vector<int64_t> table;
      for (const int32_t keys : lengths_) {
        for (int64_t i = 0; i < max_pages_; ++i) {
          const bool inside = i < Pages(keys);
          table.push_back(inside ? deck.back() : -1);
          if (inside) deck.pop_back();
        }
      }
      tables_.push_back(bed_.Integers(DType::kI32, table));
    }
  }

  PagedAttentionArgs Args(int64_t i) {
    TensorView table = tables_[static_cast<size_t>(i % sets_)].At(0);
    table = TensorView::Of(table.data, DType::kI32, {Sequences(), max_pages_}, table.device);
    return {.q = operands_[2].At(i),
            .k_cache = operands_[0].At(0),
            .v_cache = operands_[1].At(0),
            .page_table = table,
            .q_start = starts_operand_[0].At(0),
            .kv_len = starts_operand_[1].At(0),
            .out = operands_[3].At(i),
            .scale = 0.125f,
            .plan_data = TensorView::Of(plan_memory_.data(), DType::kU8, {plan_memory_.bytes()},
                                        bed_.device().type()),
            .k_scale = scales_.empty() ? TensorView{} : scales_[0].At(0),
            .v_scale = scales_.empty() ? TensorView{} : scales_[0].At(0)};
  }

  BenchBed& bed_;
  const PagedAttentionCase case_;
  std::vector<int32_t> starts_ = {0};
  std::vector<int32_t> lengths_;
  int64_t pages_ = 0, max_pages_ = 1, sets_ = 1;
  PagedAttentionPlan plan_;
  Buffer plan_memory_;
  std::vector<BenchOperand> tables_;
  std::vector<BenchOperand> operands_;        // keys, values, queries, output
  std::vector<BenchOperand> starts_operand_;  // q_start, kv_len
  std::vector<BenchOperand> scales_;          // of codes, or none
};

void Bench(BenchBed& bed) {
  const auto target = PagedAttentionTargetOf(bed.device());
  MR_CHECK(target.ok());
  for (const PagedAttentionCase& c : bed.on_cuda() ? GpuServedCases() : ServedCases()) {
    AttentionBench(bed, c, *target).Run();
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::Bench); }
