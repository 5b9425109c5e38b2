#include "kernels/rms_norm/rms_norm_impl.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/rms_norm/rms_norm_cpu_rows.h"
}  // namespace

const RmsNormKernels kRmsNormAvx512 = kKernels<16>;

}  // namespace millrace
