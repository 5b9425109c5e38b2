#include "engine/weights/safetensors_file.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/weights/safetensors_header.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr uint64_t kLengthBytes = 8;
// The format's own limit.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

// The text of the header, its length checked against the file's.
absl::StatusOr<std::string_view> HeaderText(absl::Span<const std::byte> file) {
  if (file.size() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file has ", file.size(), " bytes, too few for a header length"));
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<uint64_t>(file[i]) << (8 * i);
  }
  if (length > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("header length ", length, ", limit ", kMaxHeaderBytes));
  }
  if (length > file.size() - kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat("header length ", length, ", but only ",
                                                   file.size() - kLengthBytes,
                                                   " bytes follow: the file is cut short"));
  }
  return std::string_view(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
}

absl::Status TensorError(const HeaderEntry& entry, const std::string& reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", QuotedTensor(entry.name), ": ", reason));
}

// Bytes of the tensor by dtype and shape.
absl::StatusOr<int64_t> BytesByShape(const HeaderEntry& entry, FileDType dtype) {
  int64_t bits = 1;
  bool overflow = false;
  for (const int64_t extent : entry.shape) {
    overflow = overflow || __builtin_mul_overflow(bits, extent, &bits);
  }
  overflow = overflow || __builtin_mul_overflow(bits, FileDTypeBits(dtype), &bits);
  if (overflow) {
    return TensorError(entry,
                       absl::StrCat("shape ", ShapeString(entry.shape), " overflows 64 bits"));
  }
  if (bits % 8 != 0) {
    return TensorError(entry, absl::StrCat("shape ", ShapeString(entry.shape), " of ", entry.dtype,
                                           " does not end on a byte"));
  }
  return bits / 8;
}

// Checks one entry whose data must start at `expected`, and turns it into a TensorInfo.
absl::StatusOr<TensorInfo> CheckEntry(HeaderEntry& entry, absl::Span<const std::byte> data,
                                      int64_t expected) {
  const std::optional<FileDType> dtype = FileDTypeFromName(entry.dtype);
  if (!dtype.has_value()) {
    return TensorError(entry, absl::StrCat("unknown dtype ", QuotedTensor(entry.dtype)));
  }
  if (entry.begin > entry.end) {
    return TensorError(
        entry, absl::StrCat("data_offsets [", entry.begin, ", ", entry.end, "] run backwards"));
  }
  if (entry.begin != expected) {
    return TensorError(entry,
                       absl::StrCat("data starts at ", entry.begin,
                                    entry.begin > expected ? ", leaving a hole after "
                                                           : ", inside the tensor that ends at ",
                                    expected));
  }
  ASSIGN_OR_RETURN(const int64_t bytes, BytesByShape(entry, *dtype));
  if (bytes != entry.end - entry.begin) {
    return TensorError(
        entry, absl::StrCat("shape ", ShapeString(entry.shape), " of ", entry.dtype, " takes ",
                            bytes, " bytes, data_offsets give ", entry.end - entry.begin));
  }
  if (entry.end > static_cast<int64_t>(data.size())) {
    return TensorError(entry, absl::StrCat("data ends at ", entry.end, ", but the file holds ",
                                           data.size(), " bytes of data: it is cut short"));
  }
  return TensorInfo{
      .name = std::move(entry.name),
      .dtype = *dtype,
      .shape = std::move(entry.shape),
      .data = data.subspan(static_cast<size_t>(entry.begin), static_cast<size_t>(bytes))};
}

}  // namespace

absl::StatusOr<std::vector<TensorInfo>> ParseSafetensors(absl::Span<const std::byte> file) {
  ASSIGN_OR_RETURN(const std::string_view text, HeaderText(file));
  ASSIGN_OR_RETURN(std::vector<HeaderEntry> entries, ParseSafetensorsHeader(text));
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  const absl::Span<const std::byte> data = file.subspan(kLengthBytes + text.size());
  std::vector<TensorInfo> tensors;
  tensors.reserve(entries.size());
  int64_t expected = 0;
  for (HeaderEntry& entry : entries) {
    const int64_t end = entry.end;
    ASSIGN_OR_RETURN(TensorInfo tensor, CheckEntry(entry, data, expected));
    tensors.push_back(std::move(tensor));
    expected = end;
  }
  if (expected != static_cast<int64_t>(data.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensors end at ", expected, ", but ", data.size(), " bytes of data follow the header"));
  }
  return tensors;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  absl::StatusOr<std::vector<TensorInfo>> tensors = ParseSafetensors(file->bytes());
  if (!tensors.ok()) {
    return absl::Status(tensors.status().code(),
                        absl::StrCat(path, ": ", tensors.status().message()));
  }
  ASSIGN_OR_RETURN(const std::string_view text, HeaderText(file->bytes()));
  const absl::Span<const std::byte> header = file->bytes().subspan(0, kLengthBytes + text.size());
  return std::unique_ptr<SafetensorsFile>(
      new SafetensorsFile(std::move(file), header, *std::move(tensors)));
}

SafetensorsFile::SafetensorsFile(std::unique_ptr<MappedFile> file,
                                 absl::Span<const std::byte> header,
                                 std::vector<TensorInfo> tensors)
    : file_(std::move(file)), header_(header), tensors_(std::move(tensors)) {}

}  // namespace millrace
