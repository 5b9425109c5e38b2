#include "kernels/sample/sample_cpu_passes.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/sample/sample_cpu_passes_text.h"
}  // namespace

const SamplePasses kSampleAvx2 = {Maxima<8>, Sums<8>, Exponentials<8>, CountAbove<8>};

}  // namespace millrace
