#include "distributed/controller/frontdoor/tokenizer_bundle.h"

#include <openssl/sha.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr std::string_view kNames[] = {
    "chat_template.json",      "config.json",    "generation_config.json", "merges.txt",
    "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json",  "vocab.json",
};
constexpr std::string_view kExtensions[] = {".jinja", ".model", ".tiktoken"};
constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

struct ZipCloser {
  void operator()(zip_t* zip) const { zip_discard(zip); }
};
struct SourceFreer {
  void operator()(zip_source_t* source) const { zip_source_free(source); }
};
using ZipPtr = std::unique_ptr<zip_t, ZipCloser>;
using SourcePtr = std::unique_ptr<zip_source_t, SourceFreer>;

absl::Status ZipFailure(const char* what) {
  return absl::InternalError(absl::StrCat("tokenizer bundle: ", what, " failed"));
}

absl::StatusOr<std::string> ReadWhole(const std::filesystem::path& path) {
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (error || size > kMaxFileBytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "tokenizer bundle: ", path.filename().string(), " cannot be read or is too large"));
  }
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (in.bad() || static_cast<int64_t>(bytes.size()) != size) {
    return absl::FailedPreconditionError(
        absl::StrCat("tokenizer bundle: cannot read ", path.filename().string()));
  }
  return bytes;
}

absl::Status AddFile(zip_t* zip, const std::string& name, const std::string& bytes) {
  // libzip keeps the pointer until the archive is closed.
  SourcePtr source(zip_source_buffer(zip, bytes.data(), bytes.size(), 0));
  if (source == nullptr) return ZipFailure("reading");
  const zip_int64_t index = zip_file_add(zip, name.c_str(), source.get(), ZIP_FL_ENC_UTF_8);
  if (index < 0) return ZipFailure("adding a file");
  (void)source.release();  // the archive's now
  const auto entry = static_cast<zip_uint64_t>(index);
  // A fixed time, so that equal files give equal archives.
  if (zip_file_set_dostime(zip, entry, 0, 0x21, 0) != 0) return ZipFailure("setting a time");
  if (zip_set_file_compression(zip, entry, ZIP_CM_DEFLATE, 6) != 0) return ZipFailure("deflating");
  return absl::OkStatus();
}

// All bytes of a source that an archive was written to.
absl::StatusOr<std::string> SourceBytes(zip_source_t* source) {
  zip_stat_t stat;
  zip_stat_init(&stat);
  if (zip_source_stat(source, &stat) != 0 || (stat.valid & ZIP_STAT_SIZE) == 0) {
    return ZipFailure("measuring");
  }
  std::string bytes(stat.size, '\0');
  if (zip_source_open(source) != 0) return ZipFailure("opening the result");
  const zip_int64_t got = zip_source_read(source, bytes.data(), bytes.size());
  zip_source_close(source);
  if (got != static_cast<zip_int64_t>(bytes.size())) return ZipFailure("reading the result");
  return bytes;
}

absl::StatusOr<std::string> Zip(const std::vector<std::pair<std::string, std::string>>& files) {
  SourcePtr target(zip_source_buffer_create(nullptr, 0, 0, nullptr));
  if (target == nullptr) return ZipFailure("allocating");
  ZipPtr zip(zip_open_from_source(target.get(), ZIP_CREATE | ZIP_TRUNCATE, nullptr));
  if (zip == nullptr) return ZipFailure("opening");
  zip_source_keep(target.get());  // closing the archive drops one reference
  for (const auto& [name, bytes] : files) RETURN_IF_ERROR(AddFile(zip.get(), name, bytes));
  if (zip_close(zip.get()) != 0) return ZipFailure("writing");
  (void)zip.release();  // closed
  return SourceBytes(target.get());
}

std::string Sha256Hex(const std::string& bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

bool IsTokenizerFile(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const std::string extension = path.extension().string();
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         std::find(std::begin(kExtensions), std::end(kExtensions), extension) !=
             std::end(kExtensions);
}

}  // namespace

std::vector<std::string> TokenizerFiles(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    if (entry.is_regular_file(error) && IsTokenizerFile(entry.path())) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<TokenizerBundle> BuildTokenizerBundle(const std::string& dir) {
  const std::vector<std::string> names = TokenizerFiles(dir);
  if (std::find(names.begin(), names.end(), "tokenizer.json") == names.end() &&
      std::find(names.begin(), names.end(), "tokenizer.model") == names.end()) {
    return absl::FailedPreconditionError("the model's folder has no tokenizer");
  }
  std::vector<std::pair<std::string, std::string>> files;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(std::string bytes, ReadWhole(std::filesystem::path(dir) / name));
    files.emplace_back(name, std::move(bytes));
  }
  TokenizerBundle bundle;
  ASSIGN_OR_RETURN(bundle.zip, Zip(files));
  bundle.sha256_hex = Sha256Hex(bundle.zip);
  return bundle;
}

}  // namespace millrace
