#include "kernels/bench/bench_probes.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/bench/bench_probes_loops.h"
}  // namespace

const BenchProbes kBenchProbesAvx2 = kProbes<8>;

}  // namespace millrace
