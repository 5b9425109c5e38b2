// Writes checkpoint folders of made-up models, for tests.
#ifndef TESTS_PARITY_CHECKPOINT_WRITER_H_
#define TESTS_PARITY_CHECKPOINT_WRITER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace millrace {

// Of a safetensors file.
struct WrittenTensor {
  enum class Type : uint8_t { kBF16, kF32, kI64, kF8E4M3 };

  std::vector<int64_t> shape;
  std::vector<float> values;  // row-major; exact in `type`
  Type type = Type::kBF16;
};

// Writes config.json (its text) and model.safetensors into `dir`.
void WriteCheckpoint(const std::string& dir, const std::string& config,
                     const std::map<std::string, WrittenTensor>& tensors);

}  // namespace millrace

#endif  // TESTS_PARITY_CHECKPOINT_WRITER_H_
