#include "kernels/core/dtype.h"
#include "kernels/index_select/index_select_cpu_scores.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/index_select/index_select_cpu_score.h"
}  // namespace

const IndexKernels kIndexAvx512 = {.score = Score<16>};

}  // namespace millrace
