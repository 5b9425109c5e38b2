#include "distributed/controller/frontdoor/served_model.h"

#include <filesystem>
#include <utility>

#include "engine/config/parse.h"
#include "kernels/core/status.h"

namespace millrace {

absl::StatusOr<ServedModel> LoadServedModel(const std::string& model_dir,
                                            const std::string& tokenizer_dir) {
  ServedModel model;
  model.path = model_dir;
  model.tokenizer_path = tokenizer_dir;
  ASSIGN_OR_RETURN(model.config, LoadModelConfig(model_dir));
  ASSIGN_OR_RETURN(model.defaults, LoadGenerationDefaults(model_dir));
  const std::filesystem::path file = std::filesystem::path(tokenizer_dir) / "tokenizer.json";
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return model;
  ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::FromFile(file.string()));
  ASSIGN_OR_RETURN(const TokenizerSettings settings, LoadTokenizerSettings(tokenizer_dir));
  model.chat = RecogniseChat(model.config, settings, *model.tokenizer, model_dir);
  return model;
}

}  // namespace millrace
