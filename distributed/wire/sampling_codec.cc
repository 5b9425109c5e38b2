#include "distributed/wire/sampling_codec.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "distributed/wire/error_details.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

namespace pb = ::vllm::grpc::engine;

absl::Status SamplingError(std::string_view field, std::string_view message) {
  return InvalidField(absl::StrCat("sampling_params.", std::string(field)), message);
}

// One float option and the interval it must lie in.
struct FloatRange {
  std::string_view field;
  float value = 0;
  float low = 0;
  float high = 0;
};

absl::Status CheckFloats(const pb::SamplingParams& p) {
  const FloatRange ranges[] = {
      {"temperature", p.temperature(), 0, kMaxTemperature},
      {"top_p", p.top_p(), 0, 1},
      {"min_p", p.min_p(), 0, 1},
      {"frequency_penalty", p.frequency_penalty(), -kMaxAdditivePenalty, kMaxAdditivePenalty},
      {"presence_penalty", p.presence_penalty(), -kMaxAdditivePenalty, kMaxAdditivePenalty},
      {"repetition_penalty", p.repetition_penalty(), 0, kMaxRepetitionPenalty},
  };
  for (const FloatRange& r : ranges) {
    // Written so that NaN fails.
    if (!(r.value >= r.low && r.value <= r.high)) {
      return SamplingError(
          r.field, absl::StrCat("is ", r.value, ", must be in [", r.low, ", ", r.high, "]"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStops(const pb::SamplingParams& p, const RequestLimits& limits) {
  if (p.stop_size() > kMaxStopStrings) {
    return SamplingError(
        "stop", absl::StrCat("has ", p.stop_size(), " strings, the limit is ", kMaxStopStrings));
  }
  for (int i = 0; i < p.stop_size(); ++i) {
    const std::string field = absl::StrCat("stop[", i, "]");
    if (p.stop(i).empty()) return SamplingError(field, "is empty");
    if (static_cast<int64_t>(p.stop(i).size()) > kMaxStopStringBytes) {
      return SamplingError(field, absl::StrCat("has ", p.stop(i).size(), " bytes, the limit is ",
                                               kMaxStopStringBytes));
    }
  }
  if (p.stop_token_ids_size() > kMaxStopTokenIds) {
    return SamplingError("stop_token_ids", absl::StrCat("has ", p.stop_token_ids_size(),
                                                        " ids, the limit is ", kMaxStopTokenIds));
  }
  for (int i = 0; i < p.stop_token_ids_size(); ++i) {
    if (p.stop_token_ids(i) >= static_cast<uint32_t>(limits.vocab_size)) {
      return SamplingError(absl::StrCat("stop_token_ids[", i, "]"),
                           absl::StrCat("is ", p.stop_token_ids(i),
                                        ", ids of this model are below ", limits.vocab_size));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBias(const pb::SamplingParams& p, const RequestLimits& limits) {
  if (static_cast<int64_t>(p.logit_bias().size()) > kMaxLogitBias) {
    return SamplingError("logit_bias", absl::StrCat("has ", p.logit_bias().size(),
                                                    " entries, the limit is ", kMaxLogitBias));
  }
  for (const auto& [id, bias] : p.logit_bias()) {
    const std::string field = absl::StrCat("logit_bias[", id, "]");
    if (id < 0 || id >= limits.vocab_size) {
      return SamplingError(
          field, absl::StrCat("is no id of this model, which are in [0, ", limits.vocab_size, ")"));
    }
    if (!(std::fabs(bias) <= kMaxLogitBiasValue)) {
      return SamplingError(field, absl::StrCat("is ", bias, ", must be in [", -kMaxLogitBiasValue,
                                               ", ", kMaxLogitBiasValue, "]"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLogprobs(std::string_view field, bool is_set, int32_t value) {
  if (!is_set || (value >= 0 && value <= kMaxTopLogprobs)) return absl::OkStatus();
  return SamplingError(field,
                       absl::StrCat("is ", value, ", must be in [0, ", kMaxTopLogprobs, "]"));
}

absl::Status CheckCounts(const pb::SamplingParams& p, const RequestLimits& limits) {
  if (p.n() > static_cast<uint32_t>(kMaxChoices)) {
    return SamplingError("n", absl::StrCat("is ", p.n(), ", the limit is ", kMaxChoices));
  }
  const auto context = static_cast<uint32_t>(limits.max_model_len);
  if (p.has_max_tokens() && (p.max_tokens() < 1 || p.max_tokens() > context)) {
    return SamplingError("max_tokens", absl::StrCat("is ", p.max_tokens(), ", must be in [1, ",
                                                    context, "], the model's context length"));
  }
  if (p.min_tokens() > context) {
    return SamplingError("min_tokens", absl::StrCat("is ", p.min_tokens(),
                                                    ", the model's context length is ", context));
  }
  if (p.has_max_tokens() && p.min_tokens() > p.max_tokens()) {
    return SamplingError("min_tokens",
                         absl::StrCat("is ", p.min_tokens(), ", max_tokens is ", p.max_tokens()));
  }
  RETURN_IF_ERROR(CheckLogprobs("logprobs", p.has_logprobs(), p.logprobs()));
  RETURN_IF_ERROR(CheckLogprobs("prompt_logprobs", p.has_prompt_logprobs(), p.prompt_logprobs()));
  if (p.has_truncate_prompt_tokens() && p.truncate_prompt_tokens() != -1 &&
      (p.truncate_prompt_tokens() < 1 || p.truncate_prompt_tokens() > limits.max_model_len)) {
    return SamplingError(
        "truncate_prompt_tokens",
        absl::StrCat("is ", p.truncate_prompt_tokens(), ", must be -1 (what fits) or in [1, ",
                     limits.max_model_len, "], the model's context length"));
  }
  return absl::OkStatus();
}

// Structured output: refused by the name of the field that asks for it.
absl::Status CheckConstraint(const pb::SamplingParams& p) {
  std::string_view field;
  switch (p.constraint_case()) {
    case pb::SamplingParams::kJsonSchema:
      field = "json_schema";
      break;
    case pb::SamplingParams::kRegex:
      field = "regex";
      break;
    case pb::SamplingParams::kGrammar:
      field = "grammar";
      break;
    case pb::SamplingParams::kStructuralTag:
      field = "structural_tag";
      break;
    case pb::SamplingParams::kChoice:
      field = "choice";
      break;
    case pb::SamplingParams::kJsonObject:
      if (p.json_object()) field = "json_object";
      break;
    case pb::SamplingParams::CONSTRAINT_NOT_SET:
      break;
  }
  if (field.empty() && p.grammar_from_first_token()) field = "grammar_from_first_token";
  if (field.empty()) return absl::OkStatus();
  return FieldError(absl::StatusCode::kUnimplemented,
                    absl::StrCat("sampling_params.", std::string(field)),
                    "structured output is not supported; leave the field unset");
}

RequestedSampling TakeSampling(const pb::SamplingParams& p, const RequestLimits& limits) {
  RequestedSampling s;
  if (p.has_temperature()) s.temperature = p.temperature();
  if (p.top_p() != 0) s.top_p = p.top_p();
  // More candidates than the vocabulary has (-1 as an unsigned number, say) means all of them.
  const auto vocab = static_cast<uint32_t>(limits.vocab_size);
  if (p.top_k() != 0) s.top_k = static_cast<int32_t>(std::min(p.top_k(), vocab));
  if (p.min_p() != 0) s.min_p = p.min_p();
  if (p.repetition_penalty() != 0) s.repetition_penalty = p.repetition_penalty();
  s.frequency_penalty = p.frequency_penalty();
  s.presence_penalty = p.presence_penalty();
  if (p.has_max_tokens()) s.max_tokens = static_cast<int32_t>(p.max_tokens());
  s.min_tokens = static_cast<int32_t>(p.min_tokens());
  s.stop_token_ids.assign(p.stop_token_ids().begin(), p.stop_token_ids().end());
  s.logit_bias.assign(p.logit_bias().begin(), p.logit_bias().end());
  std::sort(s.logit_bias.begin(), s.logit_bias.end());
  if (p.has_logprobs()) s.num_logprobs = p.logprobs();
  if (p.has_prompt_logprobs()) s.num_prompt_logprobs = p.prompt_logprobs();
  // A negative seed counts by its bits.
  if (p.has_seed()) s.seed = static_cast<uint32_t>(p.seed());
  s.ignore_eos = p.ignore_eos();
  return s;
}

}  // namespace

absl::Status SamplingFromProto(const pb::SamplingParams& proto, const RequestLimits& limits,
                               ClientRequest& out) {
  RETURN_IF_ERROR(CheckConstraint(proto));
  RETURN_IF_ERROR(CheckFloats(proto));
  RETURN_IF_ERROR(CheckCounts(proto, limits));
  RETURN_IF_ERROR(CheckStops(proto, limits));
  RETURN_IF_ERROR(CheckBias(proto, limits));
  out.sampling = TakeSampling(proto, limits);
  out.text.stop.assign(proto.stop().begin(), proto.stop().end());
  out.text.include_stop = proto.include_stop_str_in_output();
  out.text.skip_special_tokens = proto.skip_special_tokens();
  out.text.spaces_between_special_tokens = proto.spaces_between_special_tokens();
  out.n = proto.n() == 0 ? 1 : static_cast<int32_t>(proto.n());
  if (proto.has_truncate_prompt_tokens()) {
    out.truncate_prompt_tokens = proto.truncate_prompt_tokens();
  }
  return absl::OkStatus();
}

void SamplingToProto(const ClientRequest& request, pb::SamplingParams& out) {
  const RequestedSampling& s = request.sampling;
  if (s.temperature.has_value()) out.set_temperature(*s.temperature);
  out.set_top_p(s.top_p.value_or(0));
  out.set_top_k(static_cast<uint32_t>(s.top_k.value_or(0)));
  out.set_min_p(s.min_p.value_or(0));
  out.set_repetition_penalty(s.repetition_penalty.value_or(0));
  out.set_frequency_penalty(s.frequency_penalty);
  out.set_presence_penalty(s.presence_penalty);
  if (s.max_tokens.has_value()) out.set_max_tokens(static_cast<uint32_t>(*s.max_tokens));
  out.set_min_tokens(static_cast<uint32_t>(s.min_tokens));
  for (int32_t id : s.stop_token_ids) out.add_stop_token_ids(static_cast<uint32_t>(id));
  for (const auto& [id, bias] : s.logit_bias) (*out.mutable_logit_bias())[id] = bias;
  if (s.num_logprobs >= 0) out.set_logprobs(s.num_logprobs);
  if (s.num_prompt_logprobs >= 0) out.set_prompt_logprobs(s.num_prompt_logprobs);
  if (s.seed.has_value()) out.set_seed(static_cast<int32_t>(static_cast<uint32_t>(*s.seed)));
  out.set_ignore_eos(s.ignore_eos);
  for (const std::string& stop : request.text.stop) out.add_stop(stop);
  out.set_include_stop_str_in_output(request.text.include_stop);
  out.set_skip_special_tokens(request.text.skip_special_tokens);
  out.set_spaces_between_special_tokens(request.text.spaces_between_special_tokens);
  out.set_n(static_cast<uint32_t>(request.n));
  if (request.truncate_prompt_tokens.has_value()) {
    out.set_truncate_prompt_tokens(*request.truncate_prompt_tokens);
  }
}

}  // namespace millrace
