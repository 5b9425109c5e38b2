#include <cstddef>

#include "kernels/simd/simd.h"
#include "kernels/swiglu/swiglu_impl.h"

namespace millrace {
namespace {
#include "kernels/swiglu/swiglu_cpu_rows.h"
}  // namespace

const SwigluKernels kSwigluAvx2 = {GatedRows<8, float>, GatedRows<8, BFloat16>};

}  // namespace millrace
