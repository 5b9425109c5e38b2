#include "kernels/rms_norm/rms_norm_impl.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/rms_norm/rms_norm_cpu_rows.h"
}  // namespace

const RmsNormKernels kRmsNormScalar = {
    {NormRows<4, float, float>, NormRows<4, float, BFloat16>},
    {NormRows<4, BFloat16, float>, NormRows<4, BFloat16, BFloat16>},
};

}  // namespace millrace
