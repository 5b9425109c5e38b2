#include "kernels/rope/rope_impl.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {
#include "kernels/rope/rotation_cpu.h"
// After the rotation, which it uses.
#include "kernels/rope/rope_cpu_tokens.h"
}  // namespace

const RopeKernels kRopeAvx2 = {RotateTokens<8, float>, RotateTokens<8, BFloat16>};

}  // namespace millrace
