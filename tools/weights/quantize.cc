// Turns a bf16 checkpoint folder into FP8, MXFP4 or NVFP4.
//
//   bazel run -c opt //tools/weights:quantize -- --format mxfp4 IN_DIR OUT_DIR
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/core/status.h"
#include "tools/common/flags.h"
#include "tools/common/terminal.h"
#include "tools/weights/quantize_run.h"

ABSL_FLAG(std::string, format, "",
          "fp8 (128 x 128 blocks), fp8-ct (compressed-tensors, a scale for each output), "
          "fp8-ct-tensor (a "
          "scale for each matrix), fp8-modelopt (the same, NVIDIA's names), mxfp4, nvfp4 (NVIDIA's "
          "names) "
          "or nvfp4-ct (compressed-tensors')");
ABSL_FLAG(double, activation_amax, 256,
          "of formats with input_scale: the largest activation that passes");
ABSL_FLAG(int, threads, 0, "threads that quantise (default: one for each processor)");
ABSL_FLAG(double, shard_gb, 5, "size of an output file at most, in GB");

namespace millrace {
namespace {

void PrintReport(const QuantizeReport& report, QuantTarget target) {
  size_t width = std::string("tensor").size();
  for (const QuantizeReport::Tensor& tensor : report.tensors) {
    width = std::max(width, tensor.name.size());
  }
  const int column = static_cast<int>(width);
  std::cout << absl::StrFormat("%-*s  %-8s  %10s  %10s\n", column, "tensor", "format", "max error",
                               "rel. RMS");
  QuantError total;
  for (const QuantizeReport::Tensor& tensor : report.tensors) {
    std::cout << absl::StrFormat(
        "%-*s  %-8s  %10.3e  %10.3e\n", column, absl::Utf8SafeCHexEscape(tensor.name),
        std::string(EncodingName(tensor.encoding)), tensor.error.max, tensor.error.relative_rms());
    total.Add(tensor.error);
  }
  std::cout << absl::StrFormat("%-*s  %-8s  %10.3e  %10.3e\n", column, "all of these", "",
                               total.max, total.relative_rms());
  std::cout << absl::StrFormat("%d tensors quantised, %d copied, %s to %s\n", report.tensors.size(),
                               report.copied, BytesText(static_cast<double>(report.bytes_in)),
                               BytesText(static_cast<double>(report.bytes_out)));
  const bool has_input_scales = std::any_of(
      report.tensors.begin(), report.tensors.end(),
      [target](const QuantizeReport::Tensor& t) { return HasInputScale(t.encoding, target); });
  if (has_input_scales) {
    std::cout << "input_scale is not calibrated: it lets activations up to --activation-amax "
                 "through\n";
  }
  if (!report.left_out.empty()) {
    std::cout << "not copied: " << absl::Utf8SafeCHexEscape(absl::StrJoin(report.left_out, ", "))
              << "\n";
  }
}

absl::Status Main(const std::vector<std::string>& folders) {
  QuantizeOptions options = {.input = PathFromUser(folders[0]), .output = PathFromUser(folders[1])};
  while (options.output.size() > 1 && options.output.back() == '/') options.output.pop_back();
  ASSIGN_OR_RETURN(options.target, ParseQuantTarget(absl::GetFlag(FLAGS_format)));
  const double shard_gb = absl::GetFlag(FLAGS_shard_gb);
  if (!(shard_gb > 0 && shard_gb < 1e6)) {
    return absl::InvalidArgumentError("--shard-gb wants a number above 0 and below a million");
  }
  options.max_shard_bytes = static_cast<int64_t>(shard_gb * 1e9);
  options.activation_amax = static_cast<float>(absl::GetFlag(FLAGS_activation_amax));
  if (!(options.activation_amax > 0 && options.activation_amax < 1e30f)) {
    return absl::InvalidArgumentError("--activation-amax wants a number above 0 and below 1e30");
  }
  options.threads = absl::GetFlag(FLAGS_threads);
  if (options.threads <= 0) options.threads = static_cast<int>(std::thread::hardware_concurrency());
  ProgressBar bar("Quantising", std::cerr, IsTerminal(STDERR_FILENO));
  options.progress = [&bar](int64_t done, int64_t total) { bar.Update(done, total); };
  const absl::StatusOr<QuantizeReport> report = QuantizeCheckpoint(options);
  bar.Finish();
  RETURN_IF_ERROR(report.status());
  PrintReport(*report, options.target);
  return absl::OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "quantize --format FORMAT IN_DIR OUT_DIR\n"
      "Quantises a bf16 or f32 checkpoint folder of a LLaMA or DeepSeek-V4 model.");
  const std::vector<std::string> folders = millrace::ParseFlags(argc, argv);
  if (folders.size() != 2) {
    std::cerr << "usage: quantize --format FORMAT IN_DIR OUT_DIR\n";
    return 2;
  }
  const absl::Status status = millrace::Main(folders);
  if (status.ok()) return 0;
  std::cerr << "quantize: " << status.message() << "\n";
  return 1;
}
