#include "tools/serve/controller_config.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/models/load_model.h"
#include "engine/parallel/shard.h"
#include "kernels/core/status.h"
#include "tools/serve/advice.h"

namespace millrace {
namespace {

absl::Status CheckModelFolder(const std::string& model) {
  if (model.empty()) {
    return absl::InvalidArgumentError("--model: give a Hugging Face model folder");
  }
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::path(model) / "config.json", error)) {
    return absl::NotFoundError(absl::StrCat(
        "--model: ", model, " is no Hugging Face model folder: it has no config.json"));
  }
  return absl::OkStatus();
}

// A folder that the user named; the model's own may lack a tokenizer.
absl::Status CheckTokenizerFolder(const std::string& folder) {
  std::error_code error;
  if (folder.empty() ||
      std::filesystem::exists(std::filesystem::path(folder) / "tokenizer.json", error)) {
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("--tokenizer: ", folder, " holds no tokenizer.json"));
}

// What every model of a family needs; the rest is tried by the ranks, before they read weights.
absl::Status CheckSplit(const ModelConfig& config, int32_t ranks) {
  constexpr char kFlag[] = "--tensor-parallel-size=";
  if (!config.deepseek_v4.has_value()) {
    const auto heads = ShardHeads(config.num_heads, config.num_kv_heads, ranks, /*rank=*/0);
    if (heads.ok()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(kFlag, ranks, ": ", heads.status().message()));
  }
  const std::pair<const char*, int32_t> wholes[] = {
      {"attention heads (num_attention_heads)", config.deepseek_v4->num_heads},
      {"output groups (o_groups)", config.deepseek_v4->o_groups}};
  for (const auto& [what, count] : wholes) {
    if (count % ranks == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(kFlag, ranks, " does not divide the model's ", count, " ", what));
  }
  return absl::OkStatus();
}

struct IntRange {
  const char* flag;
  int64_t value;
  int64_t low;
  int64_t high;
};

absl::Status CheckRanges(const ControllerFlags& f) {
  constexpr int64_t kMany = int64_t{1} << 20;
  const IntRange ranges[] = {
      {"tensor-parallel-size", f.tensor_parallel_size, 1, 1024},
      {"data-parallel-size", f.data_parallel_size, 1, 1024},
      {"max-num-seqs", f.max_num_seqs, 1, 65536},
      {"max-num-batched-tokens", f.max_num_batched_tokens, 1, kMany},
      {"max-waiting", f.max_waiting, 1, kMany},
      {"block-size", f.block_size, 0, 4096},
      {"num-gpu-blocks-override", f.num_gpu_blocks_override, 0, int64_t{1} << 30},
      {"kv-cache-memory-bytes", f.kv_cache_memory_bytes, 0, int64_t{1} << 50},
  };
  for (const IntRange& r : ranges) {
    if (r.value >= r.low && r.value <= r.high) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", r.flag, "=", r.value, " must be in [", r.low, ", ", r.high, "]"));
  }
  if (!(f.gpu_memory_utilization >= 0 && f.gpu_memory_utilization <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gpu-memory-utilization=", f.gpu_memory_utilization,
                     " must be from 0 (the default share) to 1"));
  }
  if (f.max_num_batched_tokens < f.max_num_seqs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max-num-batched-tokens=", f.max_num_batched_tokens, " is less than --max-num-seqs=",
        f.max_num_seqs, ": a step could not advance every sequence by one token"));
  }
  return absl::OkStatus();
}

absl::Status CheckNotBuilt(const ControllerFlags& f) {
  if (f.pipeline_parallel_size != 1) {
    return absl::UnimplementedError(
        absl::StrCat("--pipeline-parallel-size=", f.pipeline_parallel_size,
                     " is not supported; split the model with --tensor-parallel-size"));
  }
  return absl::OkStatus();
}

absl::StatusOr<DType> ParseDType(const std::string& name, DType automatic) {
  if (name == "auto") return automatic;
  if (name == "float32" || name == "float") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  return absl::InvalidArgumentError(
      absl::StrCat("--dtype=", name, " is not supported: auto, float32 or bfloat16"));
}

absl::StatusOr<DType> ParseCacheDType(const std::string& name, DType automatic) {
  if (name == "auto") return automatic;
  const std::optional<DType> dtype = CacheDTypeFromName(name);
  if (dtype.has_value()) return *dtype;
  return absl::InvalidArgumentError(
      absl::StrCat("--kv-cache-dtype=", name, " is not supported: auto, float32, bfloat16 or fp8"));
}

absl::StatusOr<Numerics> ParseNumerics(const std::string& name) {
  const std::optional<Numerics> numerics = NumericsFromName(name);
  if (numerics.has_value()) return *numerics;
  return absl::InvalidArgumentError(
      absl::StrCat("--numerics=", name, " is not supported: serving or reference"));
}

// Settles the numerics too: a LLaMA has serving ones where its weights are FP8.
absl::Status ResolveQuantization(const std::string& name, const ModelConfig& config,
                                 RunnerConfig& runner) {
  const auto refuse = [&name](const std::string& reason) {
    return absl::InvalidArgumentError(absl::StrCat("--quantization=", name, ": ", reason));
  };
  const bool known = name == "auto" || name == "none" || name == "fp8" ||
                     name == "compressed-tensors" || name == "modelopt";
  if (!known) return refuse("want auto, none, fp8, or the checkpoint's own method");
  if (config.family != ModelFamily::kLlama) {
    return name == "auto" ? absl::OkStatus()
                          : refuse("this model is served in the formats of its checkpoint");
  }
  const bool wants_reference = runner.numerics == Numerics::kReference;
  if (!config.fp8.has_value()) {
    if (name == "compressed-tensors" || name == "modelopt") {
      return refuse("the checkpoint is not quantised");
    }
    runner.quantize = name == "fp8";
    if (runner.quantize && wants_reference) {
      return refuse("its activations are FP8 too, which --numerics=reference rules out");
    }
    // Without FP8 weights there is one arithmetic, whatever was asked for.
    if (!runner.quantize) runner.numerics = Numerics::kReference;
    return absl::OkStatus();
  }
  if (name == "none") runner.numerics = Numerics::kReference;
  if (name == "auto" || name == "none" || name == config.fp8->method) return absl::OkStatus();
  // FP8 is FP8, whoever wrote it.
  return name == "fp8" ? absl::OkStatus()
                       : refuse(absl::StrCat("the checkpoint is of ", config.fp8->method));
}

absl::StatusOr<LoadFormat> ParseLoadFormat(const std::string& name) {
  if (name == "auto" || name == "safetensors") return LoadFormat::kSafetensors;
  if (name == "dummy") return LoadFormat::kDummy;
  return absl::InvalidArgumentError(
      absl::StrCat("--load-format=", name, " is not supported: auto, safetensors or dummy"));
}

absl::Status ResolveMaxModelLen(const std::string& flag, const ModelConfig& config,
                                RunnerConfig& runner) {
  runner.max_model_len = config.max_position;
  runner.fit_model_len = flag == "auto" || flag == "-1";
  if (runner.fit_model_len) return absl::OkStatus();
  int32_t tokens = 0;
  if (!absl::SimpleAtoi(flag, &tokens) || tokens < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max-model-len=", flag, " must be a number of tokens, 0 or auto"));
  }
  if (tokens > config.max_position) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max-model-len=", tokens, " exceeds the ", config.max_position,
        " positions the model was made for (max_position_embeddings in its config.json)"));
  }
  if (tokens > 0) runner.max_model_len = tokens;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> ParseGraphSizes(const ControllerFlags& f) {
  std::vector<int32_t> sizes;
  for (const std::string& text : f.cuda_graph_sizes) {
    int32_t size = 0;
    if (!absl::SimpleAtoi(text, &size) || size < 1 || size > f.max_num_seqs) {
      return absl::InvalidArgumentError(
          absl::StrCat("--cuda-graph-sizes: '", text,
                       "', want numbers from 1 to --max-num-seqs=", f.max_num_seqs));
    }
    sizes.push_back(size);
  }
  return sizes;
}

absl::StatusOr<RunnerConfig> ResolveRunner(const ControllerFlags& f, const ModelConfig& config) {
  RunnerConfig runner;
  runner.model_dir = f.model;
  ASSIGN_OR_RETURN(runner.load_format, ParseLoadFormat(f.load_format));
  const DType own = config.dtype == DType::kF32 ? DType::kF32 : DType::kBF16;
  ASSIGN_OR_RETURN(runner.dtype, ParseDType(f.dtype, own));
  ASSIGN_OR_RETURN(runner.numerics, ParseNumerics(f.numerics));
  RETURN_IF_ERROR(ResolveQuantization(f.quantization, config, runner));
  ASSIGN_OR_RETURN(
      runner.kv_dtype,
      ParseCacheDType(f.kv_cache_dtype, DefaultCacheDType(config, runner.numerics, runner.dtype)));
  runner.expert_parallel = f.enable_expert_parallel;
  runner.data_parallel_size = f.data_parallel_size;
  RETURN_IF_ERROR(ResolveMaxModelLen(f.max_model_len, config, runner));
  runner.page_tokens = f.block_size > 0 ? f.block_size : DefaultPageTokens(config);
  runner.max_num_seqs = f.max_num_seqs;
  runner.max_num_batched_tokens = f.max_num_batched_tokens;
  runner.seed = f.seed;
  runner.enforce_eager = f.enforce_eager;
  ASSIGN_OR_RETURN(runner.cuda_graph_sizes, ParseGraphSizes(f));
  return runner;
}

std::string FolderName(const std::string& path) {
  const std::filesystem::path folder(path);
  const std::filesystem::path name =
      folder.filename().empty() ? folder.parent_path().filename() : folder.filename();
  return name.empty() ? path : name.string();
}

void FillServed(const ControllerFlags& f, const RunnerConfig& runner, ServedModel& model) {
  model.name = f.served_model_name.empty() ? FolderName(f.model) : f.served_model_name;
  model.max_model_len = runner.max_model_len;
  model.block_size = runner.page_tokens;
  model.max_num_seqs = runner.max_num_seqs;
  model.data_parallel_size = runner.data_parallel_size;
  model.dtype = std::string(DTypeName(runner.dtype));
  model.kv_cache_dtype = std::string(CacheDTypeName(runner.kv_dtype));
  model.attention_backend = "MILLRACE_PAGED";
}

}  // namespace

absl::StatusOr<ControllerConfig> ResolveConfig(const ControllerFlags& flags) {
  RETURN_IF_ERROR(During(StartStep::kFlags, CheckNotBuilt(flags)));
  RETURN_IF_ERROR(During(StartStep::kFlags, CheckRanges(flags)));
  RETURN_IF_ERROR(During(StartStep::kModel, CheckModelFolder(flags.model)));
  ControllerConfig config;
  ASSIGN_OR_RETURN(config.model, During(StartStep::kModel, LoadUntokenizedModel(flags.model)));
  const std::string& tokenizer = flags.tokenizer.empty() ? flags.model : flags.tokenizer;
  RETURN_IF_ERROR(During(StartStep::kTokenizer, CheckTokenizerFolder(flags.tokenizer)));
  RETURN_IF_ERROR(During(StartStep::kTokenizer, AddTokenizer(tokenizer, config.model)));
  RETURN_IF_ERROR(
      During(StartStep::kSplit, CheckSplit(config.model.config, flags.tensor_parallel_size)));
  ASSIGN_OR_RETURN(config.runner,
                   During(StartStep::kFlags, ResolveRunner(flags, config.model.config)));
  FillServed(flags, config.runner, config.model);
  config.scheduler.page_tokens = config.runner.page_tokens;
  config.scheduler.max_num_seqs = config.runner.max_num_seqs;
  config.scheduler.max_num_batched_tokens = config.runner.max_num_batched_tokens;
  config.scheduler.max_model_len = config.runner.max_model_len;
  config.scheduler.max_waiting = flags.max_waiting;
  config.scheduler.enable_prefix_caching = flags.enable_prefix_caching;
  config.scheduler.data_parallel_size = config.runner.data_parallel_size;
  config.tensor_parallel_size = flags.tensor_parallel_size;
  config.num_pages = flags.num_gpu_blocks_override;
  config.kv_cache_memory_bytes = flags.kv_cache_memory_bytes;
  config.memory_utilization = flags.gpu_memory_utilization;
  return config;
}

}  // namespace millrace
