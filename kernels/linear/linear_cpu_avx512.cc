#include <algorithm>
#include <type_traits>

#include "kernels/linear/linear_impl.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/linear/linear_cpu_rows.h"
}  // namespace

const LinearKernels kLinearAvx512[2] = {kKernels<16, float>, kKernels<16, BFloat16>};

}  // namespace millrace
