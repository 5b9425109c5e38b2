// Writes safetensors files for tests: well-formed ones, and any broken one byte by byte.
#ifndef ENGINE_WEIGHTS_SAFETENSORS_WRITER_H_
#define ENGINE_WEIGHTS_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/weights/tensor_info.h"

namespace millrace {

// One thread.
class SafetensorsWriter final {
 public:
  // `bytes` are the elements, row-major, little-endian; not checked against the shape.
  SafetensorsWriter& Add(std::string name, FileDType dtype, std::vector<int64_t> shape,
                         std::string bytes);
  // As Add, of float32 elements. REQUIRES: as many values as the shape has elements.
  SafetensorsWriter& AddF32(std::string name, std::vector<int64_t> shape,
                            const std::vector<float>& values);

  // The whole file.
  std::string Bytes() const;

 private:
  struct Tensor {
    std::string name;
    FileDType dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  std::vector<Tensor> tensors_;
};

// A file of any header text and data, however wrong: 8 length bytes, `header`, `data`.
std::string SafetensorsBytes(std::string_view header, std::string_view data);

// Writes `bytes` to `path`, over what was there. Aborts when that fails.
void WriteTestFile(const std::string& path, std::string_view bytes);

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_SAFETENSORS_WRITER_H_
