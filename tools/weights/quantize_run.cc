#include "tools/weights/quantize_run.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/weights/checkpoint.h"
#include "engine/weights/shard_index.h"
#include "kernels/core/status.h"
#include "kernels/cpu/thread_pool.h"
#include "tools/weights/quantize_config.h"
#include "tools/weights/shard_writer.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// Copied tensors pass in pieces, so that the progress moves.
constexpr size_t kCopyBytes = 64 << 20;

// OK when `output` can be made, or taken over empty. `partial` is where it is written first.
absl::Status CheckOutput(const std::string& output, const std::string& partial) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(output, error)) &&
      !(fs::is_directory(output, error) && fs::is_empty(output, error))) {
    return absl::AlreadyExistsError(
        absl::StrCat(output, ": is there and not an empty folder; name another or remove it"));
  }
  if (fs::exists(fs::symlink_status(partial, error))) {
    return absl::AlreadyExistsError(
        absl::StrCat(partial, ": is left from a run that was stopped; remove it"));
  }
  const fs::path parent = fs::absolute(output, error).parent_path();
  if (!fs::is_directory(parent, error)) {
    return absl::NotFoundError(absl::StrCat(parent.string(), ": no such folder to write into"));
  }
  return absl::OkStatus();
}

absl::Status CheckSpace(const std::string& output, int64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(fs::absolute(output, error).parent_path(), error);
  if (error || space.available >= static_cast<uintmax_t>(bytes)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(output, ": takes ", bytes, " bytes, but only ",
                                                   space.available, " are free on its disk"));
}

bool IsWeightsFile(const std::string& name) {
  for (const char* end : {".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json",
                          ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx"}) {
    if (absl::EndsWith(name, end)) return true;
  }
  return false;
}

// Copies what is neither weights nor in `written`; notes what else is not copied.
absl::Status CopyOtherFiles(const std::string& from, const std::string& to,
                            const std::map<std::string, std::string>& written,
                            std::vector<std::string>& left_out) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(from, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code entry_error;
    if (written.count(name) != 0 || absl::EndsWith(name, ".safetensors") ||
        name == "model.safetensors.index.json") {
      continue;
    }
    if (!entry.is_regular_file(entry_error) || IsWeightsFile(name)) {
      left_out.push_back(name);
      continue;
    }
    RETURN_IF_ERROR(CheckInsideFolder(from, name));
    if (!fs::copy_file(entry.path(), fs::path(to) / name, entry_error)) {
      return absl::UnavailableError(
          absl::StrCat(from, "/", name, ": cannot be copied: ", entry_error.message()));
    }
  }
  if (error) return absl::UnavailableError(absl::StrCat(from, ": ", error.message()));
  std::sort(left_out.begin(), left_out.end());
  return absl::OkStatus();
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file.good()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
}

// One run over the planned tensors, into one ShardWriter.
class Run final {
 public:
  Run(const QuantizeOptions& options, const std::vector<PlannedTensor>& plan, ShardWriter& writer,
      QuantizeReport& report)
      : options_(options),
        plan_(plan),
        writer_(writer),
        report_(report),
        pool_(std::clamp(options.threads, 1, ThreadPool::kMaxThreads)) {
    for (const PlannedTensor& tensor : plan) groups_[tensor.group].push_back(tensor.source);
  }

  absl::Status WriteAll() {
    Progress(0);
    for (const PlannedTensor& tensor : plan_) {
      if (tensor.encoding == Encoding::kCopy) {
        RETURN_IF_ERROR(Copy(*tensor.source));
        ++report_.copied;
        continue;
      }
      ASSIGN_OR_RETURN(const float amax, GroupAmax(tensor));
      ASSIGN_OR_RETURN(const QuantError error, Quantize(tensor, amax));
      report_.tensors.push_back({tensor.source->name, tensor.encoding, error});
    }
    return writer_.Finish();
  }

 private:
  void Progress(int64_t bytes) {
    done_ += bytes;
    if (options_.progress) options_.progress(done_, report_.bytes_in);
  }

  absl::Status Copy(const TensorInfo& tensor) {
    for (absl::Span<const std::byte> left = tensor.data; !left.empty();) {
      const absl::Span<const std::byte> part = left.subspan(0, kCopyBytes);
      RETURN_IF_ERROR(writer_.Append(part));
      left.remove_prefix(part.size());
      Progress(static_cast<int64_t>(part.size()));
    }
    return absl::OkStatus();
  }

  // What a scale of the whole tensor needs before the first element is written; 0 for others.
  absl::StatusOr<float> GroupAmax(const PlannedTensor& tensor) {
    if (!NeedsAmax(tensor.encoding)) return 0.0f;
    if (const auto known = amax_.find(tensor.group); known != amax_.end()) return known->second;
    float largest = 0;
    for (const TensorInfo* member : groups_[tensor.group]) {
      ASSIGN_OR_RETURN(const float amax, TensorAmax(*member, pool_));
      largest = std::max(largest, amax);
    }
    amax_[tensor.group] = largest;
    return largest;
  }

  absl::StatusOr<QuantError> Quantize(const PlannedTensor& tensor, float amax) {
    const auto codes = static_cast<double>(tensor.outputs[0].bytes());
    const auto source_bytes = static_cast<double>(tensor.source->data.size());
    int64_t reported = 0;
    double written = 0;
    const auto sink = [&](absl::Span<const std::byte> bytes) {
      // Codes come first and are nearly all; their share is the share of the source.
      written = std::min(written + static_cast<double>(bytes.size()), codes);
      const auto now = static_cast<int64_t>(written / codes * source_bytes);
      Progress(now - reported);
      reported = now;
      return writer_.Append(bytes);
    };
    return QuantizeTensor(tensor, {amax, options_.activation_amax}, pool_, sink);
  }

  const QuantizeOptions& options_;
  const std::vector<PlannedTensor>& plan_;
  ShardWriter& writer_;
  QuantizeReport& report_;
  ThreadPool pool_;
  std::map<std::string, std::vector<const TensorInfo*>> groups_;
  std::map<std::string, float> amax_;
  int64_t done_ = 0;
};

// Everything that goes into the folder.
absl::StatusOr<QuantizeReport> WriteFolder(const QuantizeOptions& options,
                                           const SourceConfig& source,
                                           const std::vector<PlannedTensor>& plan,
                                           const std::string& folder) {
  QuantizeReport report;
  std::vector<OutputTensor> outputs;
  for (const PlannedTensor& tensor : plan) {
    report.bytes_in += static_cast<int64_t>(tensor.source->data.size());
    outputs.insert(outputs.end(), tensor.outputs.begin(), tensor.outputs.end());
  }
  for (const OutputTensor& output : outputs) report.bytes_out += output.bytes();
  RETURN_IF_ERROR(CheckSpace(options.output, report.bytes_out));
  std::error_code error;
  if (!fs::create_directory(folder, error)) {
    return absl::UnavailableError(absl::StrCat(folder, ": cannot be made: ", error.message()));
  }
  const auto configs = QuantizedConfigs(source, options.target, plan);
  for (const auto& [name, text] : configs) {
    RETURN_IF_ERROR(WriteText(absl::StrCat(folder, "/", name), text));
  }
  RETURN_IF_ERROR(CopyOtherFiles(options.input, folder, configs, report.left_out));
  ShardWriter writer(folder, std::move(outputs), options.max_shard_bytes);
  RETURN_IF_ERROR(Run(options, plan, writer, report).WriteAll());
  return report;
}

}  // namespace

absl::StatusOr<QuantizeReport> QuantizeCheckpoint(const QuantizeOptions& options) {
  const std::string partial = absl::StrCat(options.output, ".partial");
  RETURN_IF_ERROR(CheckOutput(options.output, partial));
  ASSIGN_OR_RETURN(const SourceConfig source, ReadSourceConfig(options.input));
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(options.input));
  ASSIGN_OR_RETURN(const std::vector<PlannedTensor> plan,
                   PlanQuantization(*checkpoint, source.layout, options.target));
  absl::StatusOr<QuantizeReport> report = WriteFolder(options, source, plan, partial);
  std::error_code error;
  if (report.ok()) {
    fs::rename(partial, options.output, error);
    if (!error) return report;
    report = absl::UnavailableError(
        absl::StrCat(options.output, ": cannot be put in its place: ", error.message()));
  }
  fs::remove_all(partial, error);
  return report;
}

}  // namespace millrace
