#include "engine/runtime/model_runner.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/config/parse.h"
#include "engine/weights/checkpoint_source.h"
#include "engine/weights/dummy_source.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

absl::Status CheckConfig(const RunnerConfig& c) {
  const auto bad = [](const char* field, int64_t value, const char* want) {
    return absl::InvalidArgumentError(absl::StrCat(field, " = ", value, ", want ", want));
  };
  if (c.dtype != DType::kF32 && c.dtype != DType::kBF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype ", std::string(DTypeName(c.dtype)), ", want float32 or bfloat16"));
  }
  if (c.kv_dtype != DType::kF32 && c.kv_dtype != DType::kBF16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kv cache dtype ", std::string(DTypeName(c.kv_dtype)), ", want float32 or bfloat16"));
  }
  if (c.page_tokens < 1) return bad("page_tokens", c.page_tokens, "at least 1");
  if (c.max_num_seqs < 1) return bad("max_num_seqs", c.max_num_seqs, "at least 1");
  if (c.max_model_len < 1) return bad("max_model_len", c.max_model_len, "at least 1");
  if (c.max_num_batched_tokens < c.max_num_seqs) {
    return bad("max_num_batched_tokens", c.max_num_batched_tokens, "at least max_num_seqs");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WeightSource>> OpenWeights(const RunnerConfig& config,
                                                          const ModelConfig& model) {
  if (config.load_format == LoadFormat::kDummy) {
    return std::unique_ptr<WeightSource>(std::make_unique<DummySource>(model, config.seed));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<CheckpointSource> source,
                   CheckpointSource::Open(config.model_dir));
  return std::unique_ptr<WeightSource>(std::move(source));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(const RunnerConfig& config,
                                                                 Device& device, Communicator& comm,
                                                                 const LoadProgress& progress) {
  RETURN_IF_ERROR(CheckConfig(config));
  std::unique_ptr<ModelRunner> runner(new ModelRunner(config, device, comm));
  ASSIGN_OR_RETURN(runner->stream_, device.CreateStream());
  RETURN_IF_ERROR(runner->Load(progress));
  RETURN_IF_ERROR(runner->AllocateBuffers());
  return runner;
}

ModelRunner::~ModelRunner() { device_.DestroyStream(stream_); }

absl::Status ModelRunner::Load(const LoadProgress& progress) {
  ASSIGN_OR_RETURN(model_config_, LoadModelConfig(config_.model_dir));
  const ModelPlacement placement = {.weight_dtype = config_.dtype,
                                    .kv_dtype = config_.kv_dtype,
                                    .rank = comm_.rank(),
                                    .size = comm_.size()};
  ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> source, OpenWeights(config_, model_config_));
  ASSIGN_OR_RETURN(loaded_, LoadModel(model_config_, placement, *source, device_, progress));
  return loaded_.model->cache_spec().Validate(config_.page_tokens);
}

PlanLimits ModelRunner::Limits(int32_t num_pages) const {
  return {.max_num_seqs = config_.max_num_seqs,
          .max_num_batched_tokens = config_.max_num_batched_tokens,
          .max_model_len = config_.max_model_len,
          .page_tokens = config_.page_tokens,
          .num_pages = num_pages,
          .vocab_size = model_config_.vocab_size};
}

absl::Status ModelRunner::AllocateBuffers() {
  const Model& model = *loaded_.model;
  const PlanLimits limits = Limits(/*num_pages=*/0);
  const int64_t tokens = limits.max_num_batched_tokens;
  const DType dtype = ActivationDType(device_.type());
  ASSIGN_OR_RETURN(hidden_memory_,
                   device_.Allocate(tokens * model.hidden_size() * DTypeBytes(dtype)));
  hidden_ =
      TensorView::Of(hidden_memory_.data(), dtype, {tokens, model.hidden_size()}, device_.type());
  ASSIGN_OR_RETURN(samples_memory_, device_.Allocate(limits.max_num_seqs * 4));
  samples_ =
      TensorView::Of(samples_memory_.data(), DType::kI32, {limits.max_num_seqs}, device_.type());
  ASSIGN_OR_RETURN(batch_, StepBatch::Create(limits, device_));
  ASSIGN_OR_RETURN(outputs_, StepOutputs::Create(model, limits, device_));

  const LargestStep step = {
      .tokens = tokens, .sequences = limits.max_num_seqs, .logit_rows = outputs_->max_rows()};
  ASSIGN_OR_RETURN(attention_target_, PagedAttentionTargetOf(device_));
  const int64_t plan_bytes = model.AttentionPlanBytes(attention_target_, step);
  ASSIGN_OR_RETURN(attention_plan_memory_, device_.Allocate(plan_bytes));
  attention_plan_staging_.resize(static_cast<size_t>(plan_bytes));
  const int64_t bytes =
      std::max(model.WorkspaceBytes(device_, step), outputs_->WorkspaceBytes(device_));
  ASSIGN_OR_RETURN(workspace_memory_, device_.Allocate(bytes));
  workspace_ = Workspace(workspace_memory_.data(), bytes);
  return absl::OkStatus();
}

absl::StatusOr<RankMemory> ModelRunner::memory() const {
  ASSIGN_OR_RETURN(const DeviceProperties properties, device_.Properties());
  return RankMemory{
      .weight_bytes = loaded_.weight_bytes,
      .workspace_bytes = workspace_memory_.bytes() + hidden_memory_.bytes() +
                         samples_memory_.bytes() + attention_plan_memory_.bytes() +
                         batch_->bytes() + outputs_->bytes(),
      .bytes_per_page = loaded_.model->cache_spec().bytes_per_page(config_.page_tokens),
      .available_bytes = properties.free_bytes};
}

absl::Status ModelRunner::AllocateCache(int32_t num_pages) {
  if (cache_.has_value()) return absl::FailedPreconditionError("the KV cache is allocated already");
  ASSIGN_OR_RETURN(cache_, KvCache::Allocate(loaded_.model->cache_spec(), config_.page_tokens,
                                             num_pages, device_));
  slots_.emplace(Limits(num_pages));
  return absl::OkStatus();
}

absl::StatusOr<StepResult> ModelRunner::Step(const StepPlan& plan) {
  if (!cache_.has_value()) {
    return absl::FailedPreconditionError("a step before the KV cache was allocated");
  }
  RETURN_IF_ERROR(slots_->Validate(plan));
  slots_->Apply(plan);

  const OpContext op = {.device = device_, .stream = stream_, .workspace = workspace_};
  ForwardContext ctx = {
      .op = op, .comm = comm_, .cache = *cache_, .attention_plan = attention_plan_};
  ASSIGN_OR_RETURN(ForwardBatch batch, batch_->Pack(plan, *slots_, stream_));
  RETURN_IF_ERROR(PlanAttention(batch));
  const TensorView hidden = hidden_.Rows(0, batch.num_tokens());
  RETURN_IF_ERROR(loaded_.model->Forward(ctx, batch, hidden));
  ASSIGN_OR_RETURN(StepResult result, outputs_->Compute(ctx, plan, *slots_, hidden));
  RETURN_IF_ERROR(ShareSamples(plan, result));
  return result;
}

absl::Status ModelRunner::PlanAttention(ForwardBatch& batch) {
  RETURN_IF_ERROR(loaded_.model->PlanAttention(attention_target_, batch, attention_plan_));
  const int64_t bytes = attention_plan_.layout.bytes;
  if (bytes == 0) return absl::OkStatus();
  WritePagedAttentionPlan(attention_plan_, attention_plan_staging_.data());
  batch.attention_plan_data =
      TensorView::Of(attention_plan_memory_.data(), DType::kU8, {bytes}, device_.type());
  return device_.Copy(attention_plan_memory_.data(), attention_plan_staging_.data(), bytes,
                      CopyKind::kHostToDevice, stream_);
}

absl::Status ModelRunner::ShareSamples(const StepPlan& plan, StepResult& result) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    if (plan.sequences[i].sample) ids.push_back(result.sequences[i].token);
  }
  if (ids.empty()) return absl::OkStatus();
  const int64_t count = static_cast<int64_t>(ids.size());
  if (comm_.size() > 1) {
    const TensorView samples = samples_.Rows(0, count);
    RETURN_IF_ERROR(
        device_.Copy(samples.data, ids.data(), count * 4, CopyKind::kHostToDevice, stream_));
    RETURN_IF_ERROR(comm_.Broadcast(samples, /*root=*/0, stream_));
    RETURN_IF_ERROR(
        device_.Copy(ids.data(), samples.data, count * 4, CopyKind::kDeviceToHost, stream_));
    RETURN_IF_ERROR(device_.Synchronize(stream_));
  }
  size_t next = 0;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    if (!plan.sequences[i].sample) continue;
    const int32_t id = ids[next++];
    result.sequences[i].token = id;
    result.sequences[i].numeric_fault |= id < 0;
    slots_->RecordSample(plan.sequences[i].slot, id);
  }
  return absl::OkStatus();
}

}  // namespace millrace
