#include "tools/tokenize/tokenizer_file.h"

#include <zlib.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 30;

struct GzCloser {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

}  // namespace

absl::StatusOr<std::string> ReadMaybeGzip(const std::string& path) {
  // gzread passes on what is not compressed.
  const std::unique_ptr<gzFile_s, GzCloser> file(gzopen(path.c_str(), "rb"));
  if (file == nullptr) return absl::NotFoundError("cannot read " + path);
  std::string contents;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const int got = gzread(file.get(), buffer.data(), buffer.size());
    if (got < 0) return absl::DataLossError("cannot unpack " + path);
    if (got == 0) break;
    contents.append(buffer.data(), static_cast<size_t>(got));
    if (contents.size() > kMaxBytes) {
      return absl::ResourceExhaustedError(path + " is larger than 1 GiB when unpacked");
    }
  }
  // A file cut short ends quietly; only closing tells.
  int error = Z_OK;
  gzerror(file.get(), &error);
  if (error != Z_OK) return absl::DataLossError(path + " is cut short or broken");
  return contents;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string json, ReadMaybeGzip(path));
  auto tokenizer = Tokenizer::FromJson(json);
  if (tokenizer.ok()) return tokenizer;
  return absl::Status(tokenizer.status().code(),
                      absl::StrCat(path, ": ", tokenizer.status().message()));
}

}  // namespace millrace
