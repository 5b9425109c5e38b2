#include <algorithm>
#include <type_traits>

#include "kernels/linear/linear_impl.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/linear/linear_cpu_rows.h"
}  // namespace

const LinearKernels kLinearAvx2[2] = {kKernels<8, float>, kKernels<8, BFloat16>};

}  // namespace millrace
