#include <cstdint>
#include <limits>
#include <string>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/sample/sample_impl.h"
#include "kernels/sample/sample_kernel.h"

namespace millrace {
namespace {

// Plans of an H200 and of an A100.
constexpr SampleDevice kH200 = {.compute_capability = 90, .multiprocessors = 132};
static_assert(PlanSample(1, 128256, kH200).cluster == 16);
static_assert(PlanSample(8, 128256, kH200).cluster == 8);
static_assert(PlanSample(32, 128256, kH200).cluster == 2);
static_assert(PlanSample(64, 128256, kH200).register_tiles == kSampleRegisterTiles);
static_assert(PlanSample(64, 151936, kH200).cluster == 4);
static_assert(PlanSample(1, 100, kH200).cluster == 1);
static_assert(PlanSample(1, 100, kH200).staged);
static_assert(!PlanSample(1, 2000000, kH200).staged);
static_assert(!PlanSample(1, 128256, {.compute_capability = 80, .multiprocessors = 108}).staged);

absl::StatusOr<SampleDevice> CurrentDevice() {
  int ordinal = 0, major = 0, minor = 0;
  SampleDevice device;
  RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&ordinal), "cudaGetDevice"));
  const auto get = [ordinal](int* to, cudaDeviceAttr attribute) {
    return CudaStatus(cudaDeviceGetAttribute(to, attribute, ordinal), "cudaDeviceGetAttribute");
  };
  RETURN_IF_ERROR(get(&major, cudaDevAttrComputeCapabilityMajor));
  RETURN_IF_ERROR(get(&minor, cudaDevAttrComputeCapabilityMinor));
  RETURN_IF_ERROR(get(&device.multiprocessors, cudaDevAttrMultiProcessorCount));
  device.compute_capability = major * 10 + minor;
  return device;
}

absl::StatusOr<SamplePlan> PlanFor(const char* op, const TensorView& logits) {
  constexpr int64_t kMaxRows = 65535;  // gridDim.y
  if (logits.dim(0) > kMaxRows || logits.dim(1) > std::numeric_limits<int32_t>::max() / 2) {
    return absl::UnimplementedError(std::string(op) + ": more than 65535 rows, or 2^30 logits");
  }
  ASSIGN_OR_RETURN(const SampleDevice device, CurrentDevice());
  return PlanSample(logits.dim(0), logits.dim(1), device);
}

}  // namespace

absl::Status SampleCuda(const OpContext& ctx, const SampleArgs& args) {
  ASSIGN_OR_RETURN(const SamplePlan plan, PlanFor("Sample", args.logits));
  const int64_t rows = args.logits.dim(0), vocabulary = args.logits.dim(1);
  WorkspaceScope workspace(ctx.workspace);
  void* changed = nullptr;
  if (!plan.staged) {
    ASSIGN_OR_RETURN(changed, workspace.Take(rows * vocabulary * 4));
  }
  const SampleKernelArgs kernel_args = {
      .logits = args.logits.as<float>(),
      .logits_stride = args.logits.stride(0),
      .rows = args.rows,
      .changed = static_cast<float*>(changed),
      .ids = args.ids.as<int32_t>(),
      .flags = args.flags.as<int32_t>(),
      .logprob = args.logprob.as<float>(),
      .top_ids = args.top_ids.as<int32_t>(),
      .top_ids_stride = args.top_ids.stride(0),
      .top_logprobs = args.top_logprobs.as<float>(),
      .top_logprobs_stride = args.top_logprobs.stride(0),
      .last_tokens = args.last_tokens ? args.last_tokens->as<int32_t>() : nullptr,
      .slots = args.last_tokens ? args.last_tokens->dim(0) : 0,
      .num_rows = static_cast<int32_t>(rows),
      .vocabulary = static_cast<int32_t>(vocabulary),
      .tiles = plan.tiles};
  return CudaStatus(LaunchSample(plan, kernel_args, ToCuda(ctx.stream)), "Sample");
}

absl::Status TokenLogprobsCuda(const OpContext& ctx, const TokenLogprobsArgs& args) {
  ASSIGN_OR_RETURN(const SamplePlan plan, PlanFor("TokenLogprobs", args.logits));
  const TokenLogprobsKernelArgs kernel_args = {
      .logits = args.logits.as<float>(),
      .logits_stride = args.logits.stride(0),
      .targets = args.targets.as<int32_t>(),
      .logprob = args.logprob.as<float>(),
      .rank = args.rank.as<int32_t>(),
      .top_ids = args.top_ids.as<int32_t>(),
      .top_ids_stride = args.top_ids.stride(0),
      .top_logprobs = args.top_logprobs.as<float>(),
      .top_logprobs_stride = args.top_logprobs.stride(0),
      .top = static_cast<int32_t>(args.top_ids.dim(1)),
      .num_rows = static_cast<int32_t>(args.logits.dim(0)),
      .vocabulary = static_cast<int32_t>(args.logits.dim(1)),
      .tiles = plan.tiles};
  return CudaStatus(LaunchTokenLogprobs(plan, kernel_args, ToCuda(ctx.stream)), "TokenLogprobs");
}

int64_t SampleCudaWorkspaceBytes(int64_t max_rows, int64_t vocabulary) {
  const absl::StatusOr<SampleDevice> device = CurrentDevice();
  const bool staged = device.ok() && PlanSample(max_rows, vocabulary, *device).staged;
  return staged ? 0 : max_rows * vocabulary * 4 + 256;
}

}  // namespace millrace
