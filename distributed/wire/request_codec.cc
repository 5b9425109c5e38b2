#include "distributed/wire/request_codec.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "distributed/wire/error_details.h"
#include "distributed/wire/sampling_codec.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

namespace pb = ::vllm::grpc::engine;

absl::Status CheckIdentity(const pb::GenerateRequest& p) {
  const std::string& id = p.request_id();
  if (static_cast<int64_t>(id.size()) > kMaxRequestIdBytes) {
    return InvalidField(
        "request_id", absl::StrCat("has ", id.size(), " bytes, the limit is ", kMaxRequestIdBytes));
  }
  if (!std::all_of(id.begin(), id.end(), [](char c) { return c >= ' ' && c <= '~'; })) {
    return InvalidField("request_id", "must be printable ASCII");
  }
  if (static_cast<int64_t>(p.cache_salt().size()) > kMaxCacheSaltBytes) {
    return InvalidField("cache_salt", absl::StrCat("has ", p.cache_salt().size(),
                                                   " bytes, the limit is ", kMaxCacheSaltBytes));
  }
  return absl::OkStatus();
}

// Fields that are declared so that they parse, and mean something this server does not do.
absl::Status CheckUnsupported(const pb::GenerateRequest& p) {
  constexpr std::string_view kMedia = "this server takes text only; leave the field unset";
  constexpr std::string_view kTransfer = "this server does not transfer caches; leave it unset";
  if (p.has_mm_inputs()) return InvalidField("mm_inputs", kMedia);
  if (p.extra_mm_inputs_size() > 0) return InvalidField("extra_mm_inputs", kMedia);
  if (p.has_media_refs()) return InvalidField("media_refs", kMedia);
  if (p.has_kv_transfer_params()) return InvalidField("kv_transfer_params", kTransfer);
  if (p.has_kv_transfer_params_json()) return InvalidField("kv_transfer_params_json", kTransfer);
  if (p.has_data_parallel_rank() && p.data_parallel_rank() != 0) {
    return InvalidField("data_parallel_rank",
                        absl::StrCat("is ", p.data_parallel_rank(), ", the only rank is 0"));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenPrompt> TakeTokens(const pb::TokenizedInput& p, const RequestLimits& limits,
                                       bool truncated) {
  if (p.input_ids_size() == 0) return InvalidField("tokenized.input_ids", "is empty");
  if (!truncated && p.input_ids_size() >= limits.max_model_len) {
    return InvalidField("tokenized.input_ids",
                        absl::StrCat("has ", p.input_ids_size(), " tokens, the context length is ",
                                     limits.max_model_len, " with at least one of output"));
  }
  for (int i = 0; i < p.input_ids_size(); ++i) {
    if (p.input_ids(i) >= static_cast<uint32_t>(limits.vocab_size)) {
      return InvalidField(
          absl::StrCat("tokenized.input_ids[", i, "]"),
          absl::StrCat("is ", p.input_ids(i), ", ids of this model are below ", limits.vocab_size));
    }
  }
  return TokenPrompt(p.input_ids().begin(), p.input_ids().end());
}

absl::StatusOr<ChatPrompt> TakeMessages(const pb::GenerateRequest& p) {
  if (p.messages_size() > kMaxChatMessages) {
    return InvalidField(
        "messages", absl::StrCat("has ", p.messages_size(), ", the limit is ", kMaxChatMessages));
  }
  ChatPrompt chat;
  int64_t fields_bytes = 0;
  for (int i = 0; i < p.messages_size(); ++i) {
    const pb::ChatMessage& message = p.messages(i);
    if (message.role().empty()) {
      return InvalidField(absl::StrCat("messages[", i, "].role"), "is empty");
    }
    fields_bytes += static_cast<int64_t>(message.fields_json().size());
    if (fields_bytes > kMaxChatFieldsBytes) {
      return InvalidField(absl::StrCat("messages[", i, "].fields_json"),
                          absl::StrCat("brings the fields to ", fields_bytes,
                                       " bytes, the limit is ", kMaxChatFieldsBytes));
    }
    chat.push_back({.role = message.role(),
                    .content = message.content(),
                    .fields_json = message.fields_json()});
  }
  return chat;
}

absl::Status TakePrompt(const pb::GenerateRequest& p, const RequestLimits& limits,
                        ClientRequest& out) {
  const bool has_input = p.input_case() != pb::GenerateRequest::INPUT_NOT_SET;
  if (has_input && p.messages_size() > 0) {
    return InvalidField("messages", "is given together with text or tokenized; send one of them");
  }
  if (p.has_chat_options() && p.messages_size() == 0) {
    return InvalidField("chat_options", "goes with messages");
  }
  if (p.messages_size() > 0) {
    ASSIGN_OR_RETURN(out.prompt, TakeMessages(p));
    if (p.chat_options().has_thinking()) out.chat.thinking = p.chat_options().thinking();
    out.chat.reasoning_effort = p.chat_options().reasoning_effort();
  } else if (p.has_tokenized()) {
    const bool truncated = out.truncate_prompt_tokens.has_value();
    ASSIGN_OR_RETURN(out.prompt, TakeTokens(p.tokenized(), limits, truncated));
  } else if (p.has_text()) {
    if (p.text().empty()) return InvalidField("text", "is empty");
    out.prompt = p.text();
  } else {
    return InvalidField("input", "is missing: set tokenized, text or messages");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ClientRequest> RequestFromProto(const pb::GenerateRequest& proto,
                                               const RequestLimits& limits) {
  RETURN_IF_ERROR(CheckIdentity(proto));
  RETURN_IF_ERROR(CheckUnsupported(proto));
  ClientRequest request;
  RETURN_IF_ERROR(SamplingFromProto(proto.sampling_params(), limits, request));
  RETURN_IF_ERROR(TakePrompt(proto, limits, request));
  request.request_id = proto.request_id();
  request.cache_salt = proto.cache_salt();
  request.stream = proto.stream();
  return request;
}

pb::GenerateRequest RequestToProto(const ClientRequest& request) {
  pb::GenerateRequest proto;
  proto.set_request_id(request.request_id);
  proto.set_cache_salt(request.cache_salt);
  proto.set_stream(request.stream);
  SamplingToProto(request, *proto.mutable_sampling_params());
  if (const auto* tokens = std::get_if<TokenPrompt>(&request.prompt)) {
    pb::TokenizedInput* input = proto.mutable_tokenized();
    for (int32_t id : *tokens) input->add_input_ids(static_cast<uint32_t>(id));
  } else if (const auto* text = std::get_if<TextPrompt>(&request.prompt)) {
    proto.set_text(*text);
  } else {
    for (const ChatMessage& message : std::get<ChatPrompt>(request.prompt)) {
      pb::ChatMessage* out = proto.add_messages();
      out->set_role(message.role);
      out->set_content(message.content);
      out->set_fields_json(message.fields_json);
    }
    if (request.chat != ChatOptions()) {
      pb::ChatOptions* options = proto.mutable_chat_options();
      if (request.chat.thinking.has_value()) options->set_thinking(*request.chat.thinking);
      options->set_reasoning_effort(request.chat.reasoning_effort);
    }
  }
  return proto;
}

}  // namespace millrace
