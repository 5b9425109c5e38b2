#include "tools/bench/report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace millrace {
namespace {

Quantiles QuantilesOf(const std::vector<double>& values) {
  return {
      .p50 = Percentile(values, 50), .p90 = Percentile(values, 90), .p99 = Percentile(values, 99)};
}

double Milliseconds(double seconds) { return seconds * 1e3; }

}  // namespace

double Percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = p / 100 * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(std::floor(rank));
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (rank - static_cast<double>(low)) * (values[high] - values[low]);
}

Summary Summarize(const LoadOptions& options, const LoadResult& result) {
  Summary s{.concurrency = options.concurrency,
            .request_rate = options.request_rate,
            .seconds = result.seconds};
  std::vector<double> ttft, tpot, itl, end_to_end;
  int64_t prompt = 0;
  int64_t output = 0;
  for (const RequestRecord& r : result.records) {
    if (!r.status.ok()) {
      if (s.failed++ == 0) s.first_error = r.status.ToString();
      continue;
    }
    ++s.completed;
    prompt += r.prompt_tokens;
    output += r.output_tokens;
    ttft.push_back(r.ttft);
    end_to_end.push_back(r.end_to_end);
    itl.insert(itl.end(), r.inter_token.begin(), r.inter_token.end());
    if (r.output_tokens > 1) {
      tpot.push_back((r.end_to_end - r.ttft) / static_cast<double>(r.output_tokens - 1));
    }
  }
  if (result.seconds > 0) {
    s.requests_per_second = s.completed / result.seconds;
    s.output_tokens_per_second = static_cast<double>(output) / result.seconds;
    s.total_tokens_per_second = static_cast<double>(prompt + output) / result.seconds;
  }
  s.ttft = QuantilesOf(ttft);
  s.tpot = QuantilesOf(tpot);
  s.itl = QuantilesOf(itl);
  s.end_to_end = QuantilesOf(end_to_end);
  return s;
}

std::string FormatTable(const std::vector<Summary>& points) {
  std::string out =
      absl::StrFormat("%5s %6s %5s %8s %9s %9s | %8s %8s | %8s %8s | %8s | %8s %8s | %6s\n", "conc",
                      "ok", "fail", "req/s", "out tok/s", "all tok/s", "TTFT p50", "p99 ms",
                      "TPOT p50", "p99 ms", "ITL p99", "E2E p50", "p99 ms", "scale");
  for (const Summary& s : points) {
    const double base = points.front().output_tokens_per_second;
    absl::StrAppend(
        &out,
        absl::StrFormat("%5d %6d %5d %8.2f %9.1f %9.1f | %8.1f %8.1f | %8.2f %8.2f | %8.2f | "
                        "%8.0f %8.0f | %5.2fx\n",
                        s.concurrency, s.completed, s.failed, s.requests_per_second,
                        s.output_tokens_per_second, s.total_tokens_per_second,
                        Milliseconds(s.ttft.p50), Milliseconds(s.ttft.p99),
                        Milliseconds(s.tpot.p50), Milliseconds(s.tpot.p99), Milliseconds(s.itl.p99),
                        Milliseconds(s.end_to_end.p50), Milliseconds(s.end_to_end.p99),
                        base > 0 ? s.output_tokens_per_second / base : 0));
    if (s.failed > 0) absl::StrAppend(&out, "      first failure: ", s.first_error, "\n");
  }
  return out;
}

std::string FormatCsv(const std::vector<Summary>& points) {
  std::string out =
      "concurrency,request_rate,completed,failed,seconds,requests_per_s,output_tokens_per_s,"
      "total_tokens_per_s,ttft_p50_ms,ttft_p90_ms,ttft_p99_ms,tpot_p50_ms,tpot_p90_ms,tpot_p99_ms,"
      "itl_p50_ms,itl_p99_ms,e2e_p50_ms,e2e_p99_ms\n";
  for (const Summary& s : points) {
    absl::StrAppend(&out, s.concurrency, ",", s.request_rate, ",", s.completed, ",", s.failed);
    for (double v : {s.seconds, s.requests_per_second, s.output_tokens_per_second,
                     s.total_tokens_per_second, Milliseconds(s.ttft.p50), Milliseconds(s.ttft.p90),
                     Milliseconds(s.ttft.p99), Milliseconds(s.tpot.p50), Milliseconds(s.tpot.p90),
                     Milliseconds(s.tpot.p99), Milliseconds(s.itl.p50), Milliseconds(s.itl.p99),
                     Milliseconds(s.end_to_end.p50), Milliseconds(s.end_to_end.p99)}) {
      absl::StrAppend(&out, ",", absl::StrFormat("%.3f", v));
    }
    absl::StrAppend(&out, "\n");
  }
  return out;
}

}  // namespace millrace
