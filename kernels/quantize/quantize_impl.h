// The rows of Quantize's device table.
#ifndef KERNELS_QUANTIZE_QUANTIZE_IMPL_H_
#define KERNELS_QUANTIZE_QUANTIZE_IMPL_H_

#include "kernels/quantize/quantize.h"

namespace millrace {

absl::Status QuantizeCpu(const OpContext& ctx, const QuantizeArgs& args);
absl::Status QuantizeCuda(const OpContext& ctx, const QuantizeArgs& args);

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_QUANTIZE_IMPL_H_
