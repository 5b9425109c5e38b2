// The other order of the PDL rule, for short kernels beside products of few tokens.
#ifndef KERNELS_PTX_EARLY_START_CUH_
#define KERNELS_PTX_EARLY_START_CUH_

#include "kernels/ptx/pdl.cuh"

namespace millrace {

// Grids up to here start the next one early. With more tokens the products keep large rings in
// shared memory; kernels that start while these still stand get a small L1 with it, which costs
// those that load straight to registers more than they win.
inline constexpr int kEarlyBlocks = 8;

// First in a kernel that then waits and starts the next grid as every kernel does: in a grid of few
// blocks lets the next one come into place already beside the kernel ahead of this one (README.md,
// early kernels). Nothing may have been written before.
__device__ __forceinline__ void StartNextGridEarly() {
  if (gridDim.x * gridDim.y * gridDim.z <= kEarlyBlocks) StartNextGrid();
}

}  // namespace millrace

#endif  // KERNELS_PTX_EARLY_START_CUH_
