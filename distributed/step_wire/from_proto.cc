#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/step_wire/step_wire.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int kMaxStopIds = 65536;
constexpr int kMaxBiases = 65536;

absl::Status OutOfRange(const char* field, int64_t value, int64_t low, int64_t high) {
  return absl::InvalidArgumentError(
      absl::StrCat("step message: ", field, " = ", value, ", want ", low, " to ", high));
}

absl::Status CheckRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return OutOfRange(field, value, low, high);
}

// Counts first, then values, then the copy.
template <typename Repeated>
absl::StatusOr<std::vector<int32_t>> ReadIds(const char* field, const Repeated& in,
                                             int64_t max_count, int64_t low, int64_t high) {
  RETURN_IF_ERROR(CheckRange(field, in.size(), 0, max_count));
  for (const int32_t value : in) RETURN_IF_ERROR(CheckRange(field, value, low, high));
  return std::vector<int32_t>(in.begin(), in.end());
}

class Reader final {
 public:
  explicit Reader(const StepLimits& limits)
      : limits_(limits),
        max_id_(limits.vocab_size > 0 ? limits.vocab_size - 1 : INT32_MAX),
        max_pages_(limits.num_pages) {}

  absl::StatusOr<SequencePlan> Plan(const worker::SequencePlan& in) const {
    SequencePlan out;
    RETURN_IF_ERROR(CheckRange("group", in.group(), 0, limits_.data_parallel_size - 1));
    out.group = in.group();
    RETURN_IF_ERROR(CheckRange("slot", in.slot(), 0, limits_.max_num_seqs - 1));
    out.slot = in.slot();
    if (in.has_init()) {
      ASSIGN_OR_RETURN(out.init, Init(in.init()));
    }
    ASSIGN_OR_RETURN(out.new_pages,
                     ReadIds("new_pages", in.new_pages(), max_pages_, 0, max_pages_ - 1));
    RETURN_IF_ERROR(CheckRange("position", in.position(), 0, limits_.max_model_len - 1));
    out.position = in.position();
    ASSIGN_OR_RETURN(out.tokens,
                     ReadIds("tokens", in.tokens(), limits_.max_num_batched_tokens, 0, max_id_));
    RETURN_IF_ERROR(CheckRange("position + tokens", int64_t{in.position()} + out.num_tokens(), 1,
                               limits_.max_model_len));
    out.sample = in.sample();
    out.prompt_logprobs = in.prompt_logprobs();
    ASSIGN_OR_RETURN(out.score_targets,
                     ReadIds("score_targets", in.score_targets(), out.num_tokens(), -1, max_id_));
    if (!out.score_targets.empty() || out.prompt_logprobs) {
      RETURN_IF_ERROR(
          CheckRange("score_targets", in.score_targets_size(), out.num_tokens(), out.num_tokens()));
    }
    ASSIGN_OR_RETURN(out.logits_rows, ReadIds("logits_rows", in.logits_rows(), out.num_tokens(), 0,
                                              out.num_tokens() - 1));
    return out;
  }

  absl::StatusOr<SequenceResult> Result(const worker::SequenceResult& in) const {
    SequenceResult out;
    RETURN_IF_ERROR(CheckRange("slot", in.slot(), 0, limits_.max_num_seqs - 1));
    out.slot = in.slot();
    RETURN_IF_ERROR(CheckRange("token", in.token(), -1, max_id_));
    out.token = in.token();
    out.numeric_fault = in.numeric_fault();
    if (in.has_logprobs()) {
      ASSIGN_OR_RETURN(out.logprobs, Scored(in.logprobs()));
    }
    RETURN_IF_ERROR(CheckRange("prompt_logprobs", in.prompt_logprobs_size(), 0,
                               limits_.max_num_batched_tokens));
    out.prompt_logprobs.reserve(static_cast<size_t>(in.prompt_logprobs_size()));
    for (const worker::ScoredToken& entry : in.prompt_logprobs()) {
      ASSIGN_OR_RETURN(ScoredToken token, Scored(entry));
      out.prompt_logprobs.push_back(std::move(token));
    }
    RETURN_IF_ERROR(CheckRange("logits", in.logits_size(), 0, limits_.max_num_batched_tokens));
    for (const worker::LogitsRow& row : in.logits()) {
      const int64_t width = limits_.vocab_size > 0 ? limits_.vocab_size : INT32_MAX;
      RETURN_IF_ERROR(
          CheckRange("logits row", row.values_size(), limits_.vocab_size > 0 ? width : 0, width));
      out.logits.emplace_back(row.values().begin(), row.values().end());
    }
    return out;
  }

 private:
  absl::StatusOr<SlotInit> Init(const worker::SlotInit& in) const {
    SlotInit out;
    ASSIGN_OR_RETURN(out.sampling, Sampling(in.sampling()));
    ASSIGN_OR_RETURN(out.history,
                     ReadIds("history", in.history(), limits_.max_model_len, 0, max_id_));
    RETURN_IF_ERROR(CheckRange("prompt_tokens", in.prompt_tokens(), 0, limits_.max_model_len));
    RETURN_IF_ERROR(CheckRange("output_tokens", in.output_tokens(), 0, limits_.max_model_len));
    if (!out.history.empty()) {
      RETURN_IF_ERROR(CheckRange("prompt_tokens", in.prompt_tokens(), 0, in.history_size()));
    }
    out.prompt_tokens = in.prompt_tokens();
    out.output_tokens = in.output_tokens();
    return out;
  }

  absl::StatusOr<SamplingParams> Sampling(const worker::SamplingParams& in) const {
    SamplingParams out;
    for (const float value : {in.temperature(), in.top_p(), in.min_p(), in.repetition_penalty(),
                              in.frequency_penalty(), in.presence_penalty()}) {
      if (!std::isfinite(value)) {
        return absl::InvalidArgumentError("step message: a sampling number is not finite");
      }
    }
    out.temperature = in.temperature();
    out.top_k = in.top_k();
    out.top_p = in.top_p();
    out.min_p = in.min_p();
    out.repetition_penalty = in.repetition_penalty();
    out.frequency_penalty = in.frequency_penalty();
    out.presence_penalty = in.presence_penalty();
    out.seed = in.seed();
    RETURN_IF_ERROR(CheckRange("top_k", in.top_k(), 0, INT32_MAX));
    RETURN_IF_ERROR(CheckRange("max_tokens", in.max_tokens(), 1, INT32_MAX));
    RETURN_IF_ERROR(CheckRange("min_tokens", in.min_tokens(), 0, in.max_tokens()));
    out.max_tokens = in.max_tokens();
    out.min_tokens = in.min_tokens();
    ASSIGN_OR_RETURN(out.stop_token_ids,
                     ReadIds("stop_token_ids", in.stop_token_ids(), kMaxStopIds, 0, max_id_));
    RETURN_IF_ERROR(CheckRange("logit_bias", in.logit_bias_size(), 0, kMaxBiases));
    out.logit_bias.reserve(static_cast<size_t>(in.logit_bias_size()));
    for (const worker::TokenBias& entry : in.logit_bias()) {
      RETURN_IF_ERROR(CheckRange("logit_bias", entry.token(), 0, max_id_));
      out.logit_bias.emplace_back(entry.token(), entry.bias());
    }
    RETURN_IF_ERROR(CheckRange("num_logprobs", in.num_logprobs(), -1, kMaxTopLogprobs));
    RETURN_IF_ERROR(
        CheckRange("num_prompt_logprobs", in.num_prompt_logprobs(), -1, kMaxTopLogprobs));
    out.num_logprobs = in.num_logprobs();
    out.num_prompt_logprobs = in.num_prompt_logprobs();
    return out;
  }

  absl::StatusOr<TokenLogprob> Logprob(const worker::TokenLogprob& in) const {
    RETURN_IF_ERROR(CheckRange("logprob token", in.token(), -1, max_id_));
    return TokenLogprob{in.token(), in.logprob()};
  }

  absl::StatusOr<ScoredToken> Scored(const worker::ScoredToken& in) const {
    ScoredToken out;
    ASSIGN_OR_RETURN(out.token, Logprob(in.token()));
    RETURN_IF_ERROR(CheckRange("top logprobs", in.top_size(), 0, kMaxTopLogprobs));
    out.top.reserve(static_cast<size_t>(in.top_size()));
    for (const worker::TokenLogprob& entry : in.top()) {
      ASSIGN_OR_RETURN(const TokenLogprob token, Logprob(entry));
      out.top.push_back(token);
    }
    return out;
  }

  const StepLimits& limits_;
  const int64_t max_id_;
  const int64_t max_pages_;
};

bool IsOneOf(int32_t dtype, std::initializer_list<DType> types) {
  for (const DType type : types) {
    if (dtype == static_cast<int32_t>(type)) return true;
  }
  return false;
}

}  // namespace

StepLimits StepLimits::Of(const RunnerConfig& config, int32_t num_pages, int32_t vocab_size) {
  return {.max_num_seqs = config.max_num_seqs,
          .max_num_batched_tokens = config.max_num_batched_tokens,
          .max_model_len = config.max_model_len,
          .num_pages = num_pages,
          .vocab_size = vocab_size,
          .data_parallel_size = config.data_parallel_size};
}

absl::StatusOr<StepPlan> FromProto(const worker::StepPlan& proto, const StepLimits& limits) {
  StepPlan out;
  RETURN_IF_ERROR(CheckRange("step", proto.step(), 1, INT64_MAX));
  const int64_t groups = limits.data_parallel_size;
  RETURN_IF_ERROR(CheckRange("sequences", proto.sequences_size(), 0, groups * limits.max_num_seqs));
  int64_t tokens = 0;
  for (const worker::SequencePlan& in : proto.sequences()) {
    tokens += in.tokens_size() == 0 ? 1 : in.tokens_size();
  }
  RETURN_IF_ERROR(
      CheckRange("tokens of the step", tokens, 0, groups * limits.max_num_batched_tokens));
  out.step = proto.step();
  out.sequences.reserve(static_cast<size_t>(proto.sequences_size()));
  const Reader reader(limits);
  for (const worker::SequencePlan& in : proto.sequences()) {
    ASSIGN_OR_RETURN(SequencePlan sequence, reader.Plan(in));
    out.sequences.push_back(std::move(sequence));
  }
  return out;
}

absl::StatusOr<StepResult> FromProto(const worker::StepDone& proto, const StepLimits& limits) {
  StepResult out;
  RETURN_IF_ERROR(CheckRange("step", proto.step(), 1, INT64_MAX));
  RETURN_IF_ERROR(CheckRange("sequences", proto.sequences_size(), 0, limits.max_num_seqs));
  out.step = proto.step();
  out.sequences.reserve(static_cast<size_t>(proto.sequences_size()));
  const Reader reader(limits);
  for (const worker::SequenceResult& in : proto.sequences()) {
    ASSIGN_OR_RETURN(SequenceResult sequence, reader.Result(in));
    out.sequences.push_back(std::move(sequence));
  }
  return out;
}

absl::StatusOr<RunnerConfig> FromProto(const worker::RunnerConfig& proto) {
  constexpr int kMaxGraphSizes = 1024;
  if (!IsOneOf(proto.dtype(), {DType::kF32, DType::kBF16}) ||
      !IsOneOf(proto.kv_dtype(), {DType::kF32, DType::kBF16, DType::kU8})) {
    return absl::InvalidArgumentError(
        "runner config: dtype must be float32 or bfloat16, and that of the cache one of these or "
        "fp8");
  }
  RETURN_IF_ERROR(CheckRange("page_tokens", proto.page_tokens(), 1, 65536));
  RETURN_IF_ERROR(CheckRange("data_parallel_size", proto.data_parallel_size(), 1, 1 << 16));
  RETURN_IF_ERROR(CheckRange("max_num_seqs", proto.max_num_seqs(), 1, 1 << 20));
  RETURN_IF_ERROR(CheckRange("max_num_batched_tokens", proto.max_num_batched_tokens(), 1, 1 << 24));
  RETURN_IF_ERROR(CheckRange("max_model_len", proto.max_model_len(), 1, INT32_MAX));
  RunnerConfig out;
  out.model_dir = proto.model_dir();
  out.load_format = proto.dummy_weights() ? LoadFormat::kDummy : LoadFormat::kSafetensors;
  out.dtype = static_cast<DType>(proto.dtype());
  out.kv_dtype = static_cast<DType>(proto.kv_dtype());
  out.numerics = proto.serving_numerics() ? Numerics::kServing : Numerics::kReference;
  out.quantize = proto.quantize();
  out.expert_parallel = proto.expert_parallel();
  out.data_parallel_size = proto.data_parallel_size();
  out.page_tokens = proto.page_tokens();
  out.max_num_seqs = proto.max_num_seqs();
  out.max_num_batched_tokens = proto.max_num_batched_tokens();
  out.max_model_len = proto.max_model_len();
  out.fit_model_len = proto.fit_model_len();
  out.seed = proto.seed();
  out.enforce_eager = proto.enforce_eager();
  RETURN_IF_ERROR(CheckRange("cuda_graph_sizes", proto.cuda_graph_sizes_size(), 0, kMaxGraphSizes));
  for (const int32_t size : proto.cuda_graph_sizes()) {
    RETURN_IF_ERROR(CheckRange("cuda_graph_sizes", size, 1, 1 << 20));
    out.cuda_graph_sizes.push_back(size);
  }
  return out;
}

absl::StatusOr<RankMemory> FromProto(const worker::Loaded& proto) {
  RETURN_IF_ERROR(CheckRange("weight_bytes", proto.weight_bytes(), 0, INT64_MAX));
  RETURN_IF_ERROR(CheckRange("workspace_bytes", proto.workspace_bytes(), 0, INT64_MAX));
  RETURN_IF_ERROR(CheckRange("bytes_per_page", proto.bytes_per_page(), 1, INT64_MAX));
  RETURN_IF_ERROR(CheckRange("available_bytes", proto.available_bytes(), 0, INT64_MAX));
  RETURN_IF_ERROR(CheckRange("skipped_tensors", proto.skipped_tensors(), 0, INT64_MAX));
  return RankMemory{.weight_bytes = proto.weight_bytes(),
                    .workspace_bytes = proto.workspace_bytes(),
                    .bytes_per_page = proto.bytes_per_page(),
                    .available_bytes = proto.available_bytes(),
                    .skipped_tensors = proto.skipped_tensors()};
}

}  // namespace millrace
