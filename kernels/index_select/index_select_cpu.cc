#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cpu/isa_choice.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/index_select/index_select_cpu_scores.h"
#include "kernels/index_select/index_select_impl.h"
#include "kernels/latent_cache/hadamard_fp4.h"
#include "kernels/latent_cache/paged_batch_cpu.h"

namespace millrace {
namespace {

// Entries of a unit of work: packing the queries of a unit costs as much as a few of them.
constexpr int64_t kUnitEntries = 256;

const IndexKernels& KernelsFor(CpuIsa isa) {
  return ForIsa(isa, kIndexScalar, kIndexAvx2, kIndexAvx512);
}

float ValueAt(const TensorView& t, int64_t offset) {
  return t.dtype == DType::kF32 ? t.as<float>()[offset] : ToFloat(t.as<BFloat16>()[offset]);
}

// The `count` largest of scores[0..size), equal ones by rising index, in rising order of their
// indices. NaN must be gone. `ordered` is scratch of `size`.
void SelectLargest(const float* scores, int64_t size, float* ordered, int64_t count,
                   int32_t* selected) {
  std::copy_n(scores, size, ordered);
  std::nth_element(ordered, ordered + count - 1, ordered + size, std::greater<>());
  const float lowest = ordered[count - 1];
  int64_t equal = count - std::count_if(scores, scores + size, [=](float x) { return x > lowest; });
  for (int64_t i = 0; i < size; ++i) {
    if (scores[i] < lowest || (scores[i] == lowest && equal-- <= 0)) continue;
    *selected++ = static_cast<int32_t>(i);
  }
}

// What is kept of each thread, and of each token of a group, which has as many.
struct IndexScratch {
  IndexScratch(int64_t heads, int64_t dim, int64_t entries)
      : queries(heads * (dim + 1)), kernel(IndexScratchFloats(heads, dim)), scores(entries) {}
  int64_t floats() const { return queries + kernel + 2 * scores; }

  int64_t queries;  // of a token: [heads][dim], and the weights
  int64_t kernel;
  int64_t scores;  // of a token, and as many to order them in
};

// One call. Each thread has room for one token, so that little memory suffices for any batch.
class IndexRun final {
 public:
  IndexRun(const IndexSelectArgs& args, const IndexScratch& sizes, int64_t threads, float* scratch)
      : args_(args), batch_(args.batch), sizes_(sizes), threads_(threads), scratch_(scratch) {}

  int64_t tokens() const { return batch_.tokens(); }

  // Token t, in the room of thread `place`: its queries as floats, times what serving numerics do
  // to them.
  void Prepare(int64_t t, int64_t place) const {
    if (!NeedsScores(t)) return;
    const int64_t heads = args_.q.dim(1), dim = args_.q.dim(2);
    float* q = Queries(place);
    for (int64_t n = 0; n < heads; ++n, q += dim) {
      for (int64_t d = 0; d < dim; ++d) {
        q[d] = ValueAt(args_.q, t * args_.q.stride(0) + n * args_.q.stride(1) + d);
      }
      if (args_.hadamard_fp4) ApplyHadamardFp4(q, dim);
    }
    for (int64_t n = 0; n < heads; ++n) {
      q[n] = ValueAt(args_.weights, t * args_.weights.stride(0) + n) * args_.scale;
    }
  }

  int64_t Units(int64_t t) const {
    return NeedsScores(t) ? (Visible(t) + kUnitEntries - 1) / kUnitEntries : 0;
  }

  void Score(const IndexKernels& kernels, int64_t t, int64_t place, int64_t unit,
             int thread) const {
    const int64_t heads = args_.q.dim(1), dim = args_.q.dim(2);
    const int64_t begin = unit * kUnitEntries;
    const int64_t end = std::min(Visible(t), begin + kUnitEntries);
    float* scores = Scores(place);
    kernels.score({.q = Queries(place),
                   .weights = Queries(place) + heads * dim,
                   .heads = heads,
                   .dim = dim,
                   .pages = batch_.Pages(batch_.SequenceOf(t)),
                   .keys = args_.keys.data,
                   .keys_dtype = args_.keys.dtype,
                   .page_stride = args_.keys.stride(0),
                   .key_stride = args_.keys.stride(2),
                   .page_entries = args_.keys.dim(2),
                   .begin = begin,
                   .end = end,
                   .scores = scores,
                   .scratch = Kernel(thread)});
    for (int64_t s = begin; s < end; ++s) {
      if (std::isnan(scores[s])) scores[s] = -std::numeric_limits<float>::infinity();
    }
  }

  void Select(int64_t t, int64_t place) const {
    int32_t* selected = args_.selected.as<int32_t>() + t * args_.selected.stride(0);
    const int64_t room = args_.selected.dim(1);
    if (NeedsScores(t)) {
      return SelectLargest(Scores(place), Visible(t), Scores(place) + sizes_.scores, room,
                           selected);
    }
    for (int64_t i = 0; i < room; ++i) {
      selected[i] = i < Visible(t) ? static_cast<int32_t>(i) : -1;
    }
  }

 private:
  int64_t Visible(int64_t t) const {
    return (batch_.PositionOf(t, batch_.SequenceOf(t)) + 1) / args_.ratio;
  }
  bool NeedsScores(int64_t t) const { return Visible(t) > args_.selected.dim(1); }

  float* Queries(int64_t place) const { return scratch_ + place * sizes_.queries; }
  float* Kernel(int64_t thread) const {
    return scratch_ + threads_ * sizes_.queries + thread * sizes_.kernel;
  }
  float* Scores(int64_t place) const {
    return scratch_ + threads_ * (sizes_.queries + sizes_.kernel) + place * 2 * sizes_.scores;
  }

  const IndexSelectArgs& args_;
  const PagedBatchCpu batch_;
  const IndexScratch& sizes_;
  const int64_t threads_;
  float* const scratch_;
};

// Many tokens: each by one thread, one after the other as threads come free.
void RunManyTokens(const IndexRun& run, ThreadPool& pool) {
  const IndexKernels& kernels = KernelsFor(pool.isa());
  std::atomic<int64_t> next{0};
  pool.ParallelFor(pool.threads(), 1, [&](int64_t, int64_t, int thread) {
    for (int64_t t = next.fetch_add(1); t < run.tokens(); t = next.fetch_add(1)) {
      run.Prepare(t, thread);
      for (int64_t unit = 0; unit < run.Units(t); ++unit) {
        run.Score(kernels, t, thread, unit, thread);
      }
      run.Select(t, thread);
    }
  });
}

// Tokens [begin, end), at most one a thread, each by all threads.
void RunFewTokens(const IndexRun& run, ThreadPool& pool, int64_t begin, int64_t end) {
  const IndexKernels& kernels = KernelsFor(pool.isa());
  const int64_t size = end - begin;
  int64_t units = 0;
  for (int64_t t = begin; t < end; ++t) {
    run.Prepare(t, t - begin);
    units = std::max(units, run.Units(t));
  }
  std::atomic<int64_t> next{0};
  pool.ParallelFor(std::min<int64_t>(pool.threads(), units * size), 1,
                   [&](int64_t, int64_t, int thread) {
                     for (int64_t w = next.fetch_add(1); w < units * size; w = next.fetch_add(1)) {
                       const int64_t place = w % size, unit = w / size;
                       if (unit >= run.Units(begin + place)) continue;
                       run.Score(kernels, begin + place, place, unit, thread);
                     }
                   });
  pool.ParallelFor(size, 1, [&](int64_t from, int64_t to, int) {
    for (int64_t i = from; i < to; ++i) run.Select(begin + i, i);
  });
}

int64_t ScratchBytes(int64_t threads, const IndexScratch& sizes) {
  return threads * sizes.floats() * static_cast<int64_t>(sizeof(float));
}

}  // namespace

absl::Status IndexSelectCpu(const OpContext& ctx, const IndexSelectArgs& args) {
  RETURN_IF_ERROR(CheckPagedBatchValues("IndexSelect", args.batch,
                                        {.tokens = args.q.dim(0),
                                         .pages = args.keys.dim(0),
                                         .page_tokens = args.keys.dim(2) * args.ratio}));
  ThreadPool& pool = *ctx.device.thread_pool();
  const PagedBatchCpu batch(args.batch);
  int64_t entries = 0;
  for (int64_t b = 0; b < batch.sequences(); ++b) {
    if (batch.has_tokens(b)) entries = std::max(entries, batch.EndPosition(b) / args.ratio);
  }
  const IndexScratch sizes(args.q.dim(1), args.q.dim(2), entries);
  WorkspaceScope workspace(ctx.workspace);
  ASSIGN_OR_RETURN(void* scratch, workspace.Take(ScratchBytes(pool.threads(), sizes)));
  const IndexRun run(args, sizes, pool.threads(), static_cast<float*>(scratch));
  if (run.tokens() >= 2 * pool.threads()) {
    RunManyTokens(run, pool);
    return absl::OkStatus();
  }
  for (int64_t t = 0; t < run.tokens(); t += pool.threads()) {
    RunFewTokens(run, pool, t, std::min<int64_t>(run.tokens(), t + pool.threads()));
  }
  return absl::OkStatus();
}

int64_t IndexSelectCpuWorkspaceBytes(Device& device, int64_t heads, int64_t dim,
                                     int64_t max_entries) {
  const IndexScratch sizes(heads, dim, max_entries);
  return ScratchBytes(device.thread_pool()->threads(), sizes) + 256;  // which Take rounds up
}

}  // namespace millrace
