// bazel run //tools/bench -- --server 127.0.0.1:50051 --concurrency 1,4,16 --plot load.svg
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <fstream>
#include <iostream>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/bench/load_generator.h"
#include "tools/bench/report.h"
#include "tools/common/flags.h"

ABSL_FLAG(std::string, server, "127.0.0.1:50051", "host:port of a Millrace controller");
ABSL_FLAG(std::vector<std::string>, concurrency, std::vector<std::string>({"1", "4", "16"}),
          "requests in flight; one load point each");
ABSL_FLAG(double, request_rate, 0, "Poisson arrivals a second; 0 = closed loop");
ABSL_FLAG(int32_t, num_prompts, 0, "requests of each load point; 0 = 4 x concurrency, at least 8");
ABSL_FLAG(int32_t, input_len, 128, "prompt tokens (random ids)");
ABSL_FLAG(int32_t, output_len, 64, "tokens to generate");
ABSL_FLAG(uint64_t, seed, 0, "of prompts and arrivals");
ABSL_FLAG(std::string, plot, "", "write an SVG here");
ABSL_FLAG(std::string, csv, "", "write the figures here");

namespace millrace {
namespace {

absl::Status WriteFile(const std::string& path, const std::string& text) {
  const std::string full = PathFromUser(path);
  std::ofstream out(full);
  out << text;
  out.close();
  if (!out) return absl::InternalError(absl::StrCat("cannot write ", full));
  std::cout << "wrote " << full << "\n";
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> ConcurrencyLevels() {
  std::vector<int32_t> levels;
  for (const std::string& text : absl::GetFlag(FLAGS_concurrency)) {
    int32_t level = 0;
    if (!absl::SimpleAtoi(text, &level) || level < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--concurrency: '", text, "' is not a positive number"));
    }
    levels.push_back(level);
  }
  return levels;
}

absl::Status Run() {
  const auto levels = ConcurrencyLevels();
  if (!levels.ok()) return levels.status();
  const std::string server = absl::GetFlag(FLAGS_server);
  auto stub = vllm::grpc::engine::VllmEngine::NewStub(
      grpc::CreateChannel(server, grpc::InsecureChannelCredentials()));
  const auto vocab = VocabularySize(*stub);
  if (!vocab.ok()) {
    return absl::Status(
        vocab.status().code(),
        absl::StrCat("no answer from ", server, ": ", std::string(vocab.status().message()),
                     " (start one with ./tools/quickstart --serve)"));
  }
  LoadOptions options{.request_rate = absl::GetFlag(FLAGS_request_rate),
                      .input_tokens = absl::GetFlag(FLAGS_input_len),
                      .output_tokens = absl::GetFlag(FLAGS_output_len),
                      .seed = absl::GetFlag(FLAGS_seed)};
  std::vector<Summary> points;
  int32_t failed = 0;
  for (int32_t level : *levels) {
    options.concurrency = level;
    const int32_t asked = absl::GetFlag(FLAGS_num_prompts);
    options.num_requests = asked > 0 ? asked : std::max(8, 4 * level);
    std::cerr << "concurrency " << level << ": " << options.num_requests << " requests ..."
              << std::endl;
    points.push_back(Summarize(options, RunLoad(*stub, options, *vocab)));
    failed += points.back().failed;
    ++options.seed;  // other prompts, so that no load point finds the last one's in the cache
  }
  std::cout << FormatTable(points);
  if (const std::string path = absl::GetFlag(FLAGS_csv); !path.empty()) {
    const absl::Status status = WriteFile(path, FormatCsv(points));
    if (!status.ok()) return status;
  }
  if (const std::string path = absl::GetFlag(FLAGS_plot); !path.empty()) {
    const std::string title = absl::StrCat("Millrace at ", server, ": ", options.input_tokens,
                                           " tokens in, ", options.output_tokens, " out");
    const absl::Status status = WriteFile(path, FormatSvg(points, title));
    if (!status.ok()) return status;
  }
  if (failed > 0) return absl::InternalError(absl::StrCat(failed, " requests failed"));
  return absl::OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Load on a running server: tokens/s and latency percentiles.");
  millrace::ParseFlags(argc, argv);
  const absl::Status status = millrace::Run();
  if (status.ok()) return 0;
  std::cerr << "bench: " << status << "\n";
  return 1;
}
