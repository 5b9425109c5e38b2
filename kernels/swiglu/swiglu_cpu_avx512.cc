#include "kernels/swiglu/swiglu_impl.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/swiglu/swiglu_cpu_rows.h"
}  // namespace

const SwigluKernels kSwigluAvx512 = kKernels<16>;

}  // namespace millrace
