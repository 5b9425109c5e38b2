#include "kernels/cpu/thread_pool.h"

#include <algorithm>
#include <chrono>

#include "kernels/core/check.h"

namespace millrace {
namespace {

constexpr int kPartsBits = 16;
constexpr uint64_t kPartsMask = (uint64_t{1} << kPartsBits) - 1;

// Longer than the serial gaps between two regions of a decode step, short enough that an idle
// engine does not burn a core.
constexpr std::chrono::microseconds kSpin{100};

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins until done() or kSpin is over; returns done(). Yields now and then, so that with more
// threads of ours than cores the thread waited for gets to run: 4 threads on one core took 0.02 ms
// a region, 0.5 ms without yielding. The price is paid beside processes that never yield (4 busy
// loops on that core: 6.7 ms instead of 1.1; AMD EPYC 7003, 2026-11-29): the engine wants its
// cores.
template <typename Done>
bool SpinUntil(const Done& done) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      CpuRelax();
    }
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < deadline);
  return done();
}

}  // namespace

ThreadPool::ThreadPool(int threads, CpuIsa isa) : threads_(threads), isa_(isa) {
  MR_CHECK(threads >= 1 && threads <= kMaxThreads);
  MR_CHECK_LE(isa, DetectIsa());
  const size_t workers = static_cast<size_t>(threads - 1);
  workers_.reserve(workers);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { WorkerLoop(i); });
}

ThreadPool::~ThreadPool() {
  MR_CHECK(!busy_.load());
  epoch_.store(((epoch_.load() >> kPartsBits) + 1) << kPartsBits);
  {
    const std::lock_guard<std::mutex> lock(mu_);
    wake_workers_.notify_all();
  }
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t n, int64_t grain, Body body) {
  MR_CHECK(n >= 0 && grain >= 1);
  if (n == 0) return;
  const int64_t units = (n - 1) / grain + 1;
  const int parts = static_cast<int>(std::min<int64_t>(units, threads_));
  if (parts == 1) {
    body(0, n, 0);
    return;
  }
  MR_CHECK(!busy_.exchange(true));
  region_ = {.body = &body, .n = n, .grain = grain};
  pending_.store(parts - 1, std::memory_order_relaxed);
  const uint64_t number = (epoch_.load(std::memory_order_relaxed) >> kPartsBits) + 1;
  // Sequentially consistent with sleeping_workers_: either the worker sees the epoch before it
  // sleeps, or it is seen here and woken.
  epoch_.store(number << kPartsBits | static_cast<uint64_t>(parts));
  if (sleeping_workers_.load() > 0) {
    const std::lock_guard<std::mutex> lock(mu_);
    wake_workers_.notify_all();
  }
  RunPart(region_, 0, parts);
  AwaitWorkers();
  busy_.store(false);
}

void ThreadPool::RunPart(const Region& region, int part, int parts) const {
  const int64_t units = (region.n - 1) / region.grain + 1;
  const int64_t each = units / parts;
  const int64_t more = units % parts;  // the first `more` ranges get one unit more
  const int64_t begin = part * each + std::min<int64_t>(part, more);
  const int64_t end = begin + each + (part < more ? 1 : 0);
  (*region.body)(begin * region.grain, std::min(end * region.grain, region.n), part);
}

void ThreadPool::WorkerLoop(int thread) {
  uint64_t seen = 1;
  while (true) {
    seen = AwaitEpoch(seen);
    const int parts = static_cast<int>(seen & kPartsMask);
    if (parts == 0) return;
    if (thread >= parts) continue;
    RunPart(region_, thread, parts);
    if (pending_.fetch_sub(1) == 1 && sleeping_caller_.load()) {
      const std::lock_guard<std::mutex> lock(mu_);
      wake_caller_.notify_one();
    }
  }
}

uint64_t ThreadPool::AwaitEpoch(uint64_t seen) {
  uint64_t now = seen;
  const auto changed = [&] {
    now = epoch_.load();
    return now != seen;
  };
  if (SpinUntil(changed)) return now;
  std::unique_lock<std::mutex> lock(mu_);
  sleeping_workers_.fetch_add(1);
  wake_workers_.wait(lock, changed);
  sleeping_workers_.fetch_sub(1);
  return now;
}

void ThreadPool::AwaitWorkers() {
  const auto done = [&] { return pending_.load() == 0; };
  if (SpinUntil(done)) return;
  std::unique_lock<std::mutex> lock(mu_);
  sleeping_caller_.store(true);
  wake_caller_.wait(lock, done);
  sleeping_caller_.store(false);
}

}  // namespace millrace
