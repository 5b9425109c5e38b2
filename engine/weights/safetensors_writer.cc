#include "engine/weights/safetensors_writer.h"

#include <cstring>
#include <fstream>
#include <utility>

#include "kernels/core/check.h"
#include "nlohmann/json.hpp"

namespace millrace {

SafetensorsWriter& SafetensorsWriter::Add(std::string name, FileDType dtype,
                                          std::vector<int64_t> shape, std::string bytes) {
  tensors_.push_back({std::move(name), dtype, std::move(shape), std::move(bytes)});
  return *this;
}

SafetensorsWriter& SafetensorsWriter::AddF32(std::string name, std::vector<int64_t> shape,
                                             const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return Add(std::move(name), FileDType::kF32, std::move(shape), std::move(bytes));
}

std::string SafetensorsWriter::Bytes() const {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const Tensor& tensor : tensors_) {
    header[tensor.name] = {{"dtype", std::string(FileDTypeName(tensor.dtype))},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return SafetensorsBytes(header.dump(), data);
}

std::string SafetensorsBytes(std::string_view header, std::string_view data) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) {
    bytes.push_back(static_cast<char>(static_cast<uint64_t>(header.size()) >> shift));
  }
  bytes.append(header).append(data);
  return bytes;
}

void WriteTestFile(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  MR_CHECK(file.good());
}

}  // namespace millrace
