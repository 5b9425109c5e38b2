// The lines that a starting controller prints.
#ifndef TOOLS_SERVE_STARTUP_REPORT_H_
#define TOOLS_SERVE_STARTUP_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "distributed/controller/cluster/worker_hub.h"
#include "engine/runtime/runner_config.h"

namespace millrace {

// "1,234,567".
std::string WithCommas(int64_t number);

// Rank, host, process, device and transport of every rank, a line each, under a heading.
std::string WorldTable(const std::vector<RankInfo>& ranks);

// With --max-model-len auto: what was chosen.
std::string ModelLenLine(int32_t num_pages, const RunnerConfig& config);

// What the memory is for, and the two lines that scripts look for.
std::string MemoryReport(const RankMemory& memory, int32_t num_pages, const RunnerConfig& config);

// Of a controller that failed: where, what, and what to do.
std::string LastWords(const absl::Status& status);

}  // namespace millrace

#endif  // TOOLS_SERVE_STARTUP_REPORT_H_
