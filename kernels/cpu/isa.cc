#include "kernels/cpu/isa.h"

namespace millrace {

#if defined(__x86_64__)

CpuIsa DetectIsa() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CpuIsa::kScalar;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return avx512 ? CpuIsa::kAvx512 : CpuIsa::kAvx2;
}

bool HasAvx512Bf16() {
  return DetectIsa() == CpuIsa::kAvx512 && __builtin_cpu_supports("avx512bf16");
}

#else

CpuIsa DetectIsa() { return CpuIsa::kScalar; }
bool HasAvx512Bf16() { return false; }

#endif

}  // namespace millrace
