#include "tools/tokenize/reference_speed.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace millrace {
namespace {

// Without single quotes, because it travels in a pair of them.
constexpr std::string_view kScript = R"py(
import gzip, json, sys, time
try:
    import tokenizers
except ImportError:
    print("absent"); sys.exit()
path, texts, passes = sys.argv[1], json.load(open(sys.argv[2])), int(sys.argv[3])
opened = gzip.open(path) if path.endswith(".gz") else open(path, "rb")
tokenizer = tokenizers.Tokenizer.from_str(opened.read().decode())
encode = getattr(tokenizer, "encode_fast", tokenizer.encode)
for text in texts: encode(text, add_special_tokens=False).ids
start = time.process_time()
for _ in range(passes):
    for text in texts: encode(text, add_special_tokens=False).ids
seconds = time.process_time() - start
size = sum(len(text.encode()) for text in texts)
print(size * passes / seconds / 1e6, tokenizers.__version__)
)py";

std::string Quoted(const std::string& argument) {
  return "'" + absl::StrReplaceAll(argument, {{"'", "'\\''"}}) + "'";
}

// A file that goes away with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& contents) {
    const int fd = mkstemp(path_.data());
    if (fd < 0) return;
    std::FILE* file = fdopen(fd, "wb");
    ok_ = std::fwrite(contents.data(), 1, contents.size(), file) == contents.size();
    ok_ = std::fclose(file) == 0 && ok_;
  }
  ~TemporaryFile() { unlink(path_.data()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  bool ok() const { return ok_; }
  std::string path() const { return path_.data(); }

 private:
  std::array<char, 32> path_{"/tmp/tokenize_texts_XXXXXX"};
  bool ok_ = false;
};

}  // namespace

absl::StatusOr<ReferenceSpeed> MeasureReference(const std::string& python,
                                                const std::string& tokenizer_path,
                                                const std::vector<std::string>& texts, int passes) {
  const TemporaryFile file(nlohmann::json(texts).dump());
  if (!file.ok()) return absl::InternalError("cannot write a temporary file in /tmp");
  const std::string command =
      absl::StrCat("RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false ", Quoted(python), " -c '",
                   absl::string_view(kScript.data(), kScript.size()), "' ", Quoted(tokenizer_path),
                   " ", Quoted(file.path()), " ", passes, " 2>/dev/null");
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return absl::InternalError("cannot start " + python);
  ReferenceSpeed speed;
  std::array<char, 64> version{};
  const int fields = std::fscanf(pipe, "%lf %63s", &speed.mb_per_s, version.data());
  pclose(pipe);
  if (fields != 2) {
    return absl::NotFoundError("the tokenizers library is not installed for " + python);
  }
  speed.version = version.data();
  return speed;
}

}  // namespace millrace
