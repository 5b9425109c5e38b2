// One of a kernel's builds, of which there is one an instruction set.
#ifndef KERNELS_CPU_ISA_CHOICE_H_
#define KERNELS_CPU_ISA_CHOICE_H_

#include "kernels/cpu/isa.h"

namespace millrace {

// A reference to one of the three, which outlive it.
template <typename T>
const T& ForIsa(CpuIsa isa, const T& scalar, const T& avx2, const T& avx512) {
  switch (isa) {
    case CpuIsa::kAvx512:
      return avx512;
    case CpuIsa::kAvx2:
      return avx2;
    case CpuIsa::kScalar:
      break;
  }
  return scalar;
}

}  // namespace millrace

#endif  // KERNELS_CPU_ISA_CHOICE_H_
