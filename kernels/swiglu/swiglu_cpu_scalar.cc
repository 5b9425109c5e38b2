#include <cstddef>

#include "kernels/simd/simd.h"
#include "kernels/swiglu/swiglu_impl.h"

namespace millrace {
namespace {
#include "kernels/swiglu/swiglu_cpu_rows.h"
}  // namespace

const SwigluKernels kSwigluScalar = {GatedRows<4, float>, GatedRows<4, BFloat16>};

}  // namespace millrace
