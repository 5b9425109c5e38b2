// Threads for the CPU kernels. Made for many small parallel regions: a worker that has nothing to
// do spins for a short while before it sleeps, so a region costs about a microsecond while a model
// runs and nothing while it idles. Shares nothing with OpenMP.
#ifndef KERNELS_CPU_THREAD_POOL_H_
#define KERNELS_CPU_THREAD_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/isa.h"

namespace millrace {

class ThreadPool final {
 public:
  // body(begin, end, thread): does the work of [begin, end), begin < end, 0 <= thread < threads().
  using Body = absl::FunctionRef<void(int64_t begin, int64_t end, int thread)>;

  // Starts threads - 1 threads; the caller of ParallelFor is thread 0. `isa` is what the kernels
  // that run on this pool use. REQUIRES: 1 <= threads <= kMaxThreads, isa <= DetectIsa().
  explicit ThreadPool(int threads, CpuIsa isa = DetectIsa());
  ~ThreadPool();  // REQUIRES: no ParallelFor in progress
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  CpuIsa isa() const { return isa_; }

  // Splits [0, n) into at most threads() contiguous ranges whose lengths are multiples of `grain`
  // (but for the last), as equal as can be, range i on thread i; returns when all are done. The
  // split depends on n, grain and threads() alone. One range runs inline. Allocates nothing.
  // One caller at a time; `body` must not call ParallelFor. REQUIRES: n >= 0, grain >= 1.
  void ParallelFor(int64_t n, int64_t grain, Body body);

  static constexpr int kMaxThreads = 1024;

 private:
  struct Region {
    const Body* body = nullptr;
    int64_t n = 0;
    int64_t grain = 1;
  };

  void WorkerLoop(int thread);
  // Waits until epoch_ differs from `seen` and returns it.
  uint64_t AwaitEpoch(uint64_t seen);
  void AwaitWorkers();
  void RunPart(const Region& region, int part, int parts) const;

  const int threads_;
  const CpuIsa isa_;

  // Region number << 16 | ranges of it (0: stop). A worker whose number is past the ranges looks at
  // nothing else, so the caller needs to wait only for those that take part.
  std::atomic<uint64_t> epoch_{1};
  std::atomic<int> pending_{0};  // workers still in the region
  Region region_;                // written before epoch_, read by the workers of that epoch
  std::atomic<bool> busy_{false};

  std::mutex mu_;  // guards nothing but the two waits
  std::condition_variable wake_workers_;
  std::condition_variable wake_caller_;
  std::atomic<int> sleeping_workers_{0};
  std::atomic<bool> sleeping_caller_{false};

  std::vector<std::thread> workers_;
};

}  // namespace millrace

#endif  // KERNELS_CPU_THREAD_POOL_H_
