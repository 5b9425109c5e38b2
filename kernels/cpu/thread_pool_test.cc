#include "kernels/cpu/thread_pool.h"

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

struct Range {
  int64_t begin, end;
  bool operator==(const Range&) const = default;
};

std::vector<Range> Ranges(ThreadPool& pool, int64_t n, int64_t grain) {
  std::vector<Range> ranges(static_cast<size_t>(pool.threads()), Range{-1, -1});
  pool.ParallelFor(n, grain, [&](int64_t begin, int64_t end, int thread) {
    ranges[static_cast<size_t>(thread)] = {begin, end};
  });
  std::erase(ranges, Range{-1, -1});
  return ranges;
}

TEST(ThreadPoolTest, CoversEachIndexOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
      for (int64_t grain : {1, 3, 16, 2000}) {
        std::vector<int> hits(static_cast<size_t>(n), 0);  // ranges are disjoint: no race
        pool.ParallelFor(n, grain, [&](int64_t begin, int64_t end, int thread) {
          EXPECT_LT(begin, end);
          EXPECT_TRUE(0 <= thread && thread < threads);
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), int64_t{0}), n);
        for (int hit : hits) EXPECT_EQ(hit, 1);
      }
    }
  }
}

TEST(ThreadPoolTest, SplitsEvenlyInWholeGrains) {
  ThreadPool pool(3);
  EXPECT_EQ(Ranges(pool, 10, 1), (std::vector<Range>{{0, 4}, {4, 7}, {7, 10}}));
  EXPECT_EQ(Ranges(pool, 10, 4), (std::vector<Range>{{0, 4}, {4, 8}, {8, 10}}));
  EXPECT_EQ(Ranges(pool, 10, 5), (std::vector<Range>{{0, 5}, {5, 10}}));
  EXPECT_EQ(Ranges(pool, 10, 10), (std::vector<Range>{{0, 10}}));
}

TEST(ThreadPoolTest, OneRangeRunsOnTheCaller) {
  ThreadPool pool(4);
  std::thread::id ran;
  pool.ParallelFor(5, 8, [&](int64_t, int64_t, int) { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
}

TEST(ThreadPoolTest, RangeZeroRunsOnTheCallerAndOthersElsewhere) {
  ThreadPool pool(2);
  std::vector<std::thread::id> ran(2);
  pool.ParallelFor(2, 1, [&](int64_t, int64_t, int t) {
    ran[static_cast<size_t>(t)] = std::this_thread::get_id();
  });
  EXPECT_EQ(ran[0], std::this_thread::get_id());
  EXPECT_NE(ran[1], std::this_thread::get_id());
}

TEST(ThreadPoolTest, ManySmallRegionsOfDifferentWidths) {
  ThreadPool pool(4);
  int64_t sum = 0;
  std::vector<int64_t> parts(4, 0);
  // Few enough for a busy machine, where a region can wait milliseconds for its threads to run.
  for (int64_t i = 0; i < 1500; ++i) {
    pool.ParallelFor(1 + i % 5, 1, [&](int64_t begin, int64_t end, int thread) {
      parts[static_cast<size_t>(thread)] += end - begin;
    });
    sum += 1 + i % 5;
  }
  EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), int64_t{0}), sum);
}

TEST(ThreadPoolTest, WakesAfterSleeping) {
  ThreadPool pool(2);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(i % 4));
    std::atomic<int> ran{0};
    pool.ParallelFor(2, 1, [&](int64_t, int64_t, int thread) {
      // The caller falls asleep waiting for the slow worker in some of the rounds.
      if (thread == 1) std::this_thread::sleep_for(std::chrono::milliseconds(i % 3));
      ++ran;
    });
    EXPECT_EQ(ran, 2);
  }
}

TEST(ThreadPoolTest, ShutsDownSpinningAndSleeping) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(3);
    pool.ParallelFor(3, 1, [](int64_t, int64_t, int) {});
    if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST(ThreadPoolTest, TwoPoolsWorkSideBySide) {
  ThreadPool a(2), b(2);
  std::atomic<int64_t> total{0};
  const auto run = [&](ThreadPool& pool) {
    for (int i = 0; i < 500; ++i) {
      pool.ParallelFor(10, 1, [&](int64_t begin, int64_t end, int) { total += end - begin; });
    }
  };
  std::thread other([&] { run(b); });
  run(a);
  other.join();
  EXPECT_EQ(total, 10000);
}

TEST(ThreadPoolTest, HoldsTheInstructionSet) {
  EXPECT_EQ(ThreadPool(1).isa(), DetectIsa());
  EXPECT_EQ(ThreadPool(1, CpuIsa::kScalar).isa(), CpuIsa::kScalar);
  EXPECT_TRUE(!HasAvx512Bf16() || DetectIsa() == CpuIsa::kAvx512);
}

TEST(ThreadPoolDeathTest, RefusesMisuse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(ThreadPool(0), "threads >= 1");
  EXPECT_DEATH(
      {
        ThreadPool pool(1);
        pool.ParallelFor(1, 0, [](int64_t, int64_t, int) {});
      },
      "grain >= 1");
}

}  // namespace
}  // namespace millrace
