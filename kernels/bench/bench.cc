#include "kernels/bench/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/bench/bench_probes.h"
#include "kernels/core/check.h"
#include "kernels/cpu/isa_choice.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

const BenchProbes& ProbesFor(CpuIsa isa) {
  return ForIsa(isa, kBenchProbesScalar, kBenchProbesAvx2, kBenchProbesAvx512);
}

void PrintCpuRow(const std::string& name, const BenchWork& work, const BenchTime& time,
                 const CpuCeiling& ceiling) {
  const auto percent = [](double amount, double seconds, double bound) {
    return 100 * amount / seconds / bound;
  };
  std::fprintf(stdout, "%-44s %10.1f %10.1f %8.1f %9.1f %6.0f (%4.0f) %6.0f (%4.0f)\n",
               name.c_str(), time.median_seconds * 1e6, time.min_seconds * 1e6,
               work.bytes / time.median_seconds * 1e-9, work.flops / time.median_seconds * 1e-9,
               percent(work.bytes, time.median_seconds, ceiling.read_bytes_per_second),
               percent(work.bytes, time.min_seconds, ceiling.read_bytes_per_second),
               percent(work.flops, time.median_seconds, ceiling.flops_per_second),
               percent(work.flops, time.min_seconds, ceiling.flops_per_second));
}

}  // namespace

BenchTime MeasureRuns(double seconds, absl::FunctionRef<void(int64_t)> run) {
  constexpr size_t kFewest = 5;
  run(0);
  std::vector<double> times;
  const Clock::time_point start = Clock::now();
  while (times.size() < kFewest || Seconds(start) < seconds) {
    const Clock::time_point begin = Clock::now();
    run(static_cast<int64_t>(times.size()) + 1);
    times.push_back(Seconds(begin));
  }
  std::sort(times.begin(), times.end());
  return {.min_seconds = times.front(), .median_seconds = times[times.size() / 2]};
}

BenchRatio CompareRuns(absl::FunctionRef<void(int64_t)> ours,
                       absl::FunctionRef<void(int64_t)> peer) {
  constexpr int kRounds = 15;
  constexpr double kRoundSeconds = 0.1;
  // A peer's own threads (OpenMP's) spin for some milliseconds after its last call.
  constexpr auto kSettle = std::chrono::milliseconds(30);
  std::vector<double> ratios;
  for (int i = 0; i < kRounds; ++i) {
    std::this_thread::sleep_for(kSettle);
    const double our_time = MeasureRuns(kRoundSeconds, ours).median_seconds;
    ratios.push_back(MeasureRuns(kRoundSeconds, peer).median_seconds / our_time);
  }
  std::sort(ratios.begin(), ratios.end());
  return {.low = ratios.front(), .median = ratios[ratios.size() / 2], .high = ratios.back()};
}

void ReadMemory(ThreadPool& pool, const void* data, int64_t bytes) {
  constexpr int64_t kUnit = 4096;
  const BenchProbes& probes = ProbesFor(pool.isa());
  std::vector<float> sums(static_cast<size_t>(pool.threads()));
  pool.ParallelFor(bytes / kUnit, 1, [&](int64_t begin, int64_t end, int thread) {
    sums[static_cast<size_t>(thread)] =
        probes.read(static_cast<const char*>(data) + begin * kUnit, (end - begin) * kUnit);
  });
}

CpuCeiling MeasureCpuCeiling(ThreadPool& pool, Device& device) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  constexpr int64_t kSteps = 2'000'000;
  const BenchProbes& probes = ProbesFor(pool.isa());
  auto buffer = device.Allocate(kBytes);
  MR_CHECK(buffer.ok());
  const char* data = static_cast<const char*>(buffer->data());
  std::memset(buffer->data(), 1, kBytes);  // untouched pages would all be one page of zeros
  const BenchTime read = MeasureRuns(1.0, [&](int64_t) { ReadMemory(pool, data, kBytes); });
  std::vector<float> sums(static_cast<size_t>(pool.threads()));
  const BenchTime fma = MeasureRuns(0.5, [&](int64_t) {
    pool.ParallelFor(pool.threads(), 1, [&](int64_t, int64_t, int thread) {
      sums[static_cast<size_t>(thread)] = probes.multiply_add(kSteps);
    });
  });
  return {.read_bytes_per_second = kBytes / read.min_seconds,
          .flops_per_second = static_cast<double>(kSteps) * probes.flops_per_step * pool.threads() /
                              fma.min_seconds};
}

BenchTable::BenchTable(const CpuCeiling& ceiling) : ceiling_(ceiling) {
  std::fprintf(stdout, "ceiling: %.1f GB/s read, %.1f GFLOP/s f32\n",
               ceiling.read_bytes_per_second * 1e-9, ceiling.flops_per_second * 1e-9);
  std::fprintf(stdout, "%-44s %10s %10s %8s %9s %14s %14s\n", "case", "median us", "best us",
               "GB/s", "GFLOP/s", "% of GB/s", "% of GFLOP/s");
}

BenchTable::BenchTable(const CudaCeiling& ceiling) : ceiling_(ceiling) {
  std::fprintf(stdout, "ceiling: %.0f GB/s copied (read + written), %.0f GB/s read\n",
               ceiling.copy_bytes_per_second * 1e-9, ceiling.read_bytes_per_second * 1e-9);
  std::fprintf(stdout, "%-44s %10s %10s %8s %9s %9s\n", "case", "median us", "best us", "GB/s",
               "% of copy", "TFLOP/s");
}

void BenchTable::Row(const std::string& name, const BenchWork& work, const BenchTime& time) {
  if (const auto* cpu = std::get_if<CpuCeiling>(&ceiling_)) {
    PrintCpuRow(name, work, time, *cpu);
  } else {
    const double rate = work.bytes / time.median_seconds;
    std::fprintf(stdout, "%-44s %10.2f %10.2f %8.0f %9.1f %9.1f\n", name.c_str(),
                 time.median_seconds * 1e6, time.min_seconds * 1e6, rate * 1e-9,
                 100 * rate / std::get<CudaCeiling>(ceiling_).copy_bytes_per_second,
                 work.flops / time.median_seconds * 1e-12);
  }
  std::fflush(stdout);
}

void BenchTable::Note(const std::string& text) { std::fprintf(stdout, "    %s\n", text.c_str()); }

}  // namespace millrace
