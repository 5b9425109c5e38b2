#include "kernels/core/dtype.h"
#include "kernels/paged_attention/paged_attention_cpu_tile.h"
#include "kernels/simd/e4m3.h"

namespace millrace {
namespace {
#include "kernels/paged_attention/paged_attention_cpu_attend.h"
}  // namespace

const AttentionKernels kAttentionAvx2 = kKernels<8>;

}  // namespace millrace
