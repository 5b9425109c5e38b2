#include "engine/layers/weight_loader.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/weights/safetensors_header.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

int64_t Elements(const WeightPart& part) {
  int64_t n = 1;
  for (const Range& range : part.ranges) n *= range.size();
  return n;
}

absl::Status CheckKind(const WeightSource& source, const TensorSpec& wanted) {
  if (wanted.kind == TensorSpec::Kind::kChecked) return absl::OkStatus();
  ASSIGN_OR_RETURN(const TensorInfo tensor, source.Find(wanted.name));
  const FileDType d = tensor.dtype;
  const bool floats = wanted.kind == TensorSpec::Kind::kFloats;
  const bool fits = floats ? d == FileDType::kF32 || d == FileDType::kBF16 || d == FileDType::kF16
                           : d == FileDType::kI32 || d == FileDType::kI64;
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      source.Where(wanted.name), ": tensor ", QuotedTensor(wanted.name), " is stored as ",
      std::string(FileDTypeName(d)), ", want ", floats ? "F32, BF16 or F16" : "I32 or I64"));
}

// `host`: the part as int32, aligned to nothing.
absl::Status CheckIndices(const WeightPart& part, const char* host) {
  for (int64_t i = 0; i < Elements(part); ++i) {
    int32_t index = 0;
    std::memcpy(&index, host + i * int64_t{sizeof(index)}, sizeof(index));
    if (index >= 0 && index < part.index_limit) continue;
    return absl::InvalidArgumentError(absl::StrCat("tensor ", QuotedTensor(part.tensor.name),
                                                   " holds ", index, ", want 0 to ",
                                                   part.index_limit - 1));
  }
  return absl::OkStatus();
}

}  // namespace

WeightPart ScalarPart(std::string name) { return {{std::move(name), {}}, {}}; }

WeightPart VectorPart(std::string name, int64_t size, Range part) {
  return {{std::move(name), {size}}, {part}};
}

WeightPart MatrixPart(std::string name, int64_t rows, int64_t cols, Range row_part,
                      Range col_part) {
  return {{std::move(name), {rows, cols}}, {row_part, col_part}};
}

WeightPart IndexPart(std::string name, int64_t rows, int64_t cols, int64_t limit) {
  WeightPart part = MatrixPart(std::move(name), rows, cols, {0, rows}, {0, cols});
  part.index_limit = limit;
  return part;
}

absl::StatusOr<Weight> WeightLoader::Load(absl::Span<const WeightPart> parts, DType dtype) {
  const bool indices = dtype == DType::kI32;
  Record(parts, indices ? TensorSpec::Kind::kIndices : TensorSpec::Kind::kFloats);
  return Take(parts, {.dtype = dtype});
}

absl::StatusOr<Weight> WeightLoader::LoadRaw(absl::Span<const WeightPart> parts, DType dtype) {
  Record(parts, TensorSpec::Kind::kChecked);
  return Take(parts, {.dtype = dtype, .raw = true});
}

absl::StatusOr<Weight> WeightLoader::LoadConverted(absl::Span<const WeightPart> parts, DType dtype,
                                                   const RowConversion& conversion) {
  const bool raw = conversion.read == DType::kU8;
  Record(parts, raw ? TensorSpec::Kind::kChecked : TensorSpec::Kind::kFloats);
  return Take(parts, {.dtype = dtype, .raw = raw, .conversion = &conversion});
}

absl::StatusOr<std::vector<float>> WeightLoader::ReadFloats(const WeightPart& part) {
  Record({&part, 1}, TensorSpec::Kind::kFloats);
  std::vector<float> values(static_cast<size_t>(Elements(part)), 1.0f);
  if (recording()) return values;
  RETURN_IF_ERROR(source_->Read(part.tensor.name, part.ranges, DType::kF32, values.data()));
  return values;
}

void WeightLoader::Skip(std::string name, std::vector<int64_t> shape) {
  tensors_.push_back({std::move(name), std::move(shape), TensorSpec::Kind::kChecked});
}

void WeightLoader::Record(absl::Span<const WeightPart> parts, TensorSpec::Kind kind) {
  absl::flat_hash_set<std::string_view> seen;
  for (const WeightPart& part : parts) {
    if (!seen.insert(part.tensor.name).second) continue;
    tensors_.push_back({part.tensor.name, part.tensor.shape, kind});
  }
}

absl::StatusOr<Weight> WeightLoader::Take(absl::Span<const WeightPart> parts, Reading reading) {
  MR_CHECK(!parts.empty());
  const size_t rank = parts[0].ranges.size();
  int64_t rows = 0;
  int64_t elements = 0;
  for (const WeightPart& part : parts) {
    MR_CHECK(part.ranges.size() == part.tensor.shape.size());
    MR_CHECK(part.ranges.size() == rank);
    MR_CHECK(rank < 2 || part.ranges[1].size() == parts[0].ranges[1].size());
    rows += rank == 0 ? 1 : part.ranges[0].size();
    elements += Elements(part);
  }
  const int64_t bytes = elements * DTypeBytes(reading.dtype);
  bytes_ += bytes;
  Weight weight;
  if (!recording()) {
    ASSIGN_OR_RETURN(weight.memory, device_->Allocate(bytes));
  }
  void* data = weight.memory.data();
  const DeviceType type = recording() ? DeviceType::kCpu : device_->type();
  weight.view = rank < 2
                    ? TensorView::Of(data, reading.dtype, {rows}, type)
                    : TensorView::Of(data, reading.dtype, {rows, parts[0].ranges[1].size()}, type);
  if (recording()) return weight;
  RETURN_IF_ERROR(Fill(parts, reading, static_cast<char*>(data)));
  RETURN_IF_ERROR(ring_->Finish());
  if (progress_) progress_(bytes_, total_);
  return weight;
}

absl::StatusOr<Weight> WeightLoader::Upload(absl::Span<const float> values) {
  if (recording()) return Weight();
  const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(float));
  Weight weight;
  ASSIGN_OR_RETURN(weight.memory, device_->Allocate(bytes));
  RETURN_IF_ERROR(ring_->Put(weight.memory.data(), bytes, [&](char* host) {
    std::memcpy(host, values.data(), static_cast<size_t>(bytes));
    return absl::OkStatus();
  }));
  RETURN_IF_ERROR(ring_->Finish());
  weight.view = TensorView::Of(weight.memory.data(), DType::kF32,
                               {static_cast<int64_t>(values.size())}, device_->type());
  return weight;
}

absl::StatusOr<Weight> WeightLoader::UploadWeights(absl::Span<const float> values) {
  bytes_ += static_cast<int64_t>(values.size() * sizeof(float));
  return Upload(values);
}

// Of what is put at once, as many whole rows as fit, of one part or of several.
absl::Status WeightLoader::Fill(absl::Span<const WeightPart> parts, Reading reading, char* to) {
  // Conversions are work, which threads share by pieces.
  constexpr int64_t kRowsOfAConversion = 64;
  const int64_t most_rows = reading.conversion == nullptr ? INT64_MAX : kRowsOfAConversion;
  std::vector<Piece> pieces;
  int64_t bytes = 0;
  int64_t first = 0;
  const auto put = [&]() -> absl::Status {
    if (bytes == 0) return absl::OkStatus();
    RETURN_IF_ERROR(ring_->Put(to, bytes, [&](char* host) { return Read(pieces, reading, host); }));
    to += bytes;
    pieces.clear();
    bytes = 0;
    return absl::OkStatus();
  };
  for (const WeightPart& part : parts) {
    if (Elements(part) == 0) continue;
    const Range all = part.ranges.empty() ? Range{0, 1} : part.ranges[0];
    const int64_t row_bytes = Elements(part) / all.size() * DTypeBytes(reading.dtype);
    for (Range rest = all; rest.size() > 0;) {
      const int64_t room = (UploadRing::kPieceBytes - bytes) / row_bytes;
      if (room == 0) {
        if (bytes == 0) {
          return absl::UnimplementedError(absl::StrCat(part.tensor.name, ": a row of ", row_bytes,
                                                       " bytes, want at most ",
                                                       UploadRing::kPieceBytes));
        }
        RETURN_IF_ERROR(put());
        continue;
      }
      const int64_t rows = std::min({room, rest.size(), most_rows});
      Piece some = {part, first};
      if (!some.part.ranges.empty()) some.part.ranges[0] = {rest.begin, rest.begin + rows};
      pieces.push_back(std::move(some));
      bytes += rows * row_bytes;
      rest.begin += rows;
      first += rows;
    }
  }
  return put();
}

absl::Status WeightLoader::ReadPiece(const Piece& piece, Reading reading, char* host) {
  const WeightPart& part = piece.part;
  const std::string& name = part.tensor.name;
  if (reading.conversion != nullptr) {
    const DType type = reading.conversion->read;
    std::vector<char> read(static_cast<size_t>(Elements(part) * DTypeBytes(type)));
    RETURN_IF_ERROR(reading.raw ? source_->ReadRaw(name, part.ranges, read.data())
                                : source_->Read(name, part.ranges, type, read.data()));
    return reading.conversion->convert(part, piece.first, read.data(), host);
  }
  RETURN_IF_ERROR(reading.raw ? source_->ReadRaw(name, part.ranges, host)
                              : source_->Read(name, part.ranges, reading.dtype, host));
  return reading.dtype == DType::kI32 ? CheckIndices(part, host) : absl::OkStatus();
}

absl::Status WeightLoader::Read(absl::Span<const Piece> pieces, Reading reading, char* host) {
  std::vector<int64_t> begins = {0};  // bytes, of each piece and the end
  for (const Piece& piece : pieces) {
    begins.push_back(begins.back() + Elements(piece.part) * DTypeBytes(reading.dtype));
  }
  const auto read = [&](size_t begin, size_t end) -> absl::Status {
    for (size_t i = begin; i < end; ++i) {
      RETURN_IF_ERROR(ReadPiece(pieces[i], reading, host + begins[i]));
    }
    return absl::OkStatus();
  };
  // Interleaved rows come as hundreds of small pieces, which no source reads fast one by one.
  constexpr int64_t kBytesOfAThread = int64_t{1} << 20;
  const size_t useful = static_cast<size_t>(begins.back() / kBytesOfAThread);
  const size_t most = std::max(1u, std::thread::hardware_concurrency());
  const size_t count = std::clamp<size_t>(std::min(useful, pieces.size()), 1, most);
  std::vector<absl::Status> statuses(count);
  std::vector<std::thread> threads;
  for (size_t t = 1; t < count; ++t) {
    threads.emplace_back(
        [&, t] { statuses[t] = read(pieces.size() * t / count, pieces.size() * (t + 1) / count); });
  }
  statuses[0] = read(0, pieces.size() / count);
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::Status CheckTensors(const WeightSource& source, absl::Span<const TensorSpec> wanted,
                          const std::function<bool(const std::string&)>& is_ignorable) {
  absl::flat_hash_set<std::string> known;
  for (const TensorSpec& tensor : wanted) {
    RETURN_IF_ERROR(source.Expect(tensor.name, tensor.shape));
    RETURN_IF_ERROR(CheckKind(source, tensor));
    known.insert(tensor.name);
  }
  for (const std::string& name : source.Names()) {
    if (known.contains(name) || is_ignorable(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint has a tensor \"", name,
                     "\" that this model does not use; its config.json names another "
                     "architecture or leaves out an option (bias, untied lm_head, more layers)"));
  }
  return absl::OkStatus();
}

}  // namespace millrace
