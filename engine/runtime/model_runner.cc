#include "engine/runtime/model_runner.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/config/parse.h"
#include "engine/weights/checkpoint_source.h"
#include "engine/weights/dummy_source.h"
#include "kernels/core/check.h"
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
  if (c.kv_dtype != DType::kF32 && c.kv_dtype != DType::kBF16 && c.kv_dtype != DType::kU8) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kv cache dtype ", std::string(DTypeName(c.kv_dtype)), ", want float32, bfloat16 or fp8"));
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
                                                                 Device& device,
                                                                 const RankGroups& groups,
                                                                 const LoadProgress& progress) {
  RETURN_IF_ERROR(CheckConfig(config));
  MR_CHECK_EQ(groups.data_parallel_size(), config.data_parallel_size);
  std::unique_ptr<ModelRunner> runner(new ModelRunner(config, device, groups));
  ASSIGN_OR_RETURN(runner->stream_, device.CreateStream());
  RETURN_IF_ERROR(runner->Load(progress));
  RETURN_IF_ERROR(runner->AllocateBuffers());
  RETURN_IF_ERROR(runner->MeasureGraphs());
  return runner;
}

ModelRunner::~ModelRunner() {
  // What is still running uses the memory that goes now; an error of it changes nothing here.
  (void)device_.Synchronize(stream_);
  device_.DestroyStream(stream_);
}

absl::Status ModelRunner::Load(const LoadProgress& progress) {
  ASSIGN_OR_RETURN(model_config_, LoadModelConfig(config_.model_dir));
  const ModelPlacement placement = {.weight_dtype = config_.dtype,
                                    .kv_dtype = config_.kv_dtype,
                                    .numerics = config_.numerics,
                                    .quantize = config_.quantize,
                                    .expert_parallel = config_.expert_parallel,
                                    .rank = comm_.rank(),
                                    .size = comm_.size(),
                                    .world_rank = groups_.world.rank(),
                                    .world_size = groups_.world.size()};
  ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> source, OpenWeights(config_, model_config_));
  const auto check = [this](const LoadedModel& planned) -> absl::Status {
    RETURN_IF_ERROR(CheckRoom(planned));
    // Nobody takes of the memory before all have seen how much there is.
    return groups_.sharing_memory > 1 ? groups_.world.Barrier(stream_) : absl::OkStatus();
  };
  const LoadHooks hooks = {.check = check, .progress = progress};
  ASSIGN_OR_RETURN(loaded_, LoadModel(model_config_, placement, *source, device_, hooks));
  return absl::OkStatus();
}

absl::Status ModelRunner::CheckRoom(const LoadedModel& planned) const {
  const CacheSpec& spec = planned.model->cache_spec();
  RETURN_IF_ERROR(spec.Validate(config_.page_tokens));
  ASSIGN_OR_RETURN(const DeviceProperties properties, device_.Properties());
  const LargestStep step = Largest(/*logit_rows=*/config_.max_num_seqs);
  const int64_t activations =
      planned.model->WorkspaceBytes(device_, step) +
      step.tokens * planned.model->hidden_size() * DTypeBytes(ActivationDType(device_.type())) +
      spec.bytes_per_slot() * config_.max_num_seqs;
  const int64_t pages =
      config_.fit_model_len ? 1 : Limits(/*num_pages=*/0).max_pages_per_sequence();
  const int64_t cache = pages * spec.bytes_per_page(config_.page_tokens);
  const int64_t needed = planned.weight_bytes + activations + cache;
  const int32_t sharing = groups_.sharing_memory;
  if (needed <= properties.free_bytes / sharing) return absl::OkStatus();
  const auto gib = [](int64_t bytes) {
    return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (int64_t{1} << 30));
  };
  return absl::ResourceExhaustedError(absl::StrCat(
      "the model needs ", gib(needed), " of memory on this rank (of ", groups_.world.size(),
      ") and ", gib(properties.free_bytes), " are available",
      sharing > 1 ? absl::StrCat(" to ", sharing, " ranks") : "", " (", properties.name,
      "): weights ", gib(planned.weight_bytes), ", activations ", gib(activations),
      ", cache of one sequence ", gib(cache), ". Raise --tensor-parallel-size (now ", comm_.size(),
      ") to split the weights, lower --max-num-batched-tokens (now ",
      config_.max_num_batched_tokens, ") for the activations, or --max-model-len (now ",
      config_.max_model_len, ") for the cache"));
}

LargestStep ModelRunner::Largest(int64_t logit_rows) const {
  const PlanLimits limits = Limits(/*num_pages=*/0);
  return {.tokens = limits.max_num_batched_tokens,
          .sequences = limits.max_num_seqs,
          .logit_rows = logit_rows,
          .sequence_tokens = int64_t{limits.max_pages_per_sequence()} * limits.page_tokens};
}

PlanLimits ModelRunner::Limits(int32_t num_pages) const {
  return {.max_num_seqs = config_.max_num_seqs,
          .max_num_batched_tokens = config_.max_num_batched_tokens,
          .max_model_len = config_.max_model_len,
          .page_tokens = config_.page_tokens,
          .num_pages = num_pages,
          .vocab_size = model_config_.vocab_size,
          .may_idle = config_.data_parallel_size > 1};
}

KvCache::Size ModelRunner::CacheSize(int32_t num_pages) const {
  return {.page_tokens = config_.page_tokens,
          .num_pages = num_pages,
          .num_slots = config_.max_num_seqs};
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
  sample_rows_.emplace(device_);
  ASSIGN_OR_RETURN(outputs_, StepOutputs::Create(model, limits, device_, LogitsBytes()));

  const LargestStep step = Largest(outputs_->max_rows());
  ASSIGN_OR_RETURN(attention_target_, PagedAttentionTargetOf(device_));
  ASSIGN_OR_RETURN(staging_,
                   StepStaging::Create(
                       PackedBytes(LargestShape(limits)) +
                           StepStaging::Rounded(limits.max_num_seqs * int64_t{sizeof(SampleRow)}) +
                           StepStaging::Rounded(model.AttentionPlanBytes(attention_target_, step)),
                       device_));
  const int64_t bytes =
      std::max(model.WorkspaceBytes(device_, step), outputs_->WorkspaceBytes(device_));
  ASSIGN_OR_RETURN(workspace_memory_, device_.Allocate(bytes));
  workspace_ = Workspace(workspace_memory_.data(), bytes);
  return absl::OkStatus();
}

// A decode step's logits are one chunk on CUDA, so that a graph can hold it.
int64_t ModelRunner::LogitsBytes() const {
  if (device_.type() == DeviceType::kCpu) return StepOutputs::kDefaultLogitsBytes;
  const int64_t row = loaded_.model->vocab_size() * DTypeBytes(DType::kF32);
  return std::max(StepOutputs::kDefaultLogitsBytes, row * config_.max_num_seqs);
}

absl::StatusOr<RankMemory> ModelRunner::memory() const {
  ASSIGN_OR_RETURN(const DeviceProperties properties, device_.Properties());
  const CacheSpec& spec = loaded_.model->cache_spec();
  // Allocated with the pages, but of a size that does not depend on them.
  const int64_t slot_bytes = spec.bytes_per_slot() * config_.max_num_seqs;
  return RankMemory{
      .weight_bytes = loaded_.weight_bytes,
      .workspace_bytes = workspace_memory_.bytes() + hidden_memory_.bytes() +
                         samples_memory_.bytes() + staging_->bytes() + outputs_->bytes() +
                         graph_bytes_ + slot_bytes,
      .bytes_per_page = spec.bytes_per_page(config_.page_tokens),
      .available_bytes = std::max<int64_t>(0, properties.free_bytes - graph_bytes_ - slot_bytes),
      .skipped_tensors = loaded_.skipped_tensors};
}

absl::Status ModelRunner::AllocateCache(int32_t num_pages, const DecodeGraphs::Progress& progress) {
  if (cache_.has_value()) return absl::FailedPreconditionError("the KV cache is allocated already");
  ASSIGN_OR_RETURN(cache_,
                   KvCache::Allocate(loaded_.model->cache_spec(), CacheSize(num_pages), device_));
  slots_.emplace(Limits(num_pages));
  return CaptureGraphs(GraphSizes(), *cache_, progress, graphs_);
}

std::vector<int32_t> ModelRunner::GraphSizes() const {
  // Groups have batches of different sizes, and a captured exchange one.
  if (!device_.has_graphs() || config_.enforce_eager || config_.data_parallel_size > 1) return {};
  std::vector<int32_t> sizes = config_.cuda_graph_sizes;
  if (sizes.empty()) sizes = DefaultGraphSizes(config_.max_num_seqs);
  const int32_t most =
      static_cast<int32_t>(std::min<int64_t>(config_.max_num_seqs, outputs_->max_rows()));
  std::erase_if(sizes, [most](int32_t size) { return size < 1 || size > most; });
  return sizes;
}

absl::Status ModelRunner::MeasureGraphs() {
  const std::vector<int32_t> sizes = GraphSizes();
  if (sizes.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const KvCache cache,
                   KvCache::Allocate(loaded_.model->cache_spec(), CacheSize(1), device_));
  const int32_t largest[] = {*std::max_element(sizes.begin(), sizes.end())};
  DecodeGraphs warm_up;  // libraries take memory of their own at their first use
  RETURN_IF_ERROR(CaptureGraphs(largest, cache, {}, warm_up));
  ASSIGN_OR_RETURN(const DeviceProperties before, device_.Properties());
  DecodeGraphs one;
  RETURN_IF_ERROR(CaptureGraphs(largest, cache, {}, one));
  ASSIGN_OR_RETURN(const DeviceProperties after, device_.Properties());
  graph_bytes_ = std::max<int64_t>(0, before.free_bytes - after.free_bytes) *
                 static_cast<int64_t>(sizes.size());
  return absl::OkStatus();
}

BatchShape ModelRunner::DecodeShape(int32_t size) const {
  return {.tokens = size,
          .sequences = size,
          .table_pages = Limits(/*num_pages=*/0).max_pages_per_sequence()};
}

absl::Status ModelRunner::CaptureGraphs(absl::Span<const int32_t> sizes, const KvCache& cache,
                                        const DecodeGraphs::Progress& progress,
                                        DecodeGraphs& graphs) {
  std::vector<int32_t> order(sizes.begin(), sizes.end());
  std::sort(order.rbegin(), order.rend());  // what the smaller ones need is there then
  for (size_t i = 0; i < order.size(); ++i) {
    ASSIGN_OR_RETURN(const Staged step, StageWarmUp(order[i]));
    RETURN_IF_ERROR(
        graphs.Add(order[i], device_, stream_, [&] { return EnqueueDecode(cache, step); }));
    if (progress) progress(static_cast<int32_t>(i) + 1, static_cast<int32_t>(order.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelRunner::Staged> ModelRunner::Stage(const StepPlan& plan,
                                                       const BatchShape& shape,
                                                       int64_t padded_rows) {
  std::vector<const SequencePlan*> sampling;
  for (const SequencePlan& s : plan.sequences) {
    if (s.sample) sampling.push_back(&s);
  }
  staging_->Begin();
  Staged step;
  step.batch = PackStep(plan, *slots_, shape, device_.type(), *staging_);
  const int64_t rows = std::max(padded_rows, static_cast<int64_t>(sampling.size()));
  const StepStaging::Block block = staging_->Take(rows * int64_t{sizeof(SampleRow)});
  RETURN_IF_ERROR(sample_rows_->Fill(sampling, *slots_, rows, block, stream_));
  step.rows = reinterpret_cast<const SampleRow*>(block.device);
  RETURN_IF_ERROR(StagePlanAndFlush(step.batch));
  return step;
}

absl::StatusOr<ModelRunner::Staged> ModelRunner::StageWarmUp(int32_t size) {
  staging_->Begin();
  Staged step;
  step.batch = PackWarmUp(DecodeShape(size), device_.type(), *staging_);
  const StepStaging::Block block = staging_->Take(size * int64_t{sizeof(SampleRow)});
  RETURN_IF_ERROR(sample_rows_->Fill({}, SlotTable(Limits(/*num_pages=*/1)), size, block, stream_));
  step.rows = reinterpret_cast<const SampleRow*>(block.device);
  RETURN_IF_ERROR(StagePlanAndFlush(step.batch));
  return step;
}

absl::Status ModelRunner::StagePlanAndFlush(ForwardBatch& batch) {
  batch.last_tokens = outputs_->last_tokens();
  RETURN_IF_ERROR(loaded_.model->PlanAttention(attention_target_, batch, attention_plan_));
  const int64_t bytes = attention_plan_.layout.bytes;
  const int64_t room = loaded_.model->AttentionPlanBytes(
      attention_target_, {.tokens = batch.num_tokens(),
                          .sequences = static_cast<int64_t>(batch.host_kv_len.size()),
                          .logit_rows = 0,
                          .sequence_tokens = config_.max_model_len});
  const StepStaging::Block block = staging_->Take(room);
  if (bytes > 0) WritePagedAttentionPlan(attention_plan_, block.host);
  batch.attention_plan_data = TensorView::Of(block.device, DType::kU8, {room}, device_.type());
  return staging_->Flush(bytes, stream_);
}

absl::Status ModelRunner::CheckGroups(const StepPlan& plan) const {
  for (const SequencePlan& s : plan.sequences) {
    if (s.group < 0 || s.group >= config_.data_parallel_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "step ", plan.step, ": group ", s.group, ", want 0 to ", config_.data_parallel_size - 1));
    }
  }
  return absl::OkStatus();
}

StepPlan ModelRunner::OwnPart(const StepPlan& plan) const {
  StepPlan own = {.step = plan.step, .sequences = {}};
  for (const SequencePlan& s : plan.sequences) {
    if (s.group == groups_.data_parallel_rank()) own.sequences.push_back(s);
  }
  return own;
}

absl::Status ModelRunner::Launch(const StepPlan& whole) {
  if (!cache_.has_value()) {
    return absl::FailedPreconditionError("a step before the KV cache was allocated");
  }
  if (in_flight() >= kStepsInFlight) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", whole.step, ": ", in_flight(), " steps wait to be collected"));
  }
  RETURN_IF_ERROR(CheckGroups(whole));
  std::optional<StepPlan> own;
  if (config_.data_parallel_size > 1) own = OwnPart(whole);
  const StepPlan& plan = own.has_value() ? *own : whole;
  RETURN_IF_ERROR(slots_->Validate(plan));
  if (NeedsRecords(plan)) RETURN_IF_ERROR(FinishAll());
  slots_->Apply(plan);

  Launched step;
  for (const SequencePlan& s : plan.sequences) {
    step.sequences.push_back(slots_->slot(s.slot).sequence);
    step.samples.push_back(s.sample);
  }
  const int32_t size = graphs_.SizeFor(plan);
  ASSIGN_OR_RETURN(step.pending, size > 0 ? LaunchGraph(plan, size) : LaunchEager(plan));
  if (device_.type() == DeviceType::kCpu) {
    step.pending.result = outputs_->Finish(std::move(step.pending));
    RETURN_IF_ERROR(ShareSamples(step));
    Record(step);
  } else {
    ASSIGN_OR_RETURN(step.done, device_.CreateEvent());
    RETURN_IF_ERROR(device_.Record(step.done, stream_));
  }
  launched_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<PendingOutputs> ModelRunner::LaunchEager(const StepPlan& plan) {
  PendingOutputs idle;
  idle.result.step = plan.step;
  if (plan.sequences.empty() && !JoinsIdleSteps()) return idle;
  ASSIGN_OR_RETURN(const Staged step, Stage(plan, ShapeOf(plan, *slots_), /*padded_rows=*/0));
  const OpContext op = Op();
  ForwardContext ctx = {.op = op,
                        .comm = comm_,
                        .cache = *cache_,
                        .attention_plan = attention_plan_,
                        .world = config_.data_parallel_size > 1 ? &groups_.world : nullptr};
  const TensorView hidden = hidden_.Rows(0, step.batch.num_tokens());
  RETURN_IF_ERROR(loaded_.model->Forward(ctx, step.batch, hidden));
  if (plan.sequences.empty()) return idle;
  return outputs_->Enqueue(ctx, plan, *slots_, hidden, step.rows);
}

absl::StatusOr<PendingOutputs> ModelRunner::LaunchGraph(const StepPlan& plan, int32_t size) {
  RETURN_IF_ERROR(Stage(plan, DecodeShape(size), size).status());
  RETURN_IF_ERROR(graphs_.Launch(size, device_, stream_));
  return outputs_->EnqueueDecodeCopy(Op(), plan, *slots_);
}

absl::Status ModelRunner::EnqueueDecode(const KvCache& cache, const Staged& step) {
  const OpContext op = Op();
  ForwardContext ctx = {.op = op, .comm = comm_, .cache = cache, .attention_plan = attention_plan_};
  const TensorView hidden = hidden_.Rows(0, step.batch.num_tokens());
  RETURN_IF_ERROR(loaded_.model->Forward(ctx, step.batch, hidden));
  return outputs_->EnqueueDecode(ctx, hidden, step.rows);
}

bool ModelRunner::NeedsRecords(const StepPlan& plan) const {
  return std::any_of(plan.sequences.begin(), plan.sequences.end(), [&](const SequencePlan& s) {
    const Slot& slot = slots_->slot(s.slot);
    return !s.init.has_value() && slot.unrecorded > 0 && slot.sampling.has_penalties();
  });
}

absl::StatusOr<bool> ModelRunner::Ready() const {
  const Launched& oldest = launched_.front();
  if (oldest.finished) return true;
  return device_.IsDone(oldest.done);
}

absl::Status ModelRunner::FinishAll() {
  for (Launched& step : launched_) {
    if (step.finished) continue;
    RETURN_IF_ERROR(device_.Wait(step.done));
    step.pending.result = outputs_->Finish(std::move(step.pending));
    Record(step);
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> ModelRunner::Collect() {
  MR_CHECK(!launched_.empty());
  Launched& oldest = launched_.front();
  if (!oldest.finished) {
    RETURN_IF_ERROR(device_.Wait(oldest.done));
    oldest.pending.result = outputs_->Finish(std::move(oldest.pending));
    Record(oldest);
  }
  StepResult result = std::move(oldest.pending.result);
  launched_.pop_front();
  return result;
}

void ModelRunner::Record(Launched& step) {
  for (size_t i = 0; i < step.samples.size(); ++i) {
    if (!step.samples[i]) continue;
    const SequenceResult& s = step.pending.result.sequences[i];
    slots_->RecordSample(s.slot, step.sequences[i], s.token);
  }
  step.finished = true;
}

absl::Status ModelRunner::ShareSamples(Launched& step) {
  if (comm_.size() == 1) return absl::OkStatus();
  std::vector<SequenceResult*> sampled;
  std::vector<int32_t> ids;
  for (size_t i = 0; i < step.samples.size(); ++i) {
    if (!step.samples[i]) continue;
    sampled.push_back(&step.pending.result.sequences[i]);
    ids.push_back(sampled.back()->token);
  }
  if (ids.empty()) return absl::OkStatus();
  const int64_t count = static_cast<int64_t>(ids.size());
  const TensorView samples = samples_.Rows(0, count);
  RETURN_IF_ERROR(
      device_.Copy(samples.data, ids.data(), count * 4, CopyKind::kHostToDevice, stream_));
  RETURN_IF_ERROR(comm_.Broadcast(samples, /*root=*/0, stream_));
  RETURN_IF_ERROR(
      device_.Copy(ids.data(), samples.data, count * 4, CopyKind::kDeviceToHost, stream_));
  RETURN_IF_ERROR(device_.Synchronize(stream_));
  for (size_t i = 0; i < sampled.size(); ++i) {
    sampled[i]->token = ids[i];
    sampled[i]->numeric_fault |= ids[i] < 0;
  }
  return absl::OkStatus();
}

}  // namespace millrace
