#include "kernels/rms_norm/rms_norm_impl.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/rms_norm/rms_norm_cpu_rows.h"
}  // namespace

const RmsNormKernels kRmsNormAvx2 = kKernels<8>;

}  // namespace millrace
