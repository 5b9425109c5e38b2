// golden DIR: runs a checkpoint folder through the engine and compares it with reference outputs.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/runner_config.h"
#include "kernels/core/status.h"
#include "tools/common/device_name.h"
#include "tools/common/flags.h"
#include "tools/golden/golden_run.h"
#include "tools/golden/report.h"
#include "tools/golden/text_check.h"

ABSL_FLAG(std::string, golden, "", "file with reference outputs; empty: golden.json in the folder");
ABSL_FLAG(std::string, device, "cpu", "where to compute: cpu, cuda or cuda:N");
ABSL_FLAG(bool, enforce_eager, false, "on a GPU: no captured graphs");
ABSL_FLAG(std::string, dtype, "float32", "of weights: float32 or bfloat16");
ABSL_FLAG(std::string, kv_cache_dtype, "auto",
          "of the cache: auto (as --dtype; with --numerics=serving what the model is served with), "
          "float32, bfloat16 or fp8");
ABSL_FLAG(std::string, numerics, "reference", "reference, or serving where the model has it");
ABSL_FLAG(bool, quantize, false,
          "FP8 weights from floats at load (LLaMA), and serving numerics, as serve's "
          "--quantization=fp8");
ABSL_FLAG(int32_t, tensor_parallel_size, 1, "ranks that share the model");
ABSL_FLAG(bool, enable_expert_parallel, false,
          "split experts over the ranks (models with experts)");
ABSL_FLAG(int32_t, data_parallel_size, 1,
          "groups of ranks, each with its own share of the cases; they step together");
ABSL_FLAG(int32_t, chunk, 0, "most prompt tokens of one sequence in a step; 0: whole prompts");
ABSL_FLAG(bool, prefix_cache, true, "reuse cached prefixes, and run all cases again for hits");
ABSL_FLAG(int32_t, num_pages, 0,
          "of the cache; 0: room for all cases at once. Fewer preempt sequences");
ABSL_FLAG(bool, processes, false, "run each rank as a worker process of its own");
ABSL_FLAG(double, tolerance, 5e-4, "largest logit error that passes");
ABSL_FLAG(int32_t, threads, 0, "CPU threads of all ranks together; 0: as many as the machine has");

namespace millrace {
namespace {

constexpr int kDiffers = 1;
constexpr int kCannotRun = 2;

absl::Status CheckFlags() {
  if (absl::GetFlag(FLAGS_data_parallel_size) < 1) {
    return absl::InvalidArgumentError("--data-parallel-size: want at least 1");
  }
  if (absl::GetFlag(FLAGS_tensor_parallel_size) < 1) {
    return absl::InvalidArgumentError("--tensor-parallel-size: want at least 1");
  }
  for (const auto& [name, value] : {std::pair("--chunk", absl::GetFlag(FLAGS_chunk)),
                                    std::pair("--num-pages", absl::GetFlag(FLAGS_num_pages))}) {
    if (value < 0) return absl::InvalidArgumentError(absl::StrCat(name, ": want 0 or more"));
  }
  if (!(absl::GetFlag(FLAGS_tolerance) >= 0)) {
    return absl::InvalidArgumentError("--tolerance: want 0 or more");
  }
  return absl::OkStatus();
}

absl::Status ReadNumerics(GoldenOptions& options) {
  const std::string numerics = absl::GetFlag(FLAGS_numerics);
  const std::optional<Numerics> known = NumericsFromName(numerics);
  if (!known.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--numerics ", numerics, ": want reference or serving"));
  }
  options.quantize = absl::GetFlag(FLAGS_quantize);
  options.numerics = options.quantize ? Numerics::kServing : *known;
  const std::string cache = absl::GetFlag(FLAGS_kv_cache_dtype);
  if (cache == "auto") return absl::OkStatus();
  options.kv_dtype = CacheDTypeFromName(cache);
  if (options.kv_dtype.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--kv-cache-dtype ", cache, ": want auto, float32, bfloat16 or fp8"));
}

absl::StatusOr<GoldenOptions> OptionsFromFlags(const std::string& dir) {
  RETURN_IF_ERROR(CheckFlags());
  GoldenOptions options;
  options.model_dir = PathFromUser(dir);
  const std::string dtype = absl::GetFlag(FLAGS_dtype);
  if (dtype != "float32" && dtype != "bfloat16") {
    return absl::InvalidArgumentError(
        absl::StrCat("--dtype ", dtype, ": want float32 or bfloat16"));
  }
  options.dtype = dtype == "float32" ? DType::kF32 : DType::kBF16;
  RETURN_IF_ERROR(ReadNumerics(options));
  options.expert_parallel = absl::GetFlag(FLAGS_enable_expert_parallel);
  options.num_pages = absl::GetFlag(FLAGS_num_pages);
  ASSIGN_OR_RETURN(options.device, ParseDevice(absl::GetFlag(FLAGS_device)));
  options.enforce_eager = absl::GetFlag(FLAGS_enforce_eager);
  options.tensor_parallel_size = absl::GetFlag(FLAGS_tensor_parallel_size);
  options.data_parallel_size = absl::GetFlag(FLAGS_data_parallel_size);
  options.chunk = absl::GetFlag(FLAGS_chunk);
  options.prefix_cache = absl::GetFlag(FLAGS_prefix_cache);
  if (absl::GetFlag(FLAGS_processes)) {
    // Beside this program in a bundle; else both are built into bin/tools.
    const std::filesystem::path here = std::filesystem::canonical("/proc/self/exe").parent_path();
    std::filesystem::path worker = here / "worker";
    if (!std::filesystem::exists(worker)) worker = here.parent_path() / "serve" / "worker";
    options.worker_binary = worker.string();
  }
  const int32_t threads = absl::GetFlag(FLAGS_threads);
  const int32_t machine = static_cast<int32_t>(std::thread::hardware_concurrency());
  options.threads = threads > 0 ? threads : std::max(1, machine);
  return options;
}

absl::StatusOr<PassReport> RunPass(Engine& engine, const std::vector<GoldenCase>& cases,
                                   const std::string& name, bool with_logits) {
  PassReport pass;
  pass.name = name;
  ASSIGN_OR_RETURN(pass.outputs, RunCases(engine, cases, with_logits));
  for (size_t i = 0; i < cases.size(); ++i) {
    pass.cases.push_back(Compare(cases[i], pass.outputs[i]));
  }
  return pass;
}

// True when all texts are right, or the folder has no tokenizer to check them with.
absl::StatusOr<bool> RunTextCheck(const std::string& model_dir,
                                  const std::vector<GoldenCase>& cases) {
  ASSIGN_OR_RETURN(const std::optional<TextChecker> checker, TextChecker::Load(model_dir));
  if (!checker.has_value()) {
    std::cout << "text: not checked, the folder has no tokenizer.json\n";
    return true;
  }
  const TextReport report = checker->Check(cases);
  for (const std::string& mistake : report.mistakes) std::cout << "text: " << mistake << "\n";
  std::cout << "text: " << report.checked << " prompts, id lists and answers compared, "
            << report.mistakes.size() << " wrong\n";
  return report.mistakes.empty();
}

absl::StatusOr<bool> Run(const std::string& dir) {
  ASSIGN_OR_RETURN(const GoldenOptions options, OptionsFromFlags(dir));
  const std::string golden = absl::GetFlag(FLAGS_golden);
  ASSIGN_OR_RETURN(const std::vector<GoldenCase> cases,
                   ReadGolden(golden.empty() ? absl::StrCat(options.model_dir, "/golden.json")
                                             : PathFromUser(golden)));
  const double tolerance = absl::GetFlag(FLAGS_tolerance);
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, MakeEngine(options, cases));
  std::cout << absl::StrFormat(
      "%s: %s on %s, %s numerics, tensor parallel %d%s%s%s, %s, prefix cache %s\n", dir,
      std::string(DTypeName(options.dtype)), absl::GetFlag(FLAGS_device),
      std::string(NumericsName(options.numerics)), options.tensor_parallel_size,
      options.data_parallel_size > 1 ? absl::StrCat(" in ", options.data_parallel_size, " groups")
                                     : "",
      options.expert_parallel ? " with expert parallel" : "",
      options.worker_binary.empty() ? "" : " (processes)",
      options.chunk > 0 ? absl::StrCat("chunks of ", options.chunk) : "whole prompts",
      options.prefix_cache ? "on" : "off");
  if (options.numerics == Numerics::kServing) {
    std::cout << "The references are of unrounded arithmetic: what serving numerics round shows as "
                 "error, to be judged by --tolerance\n";
  }

  ASSIGN_OR_RETURN(const bool text_right, RunTextCheck(options.model_dir, cases));
  std::vector<PassReport> passes;
  ASSIGN_OR_RETURN(PassReport first, RunPass(*engine, cases, "first", /*with_logits=*/true));
  std::cout << FormatPass(first, cases, tolerance);
  passes.push_back(std::move(first));
  if (options.prefix_cache) {
    ASSIGN_OR_RETURN(PassReport again, RunPass(*engine, cases, "again", /*with_logits=*/false));
    std::cout << FormatPass(again, cases, tolerance);
    passes.push_back(std::move(again));
  }
  if (options.num_pages > 0) {
    std::cout << absl::StrCat("preemptions: ", engine->Stats().scheduler.preemptions, "\n");
  }
  const Verdict verdict = Judge(passes, tolerance);
  std::cout << verdict.line << (text_right ? "" : "; text WRONG") << std::endl;
  return verdict.passed && text_right;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "golden DIR [flags]: compares a checkpoint folder's outputs with its golden.json. Exits 0 "
      "when "
      "all cases pass, 1 when one does not, 2 when they cannot be run.");
  const std::vector<std::string> arguments = millrace::ParseFlags(argc, argv);
  if (arguments.size() != 1) {
    std::cerr << "golden: want one folder, got " << arguments.size() << "; see --help\n";
    return millrace::kCannotRun;
  }
  const absl::StatusOr<bool> passed = millrace::Run(arguments[0]);
  if (!passed.ok()) {
    std::cerr << "golden: " << passed.status().message() << "\n";
    return millrace::kCannotRun;
  }
  return *passed ? 0 : millrace::kDiffers;
}
