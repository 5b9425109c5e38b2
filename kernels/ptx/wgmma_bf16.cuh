// Warpgroup matrix products of bf16 with f32 sums (sm_90a): see wgmma_16bit.inc.cuh.
#ifndef KERNELS_PTX_WGMMA_BF16_CUH_
#define KERNELS_PTX_WGMMA_BF16_CUH_

#include <cstdint>

#include "kernels/ptx/wgmma.cuh"

namespace millrace {

#define MILLRACE_WGMMA WgmmaBf16
#define MILLRACE_WGMMA_TYPES "bf16.bf16"
#include "kernels/ptx/wgmma_16bit.inc.cuh"
#undef MILLRACE_WGMMA
#undef MILLRACE_WGMMA_TYPES

}  // namespace millrace

#endif  // KERNELS_PTX_WGMMA_BF16_CUH_
