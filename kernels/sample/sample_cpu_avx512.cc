#include "kernels/sample/sample_cpu_passes.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/sample/sample_cpu_passes_text.h"
}  // namespace

const SamplePasses kSampleAvx512 = {Maxima<16>, Sums<16>, Exponentials<16>, CountAbove<16>};

}  // namespace millrace
