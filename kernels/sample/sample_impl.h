// The rows of the device tables of Sample and TokenLogprobs.
#ifndef KERNELS_SAMPLE_SAMPLE_IMPL_H_
#define KERNELS_SAMPLE_SAMPLE_IMPL_H_

#include "kernels/sample/sample.h"

namespace millrace {

absl::Status SampleCpu(const OpContext& ctx, const SampleArgs& args);
absl::Status TokenLogprobsCpu(const OpContext& ctx, const TokenLogprobsArgs& args);
int64_t SampleCpuWorkspaceBytes(Device& device, int64_t max_rows, int64_t vocabulary);

absl::Status SampleCuda(const OpContext& ctx, const SampleArgs& args);
absl::Status TokenLogprobsCuda(const OpContext& ctx, const TokenLogprobsArgs& args);
int64_t SampleCudaWorkspaceBytes(int64_t max_rows, int64_t vocabulary);

}  // namespace millrace

#endif  // KERNELS_SAMPLE_SAMPLE_IMPL_H_
