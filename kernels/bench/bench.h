// Timing of ops, as rows of a table: time, GB/s, FLOP/s, and how near that comes to what this
// machine reaches in the same run. For benchmark programs only; bench_bed.h is where they start.
#ifndef KERNELS_BENCH_BENCH_H_
#define KERNELS_BENCH_BENCH_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/functional/function_ref.h"
#include "kernels/core/device.h"
#include "kernels/cpu/thread_pool.h"

namespace millrace {

// What one call moves and computes, by the definition of the op (not by what a kernel does).
struct BenchWork {
  double bytes = 0;
  double flops = 0;
};

struct BenchTime {
  double min_seconds = 0;
  double median_seconds = 0;
};

// Calls run(i), i = 0, 1, ..., for `seconds` and at least 5 times after one call that is not timed.
// A caller that wants cold caches picks another operand for each i.
BenchTime MeasureRuns(double seconds, absl::FunctionRef<void(int64_t)> run);

// How fast `ours` is beside `peer`: peer's time over ours, 1 when they are equal.
struct BenchRatio {
  double low = 0, median = 0, high = 0;  // over the rounds
};

// Times the two in turns, in short rounds, and takes the ratio of the medians of each round: what
// else the machine does then slows both, where two long measurements would tell its moods apart.
BenchRatio CompareRuns(absl::FunctionRef<void(int64_t)> ours,
                       absl::FunctionRef<void(int64_t)> peer);

// Reads `bytes` (a multiple of 4096 is read; the rest is not) with all threads of the pool.
void ReadMemory(ThreadPool& pool, const void* data, int64_t bytes);

// The two bounds of the CPU, measured with all threads of a pool.
struct CpuCeiling {
  double read_bytes_per_second = 0;  // sequential reads of memory far larger than the caches
  double flops_per_second = 0;       // independent f32 multiply-adds in registers
};
CpuCeiling MeasureCpuCeiling(ThreadPool& pool, Device& device);

// The bounds of a GPU's memory.
struct CudaCeiling {
  double copy_bytes_per_second = 0;  // bytes read and bytes written, both counted
  double read_bytes_per_second = 0;
};

// Prints to stdout. On the CPU percentages are of the ceiling, by the median and by the best run:
// on a machine that is not quiet only the best run says something about the code. On a GPU they are
// of the copy bandwidth, by the median.
class BenchTable final {
 public:
  explicit BenchTable(const CpuCeiling& ceiling);   // prints ceiling and heading
  explicit BenchTable(const CudaCeiling& ceiling);  // prints ceiling and heading
  void Row(const std::string& name, const BenchWork& work, const BenchTime& time);
  // A remark under the last row.
  void Note(const std::string& text);

 private:
  std::variant<CpuCeiling, CudaCeiling> ceiling_;
};

}  // namespace millrace

#endif  // KERNELS_BENCH_BENCH_H_
