// The controller: serves a model to gRPC clients, computed by workers (or, with --local, by
// itself).
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "distributed/session/version.h"
#include "distributed/worker/runner_model.h"
#include "kernels/core/status.h"
#include "kernels/cpu/cpu_device.h"
#include "tools/common/device_name.h"
#include "tools/common/flags.h"
#include "tools/common/terminal.h"
#include "tools/serve/advice.h"
#include "tools/serve/cluster_secret.h"
#include "tools/serve/console.h"
#include "tools/serve/controller_config.h"
#include "tools/serve/controller_process.h"
#include "tools/serve/startup_report.h"
#include "tools/serve/tls_files.h"

ABSL_FLAG(std::string, model, "", "Hugging Face model folder (also the first argument)");
ABSL_FLAG(std::string, tokenizer, "", "folder with tokenizer.json; default: the model's");
ABSL_FLAG(std::string, served_model_name, "", "what clients call it; default: the folder's name");
ABSL_FLAG(std::string, host, "127.0.0.1", "address that clients reach");
ABSL_FLAG(int32_t, port, 50051, "of gRPC; 0 = a free one");
ABSL_FLAG(bool, allow_insecure, false, "allow a --host beyond this machine without TLS");
ABSL_FLAG(std::string, tls_cert, "", "PEM file: certificate of this server");
ABSL_FLAG(std::string, tls_key, "", "PEM file: its key");
ABSL_FLAG(std::string, tls_client_ca, "", "PEM file: clients must show a certificate of this CA");
ABSL_FLAG(bool, grpc_reflection, true, "let grpcurl and the like list the services");
ABSL_FLAG(int32_t, grpc_max_message_bytes, 16 << 20, "largest request");
ABSL_FLAG(int32_t, metrics_port, 9090, "of the Prometheus page; 0 = a free one, -1 = none");
ABSL_FLAG(std::string, metrics_prefix, "millrace:", "of metric names; vllm: suits its dashboards");
ABSL_FLAG(std::string, worker_host, "127.0.0.1", "address that workers reach");
ABSL_FLAG(int32_t, worker_port, 50061, "that workers dial; 0 = a free one");
ABSL_FLAG(std::string, cluster_secret_file, "",
          "shared with the workers; default: in the cache folder");
ABSL_FLAG(bool, local, false, "compute in this process instead of in workers");
ABSL_FLAG(std::string, device, "cpu", "with --local: cpu, cuda or cuda:N");
ABSL_FLAG(int32_t, threads, 0, "with --local: threads to compute with; 0 = all processors");
ABSL_FLAG(int32_t, tensor_parallel_size, 1, "ranks that share the model (-tp, --tp-size)");
ABSL_FLAG(int32_t, pipeline_parallel_size, 1, "1: more is not supported");
ABSL_FLAG(int32_t, data_parallel_size, 1,
          "groups of --tensor-parallel-size ranks, each with its own requests (-dp, --dp-size)");
ABSL_FLAG(std::string, max_model_len, "0",
          "tokens of prompt and answer; 0 = what the model was made for; auto (or -1) = as many of "
          "these as the cache holds");
ABSL_FLAG(int32_t, max_num_seqs, 64, "sequences in a step, of each data-parallel group");
ABSL_FLAG(int32_t, max_num_batched_tokens, 2048, "tokens in a step, of each data-parallel group");
ABSL_FLAG(int32_t, max_waiting, 4096,
          "sequences in the queue of each data-parallel group; more are refused");
ABSL_FLAG(int32_t, block_size, 0, "tokens in a cache block; 0 = what suits the model");
ABSL_FLAG(bool, enforce_eager, false, "on GPUs: no captured graphs");
ABSL_FLAG(bool, disable_custom_all_reduce, false,
          "on GPUs: sum over the ranks by NCCL alone, never over peer memory");
ABSL_FLAG(std::vector<std::string>, cuda_graph_sizes, {},
          "on GPUs: batch sizes to capture decode graphs for; default: up to --max-num-seqs");
ABSL_FLAG(bool, enable_prefix_caching, true, "reuse the cache of prompts that begin alike");
ABSL_FLAG(std::string, dtype, "auto", "of weights: auto, float32, bfloat16");
ABSL_FLAG(std::string, kv_cache_dtype, "auto",
          "of the cache: auto (fp8 where the model is served with it, else as --dtype), float32, "
          "bfloat16, fp8");
ABSL_FLAG(std::string, numerics, "serving",
          "serving or reference (no activation is quantised), where the model has both");
ABSL_FLAG(std::string, quantization, "auto",
          "of a LLaMA's linear layers: auto (as the checkpoint has them), fp8 (those in floats at "
          "load), none (FP8 is held as --dtype); a checkpoint's own method is taken too");
ABSL_FLAG(bool, enable_expert_parallel, false,
          "split routed experts whole over the ranks, instead of each expert");
ABSL_FLAG(std::string, load_format, "auto", "auto, safetensors, dummy (random weights)");
ABSL_FLAG(int32_t, num_gpu_blocks_override, 0, "cache blocks; 0 = by memory");
ABSL_FLAG(int64_t, kv_cache_memory_bytes, 0, "cache of each rank; 0 = by --gpu-memory-utilization");
ABSL_FLAG(double, gpu_memory_utilization, 0,
          "share of the free memory that the caches take; 0: 0.9 of a GPU's, 0.5 of a host's");
ABSL_FLAG(uint64_t, seed, 0, "of dummy weights and of requests without a seed");
ABSL_FLAG(double, startup_timeout, 1800, "seconds until all workers must be ready");
ABSL_FLAG(double, step_timeout, 60, "seconds after which a step has failed");
ABSL_FLAG(double, shutdown_timeout, 30, "seconds that running requests get at the end");

namespace millrace {
namespace {

const FlagAliases kAliases = {{"model_path", "model"},
                              {"m", "model"},
                              {"alias", "served_model_name"},
                              {"tp", "tensor_parallel_size"},
                              {"tp_size", "tensor_parallel_size"},
                              {"pp", "pipeline_parallel_size"},
                              {"pp_size", "pipeline_parallel_size"},
                              {"dp", "data_parallel_size"},
                              {"dp_size", "data_parallel_size"},
                              {"context_length", "max_model_len"},
                              {"max_running_requests", "max_num_seqs"},
                              {"chunked_prefill_size", "max_num_batched_tokens"},
                              {"page_size", "block_size"},
                              {"q", "quantization"},
                              {"mem_fraction_static", "gpu_memory_utilization"},
                              {"cuda_graph_bs", "cuda_graph_sizes"},
                              {"random_seed", "seed"}};

ControllerFlags ReadFlags(const std::vector<std::string>& words) {
  std::string model = absl::GetFlag(FLAGS_model);
  if (model.empty() && !words.empty()) model = words[0];
  return {.model = PathFromUser(model),
          .tokenizer = PathFromUser(absl::GetFlag(FLAGS_tokenizer)),
          .served_model_name = absl::GetFlag(FLAGS_served_model_name),
          .tensor_parallel_size = absl::GetFlag(FLAGS_tensor_parallel_size),
          .pipeline_parallel_size = absl::GetFlag(FLAGS_pipeline_parallel_size),
          .data_parallel_size = absl::GetFlag(FLAGS_data_parallel_size),
          .max_model_len = absl::GetFlag(FLAGS_max_model_len),
          .max_num_seqs = absl::GetFlag(FLAGS_max_num_seqs),
          .max_num_batched_tokens = absl::GetFlag(FLAGS_max_num_batched_tokens),
          .max_waiting = absl::GetFlag(FLAGS_max_waiting),
          .enforce_eager = absl::GetFlag(FLAGS_enforce_eager),
          .cuda_graph_sizes = absl::GetFlag(FLAGS_cuda_graph_sizes),
          .block_size = absl::GetFlag(FLAGS_block_size),
          .enable_prefix_caching = absl::GetFlag(FLAGS_enable_prefix_caching),
          .dtype = absl::GetFlag(FLAGS_dtype),
          .kv_cache_dtype = absl::GetFlag(FLAGS_kv_cache_dtype),
          .numerics = absl::GetFlag(FLAGS_numerics),
          .quantization = absl::GetFlag(FLAGS_quantization),
          .enable_expert_parallel = absl::GetFlag(FLAGS_enable_expert_parallel),
          .load_format = absl::GetFlag(FLAGS_load_format),
          .num_gpu_blocks_override = absl::GetFlag(FLAGS_num_gpu_blocks_override),
          .kv_cache_memory_bytes = absl::GetFlag(FLAGS_kv_cache_memory_bytes),
          .gpu_memory_utilization = absl::GetFlag(FLAGS_gpu_memory_utilization),
          .seed = absl::GetFlag(FLAGS_seed)};
}

absl::StatusOr<ServerOptions> ReadServerOptions() {
  ServerOptions server;
  server.host = absl::GetFlag(FLAGS_host);
  server.port = absl::GetFlag(FLAGS_port);
  server.allow_insecure = absl::GetFlag(FLAGS_allow_insecure);
  ASSIGN_OR_RETURN(server.tls, ReadTlsFiles({.certificate = absl::GetFlag(FLAGS_tls_cert),
                                             .key = absl::GetFlag(FLAGS_tls_key),
                                             .client_ca = absl::GetFlag(FLAGS_tls_client_ca)}));
  server.reflection = absl::GetFlag(FLAGS_grpc_reflection);
  server.max_message_bytes = std::max(absl::GetFlag(FLAGS_grpc_max_message_bytes), 1 << 10);
  server.metrics = absl::GetFlag(FLAGS_metrics_port) >= 0;
  server.metrics_port = std::max(absl::GetFlag(FLAGS_metrics_port), 0);
  server.metrics_prefix = absl::GetFlag(FLAGS_metrics_prefix);
  server.seed = absl::GetFlag(FLAGS_seed);
  server.self_test_timeout = absl::Seconds(absl::GetFlag(FLAGS_step_timeout));
  const auto processors = static_cast<int32_t>(std::thread::hardware_concurrency());
  server.stream_threads = std::clamp(processors / 8, 1, 8);
  server.admission_threads = std::clamp(processors / 8, 1, 4);
  return server;
}

absl::StatusOr<WorkerHubOptions> ReadHubOptions(const ControllerFlags& flags) {
  WorkerHubOptions hub;
  hub.host = absl::GetFlag(FLAGS_worker_host);
  hub.port = absl::GetFlag(FLAGS_worker_port);
  ASSIGN_OR_RETURN(hub.secret, ClusterSecret(absl::GetFlag(FLAGS_cluster_secret_file)));
  hub.build_version = std::string(kBuildVersion);
  hub.custom_all_reduce = !absl::GetFlag(FLAGS_disable_custom_all_reduce);
  if (flags.load_format != "dummy") {
    ASSIGN_OR_RETURN(hub.model_fingerprint,
                     During(StartStep::kWeights, RunnerModelFactory().Fingerprint(flags.model)));
  }
  hub.startup_timeout = absl::Seconds(absl::GetFlag(FLAGS_startup_timeout));
  hub.step_timeout = absl::Seconds(absl::GetFlag(FLAGS_step_timeout));
  return hub;
}

absl::StatusOr<ControllerOptions> ReadOptions(const ControllerFlags& flags) {
  ControllerOptions options;
  ASSIGN_OR_RETURN(options.config, ResolveConfig(flags));
  options.config.model.version = std::string(kBuildVersion);
  ASSIGN_OR_RETURN(options.server, ReadServerOptions());
  options.local = absl::GetFlag(FLAGS_local);
  if (!options.local) {
    ASSIGN_OR_RETURN(options.hub, ReadHubOptions(flags));
  }
  const auto processors = static_cast<int32_t>(std::thread::hardware_concurrency());
  const int32_t threads = absl::GetFlag(FLAGS_threads);
  ASSIGN_OR_RETURN(options.device,
                   During(StartStep::kFlags, ParseDevice(absl::GetFlag(FLAGS_device))));
  options.threads = threads > 0 ? threads : std::max(processors, 1);
  options.shutdown_timeout = absl::Seconds(absl::GetFlag(FLAGS_shutdown_timeout));
  return options;
}

std::string FirstLine() {
  std::string line =
      absl::StrCat("millrace ", std::string(kBuildVersion), ", protocol ", ProtocolRevision());
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  const auto device = CpuDevice::Create(std::max(processors, 1));
  if (!device.ok()) return line;
  const auto properties = (*device)->Properties();
  return properties.ok() ? absl::StrCat(line, ", on ", properties->name) : line;
}

// Signals are taken by a thread of their own: the first one drains, the second ends at once.
void HandleSignals(const sigset_t& signals, ControllerProcess& process) {
  std::thread([signals, &process] {
    int number = 0;
    sigwait(&signals, &number);
    process.Stop();
    sigwait(&signals, &number);
    _exit(128 + number);
  }).detach();
}

int Main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Serves a model over gRPC. Example: controller --model DIR --tensor-parallel-size 2");
  const std::vector<std::string> words = ParseFlags(argc, argv, kAliases);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // in every thread made from here on
  signal(SIGPIPE, SIG_IGN);
  Console console(std::cout, IsTerminal(STDOUT_FILENO));
  console.SayPlain(FirstLine());
  console.Say(absl::StrCat("non-default args: {", absl::StrJoin(NonDefaultFlags(), ", "), "}"));
  absl::StatusOr<ControllerOptions> options = ReadOptions(ReadFlags(words));
  if (!options.ok()) {
    std::cerr << LastWords(options.status()) << std::endl;
    return 1;
  }
  ControllerProcess process(*std::move(options), console);
  HandleSignals(signals, process);
  const absl::Status status = process.Run();
  const bool failed = !status.ok() && status.code() != absl::StatusCode::kCancelled;
  if (failed) std::cerr << LastWords(status) << std::endl;
  if (!failed) console.Say("Done");
  // The thread that waits for signals, and a load that was cut short, know the process.
  std::cout << std::flush;
  _exit(failed ? 1 : 0);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
