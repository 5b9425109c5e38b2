#include <algorithm>
#include <type_traits>

#include "kernels/linear/linear_impl.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/linear/linear_cpu_rows.h"
}  // namespace

const LinearKernels kLinearScalar[2] = {kKernels<4, float>, kKernels<4, BFloat16>};

}  // namespace millrace
