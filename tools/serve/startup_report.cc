#include "tools/serve/startup_report.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/serve/advice.h"

namespace millrace {
namespace {

double GiB(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

}  // namespace

std::string WithCommas(int64_t number) {
  std::string text = absl::StrCat(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first + 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

std::string WorldTable(const std::vector<RankInfo>& ranks) {
  size_t host_width = std::string_view("host").size();
  size_t transport_width = std::string_view("transport").size();
  for (const RankInfo& r : ranks) {
    host_width = std::max(host_width, r.host.size());
    transport_width = std::max(transport_width, r.transport.size());
  }
  const auto host = static_cast<int>(host_width);
  const auto transport = static_cast<int>(transport_width);
  std::string table = absl::StrFormat("rank  %-*s  %7s  %-*s  %s", host, "host", "pid", transport,
                                      "transport", "device");
  for (const RankInfo& r : ranks) {
    absl::StrAppend(&table, absl::StrFormat("\n%4d  %-*s  %7d  %-*s  %s", r.rank, host, r.host,
                                            r.pid, transport, r.transport, r.device));
  }
  return table;
}

std::string ModelLenLine(int32_t num_pages, const RunnerConfig& config) {
  const int32_t chosen = ModelLenFor(config, num_pages);
  const std::string why =
      chosen == config.max_model_len
          ? std::string("what the model was made for")
          : absl::StrCat("what the cache holds, of ", WithCommas(config.max_model_len),
                         " that the model was made for");
  return absl::StrCat("Maximum model length (auto): ", WithCommas(chosen), " tokens, ", why);
}

std::string MemoryReport(const RankMemory& memory, int32_t num_pages, const RunnerConfig& config) {
  const int64_t tokens = static_cast<int64_t>(num_pages) * config.page_tokens;
  const int32_t model_len = ModelLenFor(config, num_pages);
  std::string text = absl::StrFormat(
      "Model weights take %.2f GiB; activations peak %.2f GiB; KV cache %.2f GiB of %.2f free "
      "(rank 0)",
      GiB(memory.weight_bytes), GiB(memory.workspace_bytes), GiB(memory.bytes_per_page * num_pages),
      GiB(memory.available_bytes));
  absl::StrAppend(
      &text,
      absl::StrFormat("\nKV cache of %s rows: %s bytes in a page of %d tokens, %.2f a token; "
                      "%s numerics",
                      std::string(CacheDTypeName(config.kv_dtype)),
                      WithCommas(memory.bytes_per_page), config.page_tokens,
                      static_cast<double>(memory.bytes_per_page) / config.page_tokens,
                      std::string(NumericsName(config.numerics))));
  if (memory.skipped_tensors > 0) {
    absl::StrAppend(&text, "\nSkipped ", WithCommas(memory.skipped_tensors),
                    " tensors of the checkpoint that the model does not use (multi-token "
                    "prediction, rotary tables, scales of a cache of codes)");
  }
  absl::StrAppend(&text, "\nGPU KV cache size: ", WithCommas(tokens), " tokens");
  absl::StrAppend(&text, absl::StrFormat("\nMaximum concurrency for %s tokens per request: %.2fx",
                                         WithCommas(model_len),
                                         static_cast<double>(tokens) / std::max(model_len, 1)));
  if (config.data_parallel_size > 1) {
    absl::StrAppend(&text, "\nCache and concurrency are those of each of ",
                    config.data_parallel_size, " data-parallel groups");
  }
  return text;
}

std::string LastWords(const absl::Status& status) {
  const std::string advice = AdviceOf(status);
  return absl::StrCat("controller: ", absl::StatusCodeToString(status.code()), ": ",
                      std::string(status.message()), "\n",
                      advice.empty() ? "The lines above say what happened before." : advice);
}

}  // namespace millrace
