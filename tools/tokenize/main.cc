// Checks a tokenizer against recorded encodings and measures it, or shows the tokens of a text.
//
//   bazel run -c opt //tools/tokenize -- --tokenizer FILE --check ENCODINGS
//   bazel run -c opt //tools/tokenize -- --tokenizer FILE --text "Hello"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/core/status.h"
#include "tools/common/flags.h"
#include "tools/tokenize/encodings_check.h"
#include "tools/tokenize/reference_speed.h"
#include "tools/tokenize/tokenizer_file.h"

ABSL_FLAG(std::string, tokenizer, "", "tokenizer.json or tokenizer.json.gz");
ABSL_FLAG(std::string, check, "",
          "JSON list of {text, ids, ids_with_special, decoded, decoded_all} to compare with");
ABSL_FLAG(std::string, text, "", "text to show the tokens of");
ABSL_FLAG(std::string, corpus, "",
          "text file whose lines are encoded for the speed figure (default: the checked texts)");
ABSL_FLAG(bool, add_special_tokens, false, "with --text: add what the post-processor adds");
ABSL_FLAG(bool, parse_special_tokens, true, "with --text: find special tokens in the text");
ABSL_FLAG(std::string, python, "",
          "Python with the tokenizers library, to measure beside (default: that of the active "
          "virtual environment, else python3)");
ABSL_FLAG(int, max_lines, 20, "disagreements to print");

namespace millrace {
namespace {

constexpr double kMeasuredMegabytes = 20;
constexpr int kMaxPasses = 200;

// Of this thread on a processor, so that a busy machine does not spoil a comparison.
double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

std::string Python() {
  if (const std::string given = absl::GetFlag(FLAGS_python); !given.empty()) {
    return given.find('/') == std::string::npos ? given : PathFromUser(given);
  }
  const char* environment = std::getenv("VIRTUAL_ENV");
  return environment != nullptr ? std::string(environment) + "/bin/python" : "python3";
}

absl::StatusOr<std::vector<std::string>> SpeedTexts(
    const std::vector<RecordedEncoding>& encodings) {
  std::vector<std::string> texts;
  if (const std::string corpus = absl::GetFlag(FLAGS_corpus); !corpus.empty()) {
    ASSIGN_OR_RETURN(const std::string contents, ReadMaybeGzip(PathFromUser(corpus)));
    for (size_t begin = 0; begin < contents.size();) {
      const size_t end = std::min(contents.find('\n', begin), contents.size() - 1) + 1;
      texts.push_back(contents.substr(begin, end - begin));
      begin = end;
    }
    return texts;
  }
  for (const RecordedEncoding& encoding : encodings) texts.push_back(encoding.text.value_or(""));
  return texts;
}

absl::Status Measure(const Tokenizer& tokenizer, const std::string& tokenizer_path,
                     const std::vector<std::string>& texts) {
  double megabytes = 0;
  for (const std::string& text : texts) {
    megabytes += static_cast<double>(text.size()) / 1e6;
    RETURN_IF_ERROR(tokenizer.Encode(text).status());  // warms up, as the reference is
  }
  if (megabytes == 0) return absl::OkStatus();
  const int passes = std::clamp(static_cast<int>(kMeasuredMegabytes / megabytes), 1, kMaxPasses);
  const double start = ProcessorSeconds();
  for (int pass = 0; pass < passes; ++pass) {
    for (const std::string& text : texts) RETURN_IF_ERROR(tokenizer.Encode(text).status());
  }
  const double speed = megabytes * passes / (ProcessorSeconds() - start);
  std::cout << absl::StrFormat(
      "encode, one thread (processor time), %.2f MB x %d: millrace %.2f MB/s", megabytes, passes,
      speed);
  const auto reference = MeasureReference(Python(), tokenizer_path, texts, passes);
  if (reference.ok()) {
    std::cout << absl::StrFormat(", tokenizers %s %.2f MB/s (x %.1f)\n", reference->version,
                                 reference->mb_per_s, speed / reference->mb_per_s);
  } else {
    std::cout << "; not compared: " << reference.status().message()
              << " (give one with --python)\n";
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Check(const Tokenizer& tokenizer, const std::string& tokenizer_path) {
  const std::string path = PathFromUser(absl::GetFlag(FLAGS_check));
  ASSIGN_OR_RETURN(const std::string json, ReadMaybeGzip(path));
  const auto encodings = ParseEncodings(json);
  if (!encodings.ok()) {
    return absl::InvalidArgumentError(path + ": " + std::string(encodings.status().message()));
  }
  size_t agreed = 0;
  int lines = 0;
  for (size_t i = 0; i < encodings->size(); ++i) {
    const std::vector<std::string> found = Disagreements(tokenizer, (*encodings)[i]);
    if (found.empty()) ++agreed;
    for (const std::string& line : found) {
      if (++lines <= absl::GetFlag(FLAGS_max_lines))
        std::cout << "encoding " << i << ": " << line << "\n";
    }
  }
  if (lines > absl::GetFlag(FLAGS_max_lines)) std::cout << "... " << lines << " lines in all\n";
  std::cout << agreed << "/" << encodings->size()
            << " encodings agree (ids, ids with special tokens, decoded text without and with "
               "special tokens, whole and one id at a time)\n";
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, SpeedTexts(*encodings));
  RETURN_IF_ERROR(Measure(tokenizer, tokenizer_path, texts));
  return agreed == encodings->size();
}

absl::Status Show(const Tokenizer& tokenizer) {
  EncodeOptions options;
  options.add_special_tokens = absl::GetFlag(FLAGS_add_special_tokens);
  options.parse_special_tokens = absl::GetFlag(FLAGS_parse_special_tokens);
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                   tokenizer.Encode(absl::GetFlag(FLAGS_text), options));
  for (const int32_t id : ids) {
    std::cout << absl::StrFormat("%8d  %s%s\n", id, std::string(tokenizer.IdToToken(id)),
                                 tokenizer.IsSpecial(id) ? "  (special)" : "");
  }
  std::cout << ids.size() << " tokens; decoded \""
            << absl::Utf8SafeCHexEscape(tokenizer.Decode(ids, false)) << "\"\n";
  return absl::OkStatus();
}

absl::StatusOr<bool> Run() {
  if (absl::GetFlag(FLAGS_tokenizer).empty()) {
    return absl::InvalidArgumentError("want --tokenizer FILE with --check FILE or --text TEXT");
  }
  const std::string path = PathFromUser(absl::GetFlag(FLAGS_tokenizer));
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(path));
  std::cout << absl::StrFormat("%s: %d ids, loaded in %.2f s\n", path, tokenizer->vocab_size(),
                               Seconds(start));
  if (!absl::GetFlag(FLAGS_check).empty()) return Check(*tokenizer, path);
  RETURN_IF_ERROR(Show(*tokenizer));
  return true;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "checks a tokenizer against recorded encodings, or shows the tokens of a text");
  millrace::ParseFlags(argc, argv, {});
  const auto agreed = millrace::Run();
  if (!agreed.ok()) {
    std::cerr << "tokenize: " << agreed.status().message() << "\n";
    return 2;
  }
  return *agreed ? 0 : 1;
}
