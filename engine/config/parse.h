// Hugging Face config files into checked structs. Files come from strangers: every field is checked
// for type and range before anything is allocated by it, and a refusal names file, field, value and
// limit. Pure functions, any thread.
#ifndef ENGINE_CONFIG_PARSE_H_
#define ENGINE_CONFIG_PARSE_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/config/deepseek_v4_config.h"
#include "engine/config/model_config.h"

namespace millrace {

// `where` names the text in messages (a path). InvalidArgument: malformed or out of range.
// Unimplemented: a model, rope type or quantisation that Millrace does not run, by name.
// `hf_quant` is hf_quant_config.json, which folders quantised by ModelOpt have.
absl::StatusOr<ModelConfig> ParseModelConfig(
    std::string_view json, const std::string& where,
    const std::optional<ConfigText>& hf_quant = std::nullopt);
absl::StatusOr<GenerationDefaults> ParseGenerationDefaults(std::string_view json,
                                                           const std::string& where);
absl::StatusOr<TokenizerSettings> ParseTokenizerSettings(std::string_view json,
                                                         const std::string& where);

// `dir` is a checkpoint folder. config.json must be there (NotFound); the other files are optional
// and give empty defaults when absent.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& dir);
absl::StatusOr<GenerationDefaults> LoadGenerationDefaults(const std::string& dir);
// Also takes the chat template from chat_template.jinja, where newer folders keep it.
absl::StatusOr<TokenizerSettings> LoadTokenizerSettings(const std::string& dir);

}  // namespace millrace

#endif  // ENGINE_CONFIG_PARSE_H_
