#include "kernels/sample/sample_cpu_passes.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/sample/sample_cpu_passes_text.h"
}  // namespace

const SamplePasses kSampleScalar = {Maxima<4>, Sums<4>, Exponentials<4>, CountAbove<4>};

}  // namespace millrace
