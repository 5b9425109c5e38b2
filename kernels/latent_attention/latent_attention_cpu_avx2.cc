#include "kernels/core/dtype.h"
#include "kernels/latent_attention/latent_attention_cpu_tile.h"
#include "kernels/latent_cache/latent_row.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/latent_attention/latent_attention_cpu_attend.h"
}  // namespace

const LatentKernels kLatentAvx2 = kKernels<8>;

}  // namespace millrace
