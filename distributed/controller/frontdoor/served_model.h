// What the front door knows about the model it answers for.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_SERVED_MODEL_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_SERVED_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/chat/chat_template.h"
#include "engine/config/model_config.h"
#include "engine/tokenizer/tokenizer.h"

namespace millrace {

struct ServedModel {
  std::string name;  // what clients call it
  std::string path;  // folder of the checkpoint
  std::string tokenizer_path;
  ModelConfig config;
  GenerationDefaults defaults;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: token prompts only, no text
  std::optional<ChatTemplate> chat;            // none: messages are refused
  int32_t max_model_len = 0;
  int32_t block_size = 16;
  int32_t max_num_seqs = 0;  // of a group
  int32_t data_parallel_size = 1;
  std::string dtype;           // "bfloat16"
  std::string kv_cache_dtype;  // "auto" or a type
  std::string attention_backend;
  std::string version;
};

// Reads config, generation settings, tokenizer and chat template of a folder. A folder without
// tokenizer.json, or whose chat template is not known, is served without them.
absl::StatusOr<ServedModel> LoadServedModel(const std::string& model_dir,
                                            const std::string& tokenizer_dir);

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_SERVED_MODEL_H_
