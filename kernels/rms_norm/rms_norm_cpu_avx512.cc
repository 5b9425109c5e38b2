#include "kernels/rms_norm/rms_norm_impl.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/rms_norm/rms_norm_cpu_rows.h"
}  // namespace

const RmsNormKernels kRmsNormAvx512 = {
    {NormRows<16, float, float>, NormRows<16, float, BFloat16>},
    {NormRows<16, BFloat16, float>, NormRows<16, BFloat16, BFloat16>},
};

}  // namespace millrace
