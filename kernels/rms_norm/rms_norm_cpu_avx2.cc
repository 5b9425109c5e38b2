#include "kernels/rms_norm/rms_norm_impl.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/rms_norm/rms_norm_cpu_rows.h"
}  // namespace

const RmsNormKernels kRmsNormAvx2 = {
    {NormRows<8, float, float>, NormRows<8, float, BFloat16>},
    {NormRows<8, BFloat16, float>, NormRows<8, BFloat16, BFloat16>},
};

}  // namespace millrace
