#include "distributed/controller/frontdoor/model_info.h"

#include <algorithm>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace millrace {
namespace {

// The authors' sampling defaults as clients may apply them themselves; "" when there are none.
std::string DefaultsJson(const GenerationDefaults& defaults) {
  nlohmann::ordered_json json;
  if (defaults.temperature.has_value()) json["temperature"] = *defaults.temperature;
  if (defaults.top_p.has_value()) json["top_p"] = *defaults.top_p;
  if (defaults.top_k.has_value()) json["top_k"] = *defaults.top_k;
  if (defaults.repetition_penalty.has_value()) {
    json["repetition_penalty"] = *defaults.repetition_penalty;
  }
  return json.empty() ? "" : json.dump();
}

}  // namespace

void FillModelInfo(const ServedModel& model, vllm::grpc::engine::GetModelInfoResponse& out) {
  const ModelConfig& config = model.config;
  out.set_model_path(model.path);
  out.set_is_generation(true);
  out.set_max_context_length(static_cast<uint32_t>(model.max_model_len));
  out.set_vocab_size(static_cast<uint32_t>(config.vocab_size));
  out.set_served_model_name(model.name);
  out.set_tokenizer_path(model.tokenizer_path);
  out.set_model_type(config.model_type);
  for (const std::string& name : config.architectures) out.add_architectures(name);
  std::vector<int32_t> eos = config.eos_token_ids;
  for (int32_t id : model.defaults.eos_token_ids) {
    if (std::find(eos.begin(), eos.end(), id) == eos.end()) eos.push_back(id);
  }
  for (int32_t id : eos) out.add_eos_token_ids(id);
  out.set_pad_token_id(std::max(config.pad_token_id, 0));
  out.set_bos_token_id(std::max(config.bos_token_id, 0));
  out.set_max_req_input_len(model.max_model_len - 1);
  out.set_default_sampling_params_json(DefaultsJson(model.defaults));
}

void FillServerInfo(const ServedModel& model, vllm::grpc::engine::GetServerInfoResponse& out) {
  out.set_server_type("vllm-grpc");
  // Requests are dealt out to the groups here: a gateway sees one rank, which has all their room.
  out.set_data_parallel_size(1);
  out.set_kv_cache_dtype(model.kv_cache_dtype);
  out.set_block_size(model.block_size);
  out.set_attention_backend(model.attention_backend);
  out.set_model_dtype(model.dtype);
  out.set_max_num_seqs(model.max_num_seqs * model.data_parallel_size);
}

}  // namespace millrace
