#include <cstring>

#include "kernels/rope/rotation.h"
#include "kernels/rope_append/rope_append_impl.h"
#include "kernels/simd/e4m3.h"

namespace millrace {
namespace {
#include "kernels/kv_append/copy_row_cpu.h"
#include "kernels/rope/rotation_cpu.h"
// After both, which it uses.
#include "kernels/rope_append/rope_append_cpu_tokens.h"
}  // namespace

const RopeAppendKernels kRopeAppendAvx2 = {
    {RotateAndAppend<8, float, float>, RotateAndAppend<8, float, BFloat16>,
     RotateAndAppend<8, float, E4M3>},
    {RotateAndAppend<8, BFloat16, float>, RotateAndAppend<8, BFloat16, BFloat16>,
     RotateAndAppend<8, BFloat16, E4M3>},
};

}  // namespace millrace
