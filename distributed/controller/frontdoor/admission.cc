#include "distributed/controller/frontdoor/admission.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "distributed/wire/error_details.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

// Longer than the longest token of any published vocabulary: a text of more bytes than context
// tokens times this cannot fit, and is refused before it is tokenized.
constexpr int64_t kMaxTokenBytes = 512;

absl::Status NeedsTokenizer(const char* what) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": this model was loaded without a tokenizer; send tokenized.input_ids"));
}

absl::Status CheckTextBytes(const char* field, int64_t bytes, const ClientRequest& request,
                            const ServedModel& model) {
  if (request.truncate_prompt_tokens.has_value()) return absl::OkStatus();
  if (bytes <= kMaxTokenBytes * model.max_model_len) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("has ", bytes, " bytes, too many for the context length ",
                                          model.max_model_len));
}

// The same result; an INVALID_ARGUMENT names the field.
absl::StatusOr<std::vector<int32_t>> NameField(const char* field,
                                               absl::StatusOr<std::vector<int32_t>> ids) {
  if (ids.status().code() != absl::StatusCode::kInvalidArgument) return ids;
  return InvalidField(field, std::string(ids.status().message()));
}

absl::StatusOr<std::vector<int32_t>> TextIds(const std::string& text, const ClientRequest& request,
                                             const ServedModel& model) {
  if (model.tokenizer == nullptr) return NeedsTokenizer("text");
  RETURN_IF_ERROR(CheckTextBytes("text", static_cast<int64_t>(text.size()), request, model));
  EncodeOptions options;
  options.add_special_tokens = true;
  return NameField("text", model.tokenizer->Encode(text, options));
}

absl::StatusOr<std::vector<int32_t>> ChatIds(const ChatPrompt& messages,
                                             const ClientRequest& request,
                                             const ServedModel& model) {
  if (model.tokenizer == nullptr) return NeedsTokenizer("messages");
  if (!model.chat.has_value()) {
    return absl::FailedPreconditionError(
        "messages: this model's chat template is not known; send text or tokenized.input_ids");
  }
  int64_t bytes = 0;
  for (const ChatMessage& message : messages) {
    bytes += static_cast<int64_t>(message.content.size() + message.fields_json.size());
  }
  RETURN_IF_ERROR(CheckTextBytes("messages", bytes, request, model));
  return NameField("messages", EncodeChat(*model.chat, *model.tokenizer, messages, request.chat));
}

// Keeps the last tokens, as many as were asked for.
void Truncate(const ClientRequest& request, const ServedModel& model, std::vector<int32_t>& ids) {
  if (!request.truncate_prompt_tokens.has_value()) return;
  int32_t keep = *request.truncate_prompt_tokens;
  if (keep == -1) keep = model.max_model_len - request.sampling.max_tokens.value_or(1);
  keep = std::max(keep, 1);
  if (static_cast<int64_t>(ids.size()) > keep) ids.erase(ids.begin(), ids.end() - keep);
}

std::vector<int32_t> StopIds(const RequestedSampling& s, const ServedModel& model) {
  std::vector<int32_t> ids = s.stop_token_ids;
  if (!s.ignore_eos) {
    const auto& config = model.config.eos_token_ids;
    const auto& generation = model.defaults.eos_token_ids;
    ids.insert(ids.end(), config.begin(), config.end());
    ids.insert(ids.end(), generation.begin(), generation.end());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// A tokenizer may know more ids than the model has rows for.
absl::Status CheckIds(const std::vector<int32_t>& ids, const ServedModel& model) {
  for (int32_t id : ids) {
    if (id >= 0 && id < model.config.vocab_size) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the tokenizer gives the id ", id, ", the model's vocabulary has ",
                     model.config.vocab_size, ": tokenizer and weights do not belong together"));
  }
  return absl::OkStatus();
}

const char* PromptField(const ClientRequest& request) {
  if (std::holds_alternative<TokenPrompt>(request.prompt)) return "tokenized.input_ids";
  return std::holds_alternative<TextPrompt>(request.prompt) ? "text" : "messages";
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> PromptIds(const ClientRequest& request,
                                               const ServedModel& model) {
  std::vector<int32_t> ids;
  if (const auto* tokens = std::get_if<TokenPrompt>(&request.prompt)) {
    ids = *tokens;
  } else if (const auto* text = std::get_if<TextPrompt>(&request.prompt)) {
    ASSIGN_OR_RETURN(ids, TextIds(*text, request, model));
  } else {
    ASSIGN_OR_RETURN(ids, ChatIds(std::get<ChatPrompt>(request.prompt), request, model));
  }
  if (!request.text.stop.empty() && model.tokenizer == nullptr) {
    return NeedsTokenizer("sampling_params.stop");
  }
  Truncate(request, model, ids);
  const char* field = PromptField(request);
  if (ids.empty()) return InvalidField(field, "gives no tokens");
  RETURN_IF_ERROR(CheckIds(ids, model));
  if (static_cast<int64_t>(ids.size()) >= model.max_model_len) {
    return InvalidField(field, absl::StrCat("has ", ids.size(), " tokens, the context length is ",
                                            model.max_model_len, " with at least one of output"));
  }
  return ids;
}

absl::StatusOr<SamplingParams> ResolveSampling(const ClientRequest& request, int32_t prompt_tokens,
                                               const ServedModel& model, uint64_t fallback_seed) {
  const RequestedSampling& s = request.sampling;
  const GenerationDefaults& d = model.defaults;
  const int32_t room = model.max_model_len - prompt_tokens;
  if (s.max_tokens.value_or(1) > room) {
    return InvalidField(
        "sampling_params.max_tokens",
        absl::StrCat("the prompt has ", prompt_tokens, " tokens and max_tokens is ", *s.max_tokens,
                     "; together they exceed the context length of ", model.max_model_len));
  }
  if (s.min_tokens > room) {
    return InvalidField(
        "sampling_params.min_tokens",
        absl::StrCat("is ", s.min_tokens, ", but a prompt of ", prompt_tokens,
                     " tokens leaves room for ", room, " in the context of ", model.max_model_len));
  }
  SamplingParams out;
  out.temperature = s.temperature.value_or(static_cast<float>(d.temperature.value_or(1.0)));
  out.top_k = s.top_k.value_or(d.top_k.value_or(0));
  if (out.top_k >= model.config.vocab_size) out.top_k = 0;
  out.top_p = s.top_p.value_or(static_cast<float>(d.top_p.value_or(1.0)));
  out.min_p = s.min_p.value_or(0.0f);
  out.repetition_penalty =
      s.repetition_penalty.value_or(static_cast<float>(d.repetition_penalty.value_or(1.0)));
  out.frequency_penalty = s.frequency_penalty;
  out.presence_penalty = s.presence_penalty;
  out.seed = s.seed.value_or(fallback_seed);
  out.max_tokens = s.max_tokens.value_or(room);
  out.min_tokens = s.min_tokens;
  out.stop_token_ids = StopIds(s, model);
  out.logit_bias = s.logit_bias;
  out.num_logprobs = s.num_logprobs;
  out.num_prompt_logprobs = s.num_prompt_logprobs;
  return out;
}

}  // namespace millrace
