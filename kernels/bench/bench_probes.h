// The inner loops behind MeasureCpuCeiling(), one set per instruction set.
#ifndef KERNELS_BENCH_BENCH_PROBES_H_
#define KERNELS_BENCH_BENCH_PROBES_H_

#include <cstdint>

namespace millrace {

struct BenchProbes {
  // Reads every byte; the result depends on all. REQUIRES: bytes is a multiple of 4096.
  float (*read)(const char* data, int64_t bytes);
  float (*multiply_add)(int64_t steps);
  int flops_per_step;
};

extern const BenchProbes kBenchProbesScalar;
extern const BenchProbes kBenchProbesAvx2;
extern const BenchProbes kBenchProbesAvx512;

}  // namespace millrace

#endif  // KERNELS_BENCH_BENCH_PROBES_H_
