#include "distributed/controller/frontdoor/testing/letters.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <utility>

#include "kernels/core/check.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;

absl::Status Broken() {
  return absl::UnavailableError("WORKER_LOST: rank 1 (host test) was taken away");
}

std::string Utf8(uint32_t code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

// How byte-level tokenizers spell a byte: printable ones as themselves, the others moved up.
std::map<int, std::string> ByteSpellings() {
  std::map<int, std::string> spellings;
  uint32_t moved = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    spellings[b] = Utf8(printable ? static_cast<uint32_t>(b) : moved++);
  }
  return spellings;
}

json AddedToken(int32_t id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

json TokenizerJson() {
  json vocab = json::object();
  for (const auto& [byte, spelling] : ByteSpellings()) vocab[spelling] = byte;
  json bytes = {{"type", "ByteLevel"},
                {"add_prefix_space", false},
                {"trim_offsets", true},
                {"use_regex", true}};
  json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  json bos = {{"SpecialToken", {{"id", "<bos>"}, {"type_id", 0}}}};
  json bos_token = {{"id", "<bos>"}, {"ids", {kLettersBos}}, {"tokens", {"<bos>"}}};
  json post = {{"type", "TemplateProcessing"},
               {"single", json::array({bos, text})},
               {"pair", json::array({bos, text})},
               {"special_tokens", {{"<bos>", bos_token}}}};
  json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"vocab", vocab},
                {"merges", json::array()}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", {AddedToken(kLettersEos, "<eos>"), AddedToken(kLettersBos, "<bos>")}},
          {"normalizer", nullptr},
          {"pre_tokenizer", bytes},
          {"post_processor", post},
          {"decoder", bytes},
          {"model", model}};
}

json ConfigJson() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", kLettersVocab},
          {"hidden_size", 64},
          {"intermediate_size", 128},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 4096},
          {"rms_norm_eps", 1e-5},
          {"bos_token_id", kLettersBos},
          {"eos_token_id", kLettersEos},
          {"torch_dtype", "bfloat16"}};
}

void Write(const std::filesystem::path& path, const json& content) {
  std::ofstream out(path);
  out << content.dump(1);
  MR_CHECK(out.good());
}

}  // namespace

int32_t NextLetter(int32_t token) {
  if (token == '!') return -1;
  if (token == 0xA9) return 0xC3;
  if (token == 0xC3) return 0xA9;
  if (token == 'z') return '.';
  if (token >= 'a' && token < 'z') return token + 1;
  if (token >= '0' && token <= '9') return token == '9' ? '0' : token + 1;
  return kLettersEos;
}

std::string LettersAfter(const std::string& prompt, int32_t max_tokens) {
  std::string text;
  int32_t token = static_cast<unsigned char>(prompt.back());
  while (static_cast<int32_t>(text.size()) < max_tokens) {
    token = NextLetter(token);
    if (token == kLettersEos || token < 0) break;
    text += static_cast<char>(token);
  }
  return text;
}

LettersExecutor::LettersExecutor(int32_t max_num_seqs, std::shared_ptr<LettersControl> control)
    : control_(std::move(control)), slots_(static_cast<size_t>(max_num_seqs)) {}

absl::Status LettersExecutor::Launch(const StepPlan& plan) {
  if (control_->broken) return Broken();
  StepResult result;
  result.step = plan.step;
  for (const SequencePlan& sequence : plan.sequences) result.sequences.push_back(Run(sequence));
  launched_.push_back(std::move(result));
  return absl::OkStatus();
}

absl::Status LettersExecutor::WaitWhilePaused() const {
  while (control_->paused && !control_->broken) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return control_->broken ? Broken() : absl::OkStatus();
}

absl::StatusOr<StepResult> LettersExecutor::Collect() {
  const absl::Status status = WaitWhilePaused();
  if (!status.ok()) return status;
  if (control_->step_micros > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(control_->step_micros));
  }
  StepResult result = std::move(launched_.front());
  launched_.pop_front();
  return result;
}

SequenceResult LettersExecutor::Run(const SequencePlan& plan) {
  const auto score = [](int32_t token, int32_t tops) {
    ScoredToken s;
    s.token = {.token = token, .logprob = -0.5f * static_cast<float>(token % 7)};
    for (int32_t i = 0; i < tops; ++i) {
      s.top.push_back({.token = token + i, .logprob = -static_cast<float>(i)});
    }
    return s;
  };
  Slot& slot = slots_.at(static_cast<size_t>(plan.slot));
  if (plan.init.has_value()) {
    slot.num_logprobs = plan.init->sampling.num_logprobs;
    slot.num_prompt_logprobs = plan.init->sampling.num_prompt_logprobs;
  }
  if (!plan.tokens.empty()) slot.last = plan.tokens.back();
  SequenceResult result;
  result.slot = plan.slot;
  for (int32_t target : plan.score_targets) {
    if (target >= 0) result.prompt_logprobs.push_back(score(target, slot.num_prompt_logprobs));
  }
  if (!plan.sample) return result;
  const int32_t next = NextLetter(slot.last);
  if (next < 0) {
    result.numeric_fault = true;
    return result;
  }
  slot.last = next;
  result.token = next;
  if (slot.num_logprobs >= 0) result.logprobs = score(next, slot.num_logprobs);
  return result;
}

std::string WriteLettersFolder(const std::string& parent) {
  const std::filesystem::path dir = std::filesystem::path(parent) / "letters";
  std::filesystem::create_directories(dir);
  Write(dir / "tokenizer.json", TokenizerJson());
  Write(dir / "config.json", ConfigJson());
  Write(dir / "generation_config.json", {{"eos_token_id", kLettersEos}, {"temperature", 0.5}});
  Write(dir / "tokenizer_config.json", {{"bos_token", "<bos>"}, {"eos_token", "<eos>"}});
  return dir.string();
}

}  // namespace millrace
