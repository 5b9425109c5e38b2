// From request records to the figures people compare: percentiles, tokens a second, a table, CSV.
#ifndef TOOLS_BENCH_REPORT_H_
#define TOOLS_BENCH_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/load_generator.h"

namespace millrace {

// The p-th percentile (0..100) by linear interpolation between order statistics; 0 when empty.
double Percentile(std::vector<double> values, double p);

struct Quantiles {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};

// One load point. Seconds; failed requests count in `failed` alone.
struct Summary {
  int32_t concurrency = 0;
  double request_rate = 0;
  int32_t completed = 0;
  int32_t failed = 0;
  std::string first_error;
  double seconds = 0;
  double requests_per_second = 0;
  double output_tokens_per_second = 0;
  double total_tokens_per_second = 0;  // prompt and output
  Quantiles ttft;
  Quantiles tpot;  // (end to end - ttft) / (output tokens - 1), of requests with two or more
  Quantiles itl;   // between chunks
  Quantiles end_to_end;
};

Summary Summarize(const LoadOptions& options, const LoadResult& result);

// Aligned columns, one line a load point; the last column is tokens a second over the first line's.
std::string FormatTable(const std::vector<Summary>& points);
std::string FormatCsv(const std::vector<Summary>& points);
// Two panels over concurrency: output tokens/s, and TTFT and TPOT (p50, p99; milliseconds).
std::string FormatSvg(const std::vector<Summary>& points, const std::string& title);

}  // namespace millrace

#endif  // TOOLS_BENCH_REPORT_H_
