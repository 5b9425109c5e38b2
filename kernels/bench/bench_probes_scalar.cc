#include "kernels/bench/bench_probes.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/bench/bench_probes_loops.h"
}  // namespace

const BenchProbes kBenchProbesScalar = kProbes<4>;

}  // namespace millrace
