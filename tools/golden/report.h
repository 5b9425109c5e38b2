// The tables that golden prints.
#ifndef TOOLS_GOLDEN_REPORT_H_
#define TOOLS_GOLDEN_REPORT_H_

#include <string>
#include <vector>

#include "tools/golden/compare.h"
#include "tools/golden/golden_file.h"

namespace millrace {

// One pass over all cases.
struct PassReport {
  std::string name;  // "first", "again"
  std::vector<CaseOutput> outputs;
  std::vector<CaseReport> cases;
};

// One line a case: tokens, errors, greedy agreement, where the continuations part.
std::string FormatPass(const PassReport& pass, const std::vector<GoldenCase>& cases,
                       double tolerance);

struct Verdict {
  bool passed = false;
  std::string line;  // the worst error and the worst agreement of all passes
};
Verdict Judge(const std::vector<PassReport>& passes, double tolerance);

}  // namespace millrace

#endif  // TOOLS_GOLDEN_REPORT_H_
