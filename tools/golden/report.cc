#include "tools/golden/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace millrace {
namespace {

std::string Parting(const CaseReport& r, double tolerance) {
  if (!r.parted()) return "";
  if (r.parting_got < 0) return absl::StrCat("ended after ", r.greedy_agreed, " tokens");
  return absl::StrFormat("parts at token %d: %d, want %d, margin %.2e%s", r.greedy_agreed,
                         r.parting_got, r.parting_want, r.parting_margin,
                         r.parting_margin <= 2 * tolerance ? " (a near-tie)" : "");
}

}  // namespace

std::string FormatPass(const PassReport& pass, const std::vector<GoldenCase>& cases,
                       double tolerance) {
  std::string text =
      absl::StrFormat("%-6s %4s %7s %7s %12s %9s %13s %8s\n", "pass", "case", "prompt", "cached",
                      "logit error", "rms", "margin error", "greedy");
  for (size_t i = 0; i < cases.size(); ++i) {
    const CaseReport& r = pass.cases[i];
    const std::string logit = r.has_logits ? absl::StrFormat("%.2e", r.logit_error) : "-";
    const std::string rms = r.has_logits ? absl::StrFormat("%.2e", r.logit_rms) : "-";
    const std::string agreed = absl::StrCat(r.greedy_agreed, "/", r.greedy_total);
    const std::string parting = Parting(r, tolerance);
    absl::StrAppend(&text,
                    absl::StrFormat("%-6s %4d %7d %7d %12s %9s %13.2e %8s", pass.name, i,
                                    cases[i].prompt.size(), pass.outputs[i].cached_tokens, logit,
                                    rms, r.margin_error, agreed),
                    r.passed(tolerance) ? "" : "  FAILED", parting.empty() ? "" : "  ", parting,
                    "\n");
  }
  return text;
}

Verdict Judge(const std::vector<PassReport>& passes, double tolerance) {
  Verdict verdict;
  verdict.passed = true;
  double worst_error = 0;
  const CaseReport* worst_greedy = nullptr;
  const auto share = [](const CaseReport& r) {
    return static_cast<double>(r.greedy_agreed) / r.greedy_total;
  };
  for (const PassReport& pass : passes) {
    for (const CaseReport& r : pass.cases) {
      verdict.passed = verdict.passed && r.passed(tolerance);
      if (r.has_logits) worst_error = std::max(worst_error, r.logit_error);
      if (worst_greedy == nullptr || share(r) < share(*worst_greedy)) worst_greedy = &r;
    }
  }
  verdict.line = absl::StrFormat("worst: logit error %.2e (tolerance %.1e), greedy %d/%d: %s",
                                 worst_error, tolerance, worst_greedy->greedy_agreed,
                                 worst_greedy->greedy_total, verdict.passed ? "passed" : "FAILED");
  return verdict;
}

}  // namespace millrace
