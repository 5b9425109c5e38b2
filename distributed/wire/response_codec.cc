#include "distributed/wire/response_codec.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

namespace pb = ::vllm::grpc::engine;

void TopToProto(const std::vector<TokenLogprob>& top, pb::TopLogProbs& out) {
  for (const TokenLogprob& t : top) {
    out.add_values(t.logprob);
    out.add_token_ids(static_cast<uint32_t>(t.token));
  }
}

void ScoresToProto(const std::vector<ScoredToken>& scores, pb::OutputLogProbs& out) {
  for (const ScoredToken& s : scores) {
    out.add_token_logprobs(s.token.logprob);
    out.add_token_ids(static_cast<uint32_t>(s.token.token));
    if (!s.top.empty()) TopToProto(s.top, *out.add_top_logprobs());
  }
}

void PromptToProto(const PromptScores& scores, pb::InputLogProbs& out) {
  const bool with_top = !scores.rest.empty() && !scores.rest[0].top.empty();
  out.add_token_logprobs();
  out.add_token_ids(static_cast<uint32_t>(scores.first_token));
  if (with_top) out.add_top_logprobs();
  for (const ScoredToken& s : scores.rest) {
    out.add_token_logprobs()->set_value(s.token.logprob);
    out.add_token_ids(static_cast<uint32_t>(s.token.token));
    if (with_top) TopToProto(s.top, *out.add_top_logprobs());
  }
}

absl::StatusOr<std::vector<TokenLogprob>> TopFromProto(const pb::TopLogProbs& p) {
  if (p.values_size() != p.token_ids_size()) {
    return absl::InternalError(absl::StrCat("top_logprobs: ", p.values_size(), " values for ",
                                            p.token_ids_size(), " ids"));
  }
  std::vector<TokenLogprob> top;
  for (int i = 0; i < p.values_size(); ++i) {
    top.push_back({.token = static_cast<int32_t>(p.token_ids(i)), .logprob = p.values(i)});
  }
  return top;
}

// `T` is OutputLogProbs or InputLogProbs.
template <typename T>
absl::Status CheckLengths(const T& p) {
  const int tops = p.top_logprobs_size();
  if (p.token_logprobs_size() == p.token_ids_size() && (tops == 0 || tops == p.token_ids_size())) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("logprobs: ", p.token_logprobs_size(), " values and ",
                                          tops, " tops for ", p.token_ids_size(), " ids"));
}

absl::StatusOr<std::vector<ScoredToken>> ScoresFromProto(const pb::OutputLogProbs& p) {
  RETURN_IF_ERROR(CheckLengths(p));
  std::vector<ScoredToken> scores(p.token_ids_size());
  for (int i = 0; i < p.token_ids_size(); ++i) {
    scores[i].token = {.token = static_cast<int32_t>(p.token_ids(i)),
                       .logprob = p.token_logprobs(i)};
    if (p.top_logprobs_size() > 0) {
      ASSIGN_OR_RETURN(scores[i].top, TopFromProto(p.top_logprobs(i)));
    }
  }
  return scores;
}

absl::StatusOr<PromptScores> PromptFromProto(const pb::InputLogProbs& p) {
  RETURN_IF_ERROR(CheckLengths(p));
  if (p.token_ids_size() == 0) return absl::InternalError("input_logprobs: empty");
  PromptScores scores;
  scores.first_token = static_cast<int32_t>(p.token_ids(0));
  scores.rest.resize(p.token_ids_size() - 1);
  for (int i = 1; i < p.token_ids_size(); ++i) {
    ScoredToken& s = scores.rest[i - 1];
    s.token = {.token = static_cast<int32_t>(p.token_ids(i)),
               .logprob = p.token_logprobs(i).value()};
    if (p.top_logprobs_size() > 0) {
      ASSIGN_OR_RETURN(s.top, TopFromProto(p.top_logprobs(i)));
    }
  }
  return scores;
}

absl::StatusOr<FinishReason> ReasonFromName(const std::string& name) {
  for (FinishReason reason :
       {FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort, FinishReason::kError}) {
    if (FinishReasonName(reason) == name) return reason;
  }
  return absl::InternalError(absl::StrCat("finish_reason: unknown value \"", name, "\""));
}

absl::StatusOr<ResponseChunk> ChunkFromProto(const pb::GenerateStreamChunk& p) {
  ResponseChunk chunk;
  chunk.index = static_cast<int32_t>(p.index());
  chunk.token_ids.assign(p.token_ids().begin(), p.token_ids().end());
  chunk.text_delta = p.text_delta();
  chunk.prompt_tokens = static_cast<int32_t>(p.prompt_tokens());
  chunk.cached_tokens = static_cast<int32_t>(p.cached_tokens());
  ASSIGN_OR_RETURN(chunk.logprobs, ScoresFromProto(p.output_logprobs()));
  if (p.has_input_logprobs()) {
    ASSIGN_OR_RETURN(chunk.prompt_scores, PromptFromProto(p.input_logprobs()));
  }
  return chunk;
}

absl::StatusOr<ResponseComplete> CompleteFromProto(const pb::GenerateComplete& p) {
  ResponseComplete complete;
  complete.index = static_cast<int32_t>(p.index());
  complete.output_ids.assign(p.output_ids().begin(), p.output_ids().end());
  complete.text = p.text();
  ASSIGN_OR_RETURN(complete.finish_reason, ReasonFromName(p.finish_reason()));
  if (p.has_matched_token_id()) complete.matched_token = static_cast<int32_t>(p.matched_token_id());
  if (p.has_matched_stop_str()) complete.matched_stop = p.matched_stop_str();
  ASSIGN_OR_RETURN(complete.logprobs, ScoresFromProto(p.output_logprobs()));
  if (p.has_input_logprobs()) {
    ASSIGN_OR_RETURN(complete.prompt_scores, PromptFromProto(p.input_logprobs()));
  }
  complete.usage = {.prompt_tokens = static_cast<int32_t>(p.prompt_tokens()),
                    .completion_tokens = static_cast<int32_t>(p.completion_tokens()),
                    .cached_tokens = static_cast<int32_t>(p.cached_tokens()),
                    .ttft_seconds = p.usage().ttft_seconds(),
                    .tpot_seconds = p.usage().tpot_seconds(),
                    .e2e_seconds = p.usage().e2e_seconds()};
  return complete;
}

void UsageToProto(const UsageFacts& usage, pb::Usage& out) {
  out.set_prompt_tokens(static_cast<uint32_t>(usage.prompt_tokens));
  out.set_completion_tokens(static_cast<uint32_t>(usage.completion_tokens));
  out.set_cached_tokens(static_cast<uint32_t>(usage.cached_tokens));
  out.set_ttft_seconds(usage.ttft_seconds);
  out.set_tpot_seconds(usage.tpot_seconds);
  out.set_e2e_seconds(usage.e2e_seconds);
}

}  // namespace

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      break;
  }
  return "error";
}

pb::GenerateResponse ChunkToProto(const ResponseChunk& chunk) {
  pb::GenerateResponse response;
  pb::GenerateStreamChunk& out = *response.mutable_chunk();
  out.set_index(static_cast<uint32_t>(chunk.index));
  for (int32_t id : chunk.token_ids) out.add_token_ids(static_cast<uint32_t>(id));
  out.set_text_delta(chunk.text_delta);
  out.set_prompt_tokens(static_cast<uint32_t>(chunk.prompt_tokens));
  out.set_completion_tokens(static_cast<uint32_t>(chunk.token_ids.size()));
  out.set_cached_tokens(static_cast<uint32_t>(chunk.cached_tokens));
  if (!chunk.logprobs.empty()) ScoresToProto(chunk.logprobs, *out.mutable_output_logprobs());
  if (chunk.prompt_scores.has_value()) {
    PromptToProto(*chunk.prompt_scores, *out.mutable_input_logprobs());
  }
  return response;
}

pb::GenerateResponse CompleteToProto(const ResponseComplete& complete) {
  pb::GenerateResponse response;
  pb::GenerateComplete& out = *response.mutable_complete();
  out.set_index(static_cast<uint32_t>(complete.index));
  for (int32_t id : complete.output_ids) out.add_output_ids(static_cast<uint32_t>(id));
  out.set_text(complete.text);
  out.set_finish_reason(std::string(FinishReasonName(complete.finish_reason)));
  if (complete.matched_stop.has_value()) {
    out.set_matched_stop_str(*complete.matched_stop);
  } else if (complete.matched_token.has_value()) {
    out.set_matched_token_id(static_cast<uint32_t>(*complete.matched_token));
  }
  if (!complete.logprobs.empty()) ScoresToProto(complete.logprobs, *out.mutable_output_logprobs());
  if (complete.prompt_scores.has_value()) {
    PromptToProto(*complete.prompt_scores, *out.mutable_input_logprobs());
  }
  out.set_prompt_tokens(static_cast<uint32_t>(complete.usage.prompt_tokens));
  out.set_completion_tokens(static_cast<uint32_t>(complete.usage.completion_tokens));
  out.set_cached_tokens(static_cast<uint32_t>(complete.usage.cached_tokens));
  UsageToProto(complete.usage, *out.mutable_usage());
  return response;
}

absl::StatusOr<std::variant<ResponseChunk, ResponseComplete>> ResponseFromProto(
    const pb::GenerateResponse& proto) {
  using Result = std::variant<ResponseChunk, ResponseComplete>;
  if (proto.has_chunk()) {
    ASSIGN_OR_RETURN(ResponseChunk chunk, ChunkFromProto(proto.chunk()));
    return Result(std::move(chunk));
  }
  if (proto.has_complete()) {
    ASSIGN_OR_RETURN(ResponseComplete complete, CompleteFromProto(proto.complete()));
    return Result(std::move(complete));
  }
  return absl::InternalError("response: neither chunk nor complete");
}

}  // namespace millrace
