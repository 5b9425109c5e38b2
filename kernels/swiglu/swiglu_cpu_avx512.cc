#include <cstddef>

#include "kernels/simd/simd.h"
#include "kernels/swiglu/swiglu_impl.h"

namespace millrace {
namespace {
#include "kernels/swiglu/swiglu_cpu_rows.h"
}  // namespace

const SwigluKernels kSwigluAvx512 = {GatedRows<16, float>, GatedRows<16, BFloat16>};

}  // namespace millrace
