// Quantises a checkpoint folder into another.
#ifndef TOOLS_WEIGHTS_QUANTIZE_RUN_H_
#define TOOLS_WEIGHTS_QUANTIZE_RUN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/weights/quantize_plan.h"
#include "tools/weights/quantize_tensor.h"

namespace millrace {

struct QuantizeOptions {
  std::string input;   // folders
  std::string output;  // missing, or empty
  QuantTarget target = QuantTarget::kFp8;
  int threads = 1;
  int64_t max_shard_bytes = 5'000'000'000;
  // Activations that an input_scale lets through, which is not calibrated.
  float activation_amax = 256;
  // Called now and then with the bytes of weights read, and of all; may be empty.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

struct QuantizeReport {
  struct Tensor {
    std::string name;
    Encoding encoding;
    QuantError error;
  };
  std::vector<Tensor> tensors;  // those that were quantised, in the order of the files
  int64_t copied = 0;           // tensors
  int64_t bytes_in = 0;         // of weights
  int64_t bytes_out = 0;
  std::vector<std::string> left_out;  // names in the input folder that were not copied
};

// The output folder appears whole or not at all: it is written beside its place, under its name and
// ".partial", and renamed. Besides weights and configuration it has copies of the input's other
// files, but not its subfolders and weights in other formats.
// Errors: those of Checkpoint::Open, ReadSourceConfig and PlanQuantization, before anything is
// written; AlreadyExists: the output is not an empty folder, or an earlier ".partial" is there;
// ResourceExhausted: no room on the disk; QuantizeTensor's; Unavailable: files cannot be written.
absl::StatusOr<QuantizeReport> QuantizeCheckpoint(const QuantizeOptions& options);

}  // namespace millrace

#endif  // TOOLS_WEIGHTS_QUANTIZE_RUN_H_
