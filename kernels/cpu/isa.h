// Which x86 vector extensions the CPU kernels may use. Detected once, then passed explicitly (the
// ThreadPool holds it), so that a test can run every variant that its machine has.
#ifndef KERNELS_CPU_ISA_H_
#define KERNELS_CPU_ISA_H_

#include <cstdint>
#include <string_view>

namespace millrace {

// Ordered: a machine that has one has all those before it.
enum class CpuIsa : uint8_t {
  kScalar,  // whatever the compiler's baseline is
  kAvx2,    // AVX2 and FMA
  kAvx512,  // AVX-512 F, BW, VL and DQ, besides AVX2 and FMA
};

// The best of this machine; kScalar on other architectures.
CpuIsa DetectIsa();

// True when the machine multiplies bf16 pairs natively (AVX512_BF16). Implies kAvx512.
bool HasAvx512Bf16();

constexpr std::string_view IsaName(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
      return "scalar";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
  }
  return "?";
}

}  // namespace millrace

#endif  // KERNELS_CPU_ISA_H_
