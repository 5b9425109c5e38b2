// How layers get their weights. Building a model twice, first with a loader that only records and
// then with one that reads, gives the list of its tensors and the bytes to expect before the first
// gigabyte is read, from the same lines of code that load them.
#ifndef ENGINE_LAYERS_WEIGHT_LOADER_H_
#define ENGINE_LAYERS_WEIGHT_LOADER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/config/fp8_config.h"
#include "engine/layers/upload_ring.h"
#include "engine/parallel/shard.h"
#include "engine/weights/weight_source.h"
#include "kernels/core/device.h"
#include "kernels/stored_matrix/stored_matrix.h"

namespace millrace {

// Told after each tensor: bytes of weights in place, and of all that this rank will hold.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

// A tensor of the checkpoint as the model expects it.
struct TensorSpec {
  // What the file may store.
  enum class Kind : uint8_t {
    kFloats,   // F32, BF16 or F16
    kIndices,  // I32 or I64
    kChecked,  // a part of a stored matrix, whose types FindStoredLayout has checked
  };

  std::string name;
  std::vector<int64_t> shape;  // of the whole tensor, not of a rank's part
  Kind kind = Kind::kFloats;
};

// The part of a checkpoint tensor that this rank holds.
struct WeightPart {
  TensorSpec tensor;          // of rank 0, 1 or 2
  std::vector<Range> ranges;  // one per dimension
  int64_t index_limit = 0;    // of indices: each must be in [0, index_limit)
};

WeightPart ScalarPart(std::string name);
WeightPart VectorPart(std::string name, int64_t size, Range part);
WeightPart MatrixPart(std::string name, int64_t rows, int64_t cols, Range row_part, Range col_part);
// The whole of a matrix of integers below `limit`.
WeightPart IndexPart(std::string name, int64_t rows, int64_t cols, int64_t limit);

// What happens to the rows of a matrix between the source and memory.
struct RowConversion {
  DType read = DType::kF32;  // floats, or u8 for one-byte elements as they are stored
  // `rows`: which rows of which tensor `in` holds, dense. `first`: where they lie in the result, to
  // whose rows `out` is written. Several threads at once, each with rows of its own.
  std::function<absl::Status(const WeightPart& rows, int64_t first, const char* in, char* out)>
      convert;
};

// Owns a weight in device memory. Empty when it was only recorded; the view has the sizes that it
// will have, and no data.
struct Weight {
  Buffer memory;
  TensorView view;

  bool empty() const { return memory.data() == nullptr; }
};

// Worker thread.
class WeightLoader final {
 public:
  // Records only. `source`, which must outlive it, is asked for headers.
  explicit WeightLoader(const WeightSource& source) : source_(&source) {}
  // Reads from `source` to `device`; both must outlive it, and the device the weights too.
  // `total_bytes`: bytes() of a recording loader, for `progress`, which may be empty.
  WeightLoader(const WeightSource& source, Device& device, int64_t total_bytes,
               LoadProgress progress)
      : source_(&source),
        device_(&device),
        ring_(device),
        total_(total_bytes),
        progress_(std::move(progress)) {}

  bool recording() const { return device_ == nullptr; }
  const WeightSource& source() const { return *source_; }

  // The parts, stacked along their first dimension, as one dense tensor of `dtype`: f32 or bf16 of
  // floats, i32 of indices (IndexPart). Scalars become a vector. A tensor may have several parts.
  // REQUIRES: at least one part, all of one rank and, in rank 2, with equally many columns.
  absl::StatusOr<Weight> Load(absl::Span<const WeightPart> parts, DType dtype);
  absl::StatusOr<Weight> Load(const WeightPart& part, DType dtype) {
    return Load(absl::MakeConstSpan(&part, 1), dtype);
  }

  // As Load, of the bytes as they are stored, taken for elements of `dtype`: of the same size, such
  // as u8 for F8_E4M3.
  absl::StatusOr<Weight> LoadRaw(absl::Span<const WeightPart> parts, DType dtype);
  // As Load, of matrices whose rows become `dtype` by `conversion`.
  absl::StatusOr<Weight> LoadConverted(absl::Span<const WeightPart> parts, DType dtype,
                                       const RowConversion& conversion);
  // A small tensor's part as floats in host memory, such as scales; ones when only recorded.
  absl::StatusOr<std::vector<float>> ReadFloats(const WeightPart& part);
  // Counts `name` among the tensors of the model and reads nothing.
  void Skip(std::string name, std::vector<int64_t> shape);

  // Numbers that the model computed itself, as a f32 vector on the device.
  absl::StatusOr<Weight> Upload(absl::Span<const float> values);
  // As Upload, of what is a part of the weights, such as scales: counts among bytes().
  absl::StatusOr<Weight> UploadWeights(absl::Span<const float> values);

  // Null where it only records.
  Device* device() const { return device_; }

  // Of all calls so far.
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Reading {
    DType dtype = DType::kF32;
    bool raw = false;
    const RowConversion* conversion = nullptr;  // then `raw` says how its input is read
  };
  // Rows [first, ...) of a result.
  struct Piece {
    WeightPart part;
    int64_t first = 0;
  };
  void Record(absl::Span<const WeightPart> parts, TensorSpec::Kind kind);
  absl::StatusOr<Weight> Take(absl::Span<const WeightPart> parts, Reading reading);
  // The parts to device memory at `to`, piece after piece.
  absl::Status Fill(absl::Span<const WeightPart> parts, Reading reading, char* to);
  absl::Status Read(absl::Span<const Piece> pieces, Reading reading, char* host);
  absl::Status ReadPiece(const Piece& piece, Reading reading, char* host);

  const WeightSource* source_ = nullptr;
  Device* device_ = nullptr;        // null: records only
  std::optional<UploadRing> ring_;  // where it reads
  int64_t total_ = 0;
  LoadProgress progress_;
  std::vector<TensorSpec> tensors_;
  int64_t bytes_ = 0;
};

// What a layer's Load needs. Borrows; the loader outlives the call.
struct LoadContext {
  WeightLoader& weights;
  int32_t rank = 0;  // of the tensor-parallel group
  int32_t size = 1;
  DType weight_dtype = DType::kBF16;  // of matrices
  DType vector_dtype = DType::kF32;   // of norms and biases: that of activations
  DeviceType device = DeviceType::kCpu;
  ActivationRounding rounding = ActivationRounding::kNone;  // of what meets a quantised matrix
  const Fp8Config* fp8 = nullptr;  // which matrices of a LLaMA the source has as FP8; null: none
  bool quantize = false;           // where it has none, those of its layers become FP8 when read
  // Whole experts by rank, of the world's, instead of a part of each.
  bool expert_parallel = false;
  int32_t world_rank = 0;  // of all ranks that step together: tensor groups, one after the other
  int32_t world_size = 1;
};

// InvalidArgument or NotFound, naming the tensor, unless `source` has each of `wanted` in its shape
// and no tensor besides, but for names that `is_ignorable` accepts.
absl::Status CheckTensors(const WeightSource& source, absl::Span<const TensorSpec> wanted,
                          const std::function<bool(const std::string&)>& is_ignorable);

}  // namespace millrace

#endif  // ENGINE_LAYERS_WEIGHT_LOADER_H_
