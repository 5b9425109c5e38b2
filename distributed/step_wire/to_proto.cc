#include "distributed/step_wire/step_wire.h"

namespace millrace {
namespace {

void Fill(const SamplingParams& in, worker::SamplingParams* out) {
  out->set_temperature(in.temperature);
  out->set_top_k(in.top_k);
  out->set_top_p(in.top_p);
  out->set_min_p(in.min_p);
  out->set_repetition_penalty(in.repetition_penalty);
  out->set_frequency_penalty(in.frequency_penalty);
  out->set_presence_penalty(in.presence_penalty);
  out->set_seed(in.seed);
  out->set_max_tokens(in.max_tokens);
  out->set_min_tokens(in.min_tokens);
  out->mutable_stop_token_ids()->Add(in.stop_token_ids.begin(), in.stop_token_ids.end());
  for (const auto& [token, bias] : in.logit_bias) {
    worker::TokenBias* entry = out->add_logit_bias();
    entry->set_token(token);
    entry->set_bias(bias);
  }
  out->set_num_logprobs(in.num_logprobs);
  out->set_num_prompt_logprobs(in.num_prompt_logprobs);
}

void Fill(const SlotInit& in, worker::SlotInit* out) {
  Fill(in.sampling, out->mutable_sampling());
  out->mutable_history()->Add(in.history.begin(), in.history.end());
  out->set_prompt_tokens(in.prompt_tokens);
  out->set_output_tokens(in.output_tokens);
}

void Fill(const TokenLogprob& in, worker::TokenLogprob* out) {
  out->set_token(in.token);
  out->set_logprob(in.logprob);
}

void Fill(const ScoredToken& in, worker::ScoredToken* out) {
  Fill(in.token, out->mutable_token());
  for (const TokenLogprob& entry : in.top) Fill(entry, out->add_top());
}

}  // namespace

worker::StepPlan ToProto(const StepPlan& plan) {
  worker::StepPlan out;
  out.set_step(plan.step);
  out.mutable_sequences()->Reserve(static_cast<int>(plan.sequences.size()));
  for (const SequencePlan& in : plan.sequences) {
    worker::SequencePlan* sequence = out.add_sequences();
    sequence->set_group(in.group);
    sequence->set_slot(in.slot);
    if (in.init.has_value()) Fill(*in.init, sequence->mutable_init());
    sequence->mutable_new_pages()->Add(in.new_pages.begin(), in.new_pages.end());
    sequence->set_position(in.position);
    sequence->mutable_tokens()->Add(in.tokens.begin(), in.tokens.end());
    sequence->set_sample(in.sample);
    sequence->set_prompt_logprobs(in.prompt_logprobs);
    sequence->mutable_score_targets()->Add(in.score_targets.begin(), in.score_targets.end());
    sequence->mutable_logits_rows()->Add(in.logits_rows.begin(), in.logits_rows.end());
  }
  return out;
}

worker::StepDone ToProto(const StepResult& result) {
  worker::StepDone out;
  out.set_step(result.step);
  out.mutable_sequences()->Reserve(static_cast<int>(result.sequences.size()));
  for (const SequenceResult& in : result.sequences) {
    worker::SequenceResult* sequence = out.add_sequences();
    sequence->set_slot(in.slot);
    sequence->set_token(in.token);
    sequence->set_numeric_fault(in.numeric_fault);
    if (in.logprobs.has_value()) Fill(*in.logprobs, sequence->mutable_logprobs());
    for (const ScoredToken& entry : in.prompt_logprobs) {
      Fill(entry, sequence->add_prompt_logprobs());
    }
    for (const std::vector<float>& row : in.logits) {
      sequence->add_logits()->mutable_values()->Add(row.begin(), row.end());
    }
  }
  return out;
}

worker::RunnerConfig ToProto(const RunnerConfig& config) {
  worker::RunnerConfig out;
  out.set_model_dir(config.model_dir);
  out.set_dummy_weights(config.load_format == LoadFormat::kDummy);
  out.set_dtype(static_cast<int32_t>(config.dtype));
  out.set_kv_dtype(static_cast<int32_t>(config.kv_dtype));
  out.set_serving_numerics(config.numerics == Numerics::kServing);
  out.set_quantize(config.quantize);
  out.set_expert_parallel(config.expert_parallel);
  out.set_data_parallel_size(config.data_parallel_size);
  out.set_page_tokens(config.page_tokens);
  out.set_max_num_seqs(config.max_num_seqs);
  out.set_max_num_batched_tokens(config.max_num_batched_tokens);
  out.set_max_model_len(config.max_model_len);
  out.set_fit_model_len(config.fit_model_len);
  out.set_seed(config.seed);
  out.set_enforce_eager(config.enforce_eager);
  for (const int32_t size : config.cuda_graph_sizes) out.add_cuda_graph_sizes(size);
  return out;
}

worker::Loaded ToProto(const RankMemory& memory) {
  worker::Loaded out;
  out.set_weight_bytes(memory.weight_bytes);
  out.set_workspace_bytes(memory.workspace_bytes);
  out.set_bytes_per_page(memory.bytes_per_page);
  out.set_available_bytes(memory.available_bytes);
  out.set_skipped_tensors(memory.skipped_tensors);
  return out;
}

}  // namespace millrace
