// Checks the DeepSeek-V4 prompt encoder and completion parser against recorded cases.
//
//   bazel run -c opt //tools/prompt -- --tokenizer FILE --check CASES
#include <algorithm>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "tools/common/flags.h"
#include "tools/prompt/prompt_cases.h"
#include "tools/prompt/prompt_check.h"
#include "tools/tokenize/tokenizer_file.h"

ABSL_FLAG(std::string, tokenizer, "", "tokenizer.json or tokenizer.json.gz of DeepSeek-V4");
ABSL_FLAG(std::string, check, "", "JSON of recorded prompts and completions");
ABSL_FLAG(int, random_splits, 20, "in how many random ways each completion is cut");
ABSL_FLAG(int, max_lines, 20, "differences to print");

namespace millrace {
namespace {

constexpr int kDiffers = 1;
constexpr int kCannotRun = 2;
constexpr uint64_t kSeed = 20260424;

// Counts what agrees, and prints the first differences.
class Report {
 public:
  // Runs `compare` on cases 0..count-1.
  void Run(const std::string& what, const std::string& kind, size_t count,
           const std::function<Difference(size_t)>& compare) {
    size_t agreed = 0;
    for (size_t i = 0; i < count; ++i) {
      const Difference difference = compare(i);
      if (!difference.has_value()) {
        ++agreed;
      } else if (++lines_ <= absl::GetFlag(FLAGS_max_lines)) {
        std::cout << kind << " " << i << ": " << *difference << "\n";
      }
    }
    summary_ += absl::StrCat(agreed, "/", count, " ", what, "\n");
  }
  // Prints the counts; whether all agreed.
  bool Finish() {
    if (lines_ > absl::GetFlag(FLAGS_max_lines)) {
      std::cout << "... " << lines_ << " differences in all\n";
    }
    std::cout << summary_;
    return lines_ == 0;
  }

 private:
  int lines_ = 0;
  std::string summary_;
};

std::vector<size_t> EveryByte(size_t bytes) {
  std::vector<size_t> cuts;
  for (size_t i = 1; i < bytes; ++i) cuts.push_back(i);
  return cuts;
}

// From a few pieces to pieces of a few bytes; some are empty.
std::vector<size_t> RandomCuts(size_t bytes, std::mt19937_64& random) {
  std::vector<size_t> cuts(1 + random() % (1 + bytes / (1 + random() % 16)));
  for (size_t& cut : cuts) cut = random() % (bytes + 1);
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

Difference CompareInRandomSplits(const ParseCase& want, std::mt19937_64& random) {
  for (int i = 0; i < absl::GetFlag(FLAGS_random_splits); ++i) {
    const std::vector<size_t> cuts = RandomCuts(want.completion.size(), random);
    if (const Difference difference = CompareParsed(want, cuts)) return difference;
  }
  return std::nullopt;
}

absl::StatusOr<bool> Run() {
  if (absl::GetFlag(FLAGS_tokenizer).empty() || absl::GetFlag(FLAGS_check).empty()) {
    return absl::InvalidArgumentError("want --tokenizer FILE and --check FILE");
  }
  ASSIGN_OR_RETURN(const auto tokenizer,
                   LoadTokenizer(PathFromUser(absl::GetFlag(FLAGS_tokenizer))));
  const std::string path = PathFromUser(absl::GetFlag(FLAGS_check));
  ASSIGN_OR_RETURN(const std::string json, ReadMaybeGzip(path));
  const auto cases = ParsePromptCases(json);
  if (!cases.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", cases.status().message()));
  }
  const std::vector<PromptCase>& prompts = cases->prompts;
  const std::vector<ParseCase>& parses = cases->parses;
  std::mt19937_64 random(kSeed);
  Report report;
  report.Run("prompts render byte for byte", "prompt", prompts.size(),
             [&](size_t i) { return CompareRendered(prompts[i]); });
  report.Run("prompts encode id for id", "prompt", prompts.size(),
             [&](size_t i) { return CompareIds(prompts[i], *tokenizer); });
  report.Run("completions parse whole", "completion", parses.size(),
             [&](size_t i) { return CompareParsed(parses[i], {}); });
  report.Run("completions parse one byte at a time", "completion", parses.size(), [&](size_t i) {
    return CompareParsed(parses[i], EveryByte(parses[i].completion.size()));
  });
  report.Run(absl::StrCat("completions parse in random splits (",
                          absl::GetFlag(FLAGS_random_splits), " each)"),
             "completion", parses.size(),
             [&](size_t i) { return CompareInRandomSplits(parses[i], random); });
  return report.Finish();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Checks the DeepSeek-V4 prompt encoder and completion parser against recorded cases.\n"
      "  prompt --tokenizer FILE --check CASES");
  const std::vector<std::string> rest = millrace::ParseFlags(argc, argv);
  if (!rest.empty()) {
    std::cerr << "error: unexpected argument: " << rest.front() << "\n";
    return millrace::kCannotRun;
  }
  const auto agrees = millrace::Run();
  if (!agrees.ok()) {
    std::cerr << "error: " << agrees.status().message() << "\n";
    return millrace::kCannotRun;
  }
  return *agrees ? 0 : millrace::kDiffers;
}
