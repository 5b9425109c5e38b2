#include "engine/tokenizer/merger.h"

#include <algorithm>

namespace millrace {
namespace {

// Up to here looking at every pair is quicker than keeping a heap.
constexpr size_t kMaxScannedSymbols = 48;
constexpr uint32_t kNone = ~uint32_t{0};

using Candidate = MergerScratch::Candidate;

void FindMerges(const MergeTable& table, const std::vector<int32_t>& symbols,
                std::vector<Merge>* merges) {
  merges->resize(symbols.size());
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    (*merges)[i] = table.Find(symbols[i], symbols[i + 1]);
  }
  merges->back() = kNoMerge;
}

void MergeByScanning(const MergeTable& table, std::vector<int32_t>* symbols,
                     std::vector<Merge>* merges) {
  int32_t* ids = symbols->data();
  Merge* found = merges->data();
  size_t count = symbols->size();
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (found[i] < found[best]) best = i;
    }
    if (found[best] == kNoMerge) break;
    ids[best] = MergeResult(found[best]);
    std::copy(ids + best + 2, ids + count, ids + best + 1);
    std::copy(found + best + 2, found + count, found + best + 1);
    --count;
    found[best] = best + 1 < count ? table.Find(ids[best], ids[best + 1]) : kNoMerge;
    if (best > 0) found[best - 1] = table.Find(ids[best - 1], ids[best]);
  }
  symbols->resize(count);
}

// A linked list over the positions and a heap of candidates; a candidate is stale when the merge
// noted at its position is another one by now.
class HeapMerger {
 public:
  HeapMerger(const MergeTable& table, std::vector<int32_t>* symbols, MergerScratch* scratch)
      : table_(table), symbols_(*symbols), scratch_(*scratch) {
    const size_t count = symbols_.size();
    scratch_.next.resize(count);
    scratch_.previous.resize(count);
    scratch_.heap.clear();
    for (size_t i = 0; i < count; ++i) {
      scratch_.next[i] = i + 1 < count ? static_cast<uint32_t>(i + 1) : kNone;
      scratch_.previous[i] = i > 0 ? static_cast<uint32_t>(i - 1) : kNone;
      if (scratch_.merges[i] != kNoMerge) {
        scratch_.heap.push_back({scratch_.merges[i], static_cast<uint32_t>(i)});
      }
    }
    std::make_heap(scratch_.heap.begin(), scratch_.heap.end(), Later);
  }

  void Run() {
    while (!scratch_.heap.empty()) {
      std::pop_heap(scratch_.heap.begin(), scratch_.heap.end(), Later);
      const Candidate top = scratch_.heap.back();
      scratch_.heap.pop_back();
      if (scratch_.merges[top.pos] == top.merge) Apply(top);
    }
    size_t kept = 0;
    for (uint32_t pos = 0; pos != kNone; pos = scratch_.next[pos]) {
      symbols_[kept++] = symbols_[pos];
    }
    symbols_.resize(kept);
  }

 private:
  static bool Later(const Candidate& a, const Candidate& b) {
    return a.merge != b.merge ? a.merge > b.merge : a.pos > b.pos;
  }

  void Apply(const Candidate& candidate) {
    const uint32_t pos = candidate.pos;
    const uint32_t gone = scratch_.next[pos];
    symbols_[pos] = MergeResult(candidate.merge);
    scratch_.merges[gone] = kNoMerge;
    scratch_.next[pos] = scratch_.next[gone];
    if (scratch_.next[pos] != kNone) scratch_.previous[scratch_.next[pos]] = pos;
    Note(pos);
    if (scratch_.previous[pos] != kNone) Note(scratch_.previous[pos]);
  }

  // Looks up the merge of the symbol at `pos` with its neighbour.
  void Note(uint32_t pos) {
    const uint32_t right = scratch_.next[pos];
    const Merge merge = right == kNone ? kNoMerge : table_.Find(symbols_[pos], symbols_[right]);
    scratch_.merges[pos] = merge;
    if (merge == kNoMerge) return;
    scratch_.heap.push_back({merge, pos});
    std::push_heap(scratch_.heap.begin(), scratch_.heap.end(), Later);
  }

  const MergeTable& table_;
  std::vector<int32_t>& symbols_;
  MergerScratch& scratch_;
};

}  // namespace

void MergeAll(const MergeTable& table, std::vector<int32_t>* symbols, MergerScratch* scratch) {
  if (symbols->size() < 2) return;
  FindMerges(table, *symbols, &scratch->merges);
  if (symbols->size() <= kMaxScannedSymbols) {
    MergeByScanning(table, symbols, &scratch->merges);
  } else {
    HeapMerger(table, symbols, scratch).Run();
  }
}

}  // namespace millrace
