#include "kernels/swiglu/swiglu_impl.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/swiglu/swiglu_cpu_rows.h"
}  // namespace

const SwigluKernels kSwigluAvx2 = kKernels<8>;

}  // namespace millrace
