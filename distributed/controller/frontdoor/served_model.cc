#include "distributed/controller/frontdoor/served_model.h"

#include <filesystem>
#include <utility>

#include "engine/config/parse.h"
#include "kernels/core/status.h"

namespace millrace {

absl::StatusOr<ServedModel> LoadUntokenizedModel(const std::string& model_dir) {
  ServedModel model;
  model.path = model_dir;
  ASSIGN_OR_RETURN(model.config, LoadModelConfig(model_dir));
  ASSIGN_OR_RETURN(model.defaults, LoadGenerationDefaults(model_dir));
  return model;
}

absl::Status AddTokenizer(const std::string& tokenizer_dir, ServedModel& model) {
  model.tokenizer_path = tokenizer_dir;
  const std::filesystem::path file = std::filesystem::path(tokenizer_dir) / "tokenizer.json";
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return absl::OkStatus();
  ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::FromFile(file.string()));
  ASSIGN_OR_RETURN(const TokenizerSettings settings, LoadTokenizerSettings(tokenizer_dir));
  model.chat = RecogniseChat(model.config, settings, *model.tokenizer, model.path);
  return absl::OkStatus();
}

absl::StatusOr<ServedModel> LoadServedModel(const std::string& model_dir,
                                            const std::string& tokenizer_dir) {
  ASSIGN_OR_RETURN(ServedModel model, LoadUntokenizedModel(model_dir));
  RETURN_IF_ERROR(AddTokenizer(tokenizer_dir, model));
  return model;
}

}  // namespace millrace
