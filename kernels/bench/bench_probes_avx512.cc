#include "kernels/bench/bench_probes.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/bench/bench_probes_loops.h"
}  // namespace

const BenchProbes kBenchProbesAvx512 = kProbes<16>;

}  // namespace millrace
