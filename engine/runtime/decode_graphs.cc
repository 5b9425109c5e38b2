#include "engine/runtime/decode_graphs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

absl::StatusOr<Graph> Captured(Device& device, Stream stream,
                               const DecodeGraphs::Enqueue& enqueue) {
  RETURN_IF_ERROR(enqueue());
  RETURN_IF_ERROR(device.Synchronize(stream));
  RETURN_IF_ERROR(device.BeginCapture(stream));
  const absl::Status status = enqueue();
  // Ends the capture in any case; what failed first says more.
  absl::StatusOr<Graph> graph = device.EndCapture(stream);
  RETURN_IF_ERROR(status);
  return graph;
}

bool IsPlainDecode(const SequencePlan& s) {
  return s.num_tokens() == 1 && s.sample && !s.prompt_logprobs && s.logits_rows.empty();
}

}  // namespace

absl::Status DecodeGraphs::Add(int32_t size, Device& device, Stream stream,
                               const Enqueue& enqueue) {
  absl::StatusOr<Graph> graph = Captured(device, stream, enqueue);
  if (!graph.ok()) {
    return absl::Status(
        graph.status().code(),
        absl::StrCat("capturing a graph of ", size, " sequences: ", graph.status().message(),
                     "; --enforce-eager runs without graphs"));
  }
  graphs_[size] = *std::move(graph);
  return absl::OkStatus();
}

int32_t DecodeGraphs::SizeFor(const StepPlan& plan) const {
  const auto found = graphs_.lower_bound(static_cast<int32_t>(plan.sequences.size()));
  if (found == graphs_.end()) return 0;
  const bool plain = std::all_of(plan.sequences.begin(), plan.sequences.end(), IsPlainDecode);
  return plain ? found->first : 0;
}

absl::Status DecodeGraphs::Launch(int32_t size, Device& device, Stream stream) const {
  return device.Launch(graphs_.at(size), stream);
}

}  // namespace millrace
