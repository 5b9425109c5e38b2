#include "tests/parity/checkpoint_writer.h"

#include <bit>
#include <fstream>

#include "kernels/core/check.h"
#include "kernels/core/dtype.h"
#include "kernels/lowp/small_float.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary);
  out << content;
  out.flush();
  MR_CHECK(out.good());
}

void AppendLittleEndian(uint64_t bits, int bytes, std::string& out) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>((bits >> (8 * i)) & 0xff));
}

void AppendValue(float value, WrittenTensor::Type type, std::string& out) {
  switch (type) {
    case WrittenTensor::Type::kBF16:
      return AppendLittleEndian(ToBFloat16(value).bits, 2, out);
    case WrittenTensor::Type::kF32:
      return AppendLittleEndian(std::bit_cast<uint32_t>(value), 4, out);
    case WrittenTensor::Type::kI64:
      return AppendLittleEndian(static_cast<uint64_t>(value), 8, out);
    case WrittenTensor::Type::kF8E4M3:
      return AppendLittleEndian(EncodeE4M3(static_cast<double>(value)), 1, out);
  }
}

const char* NameOf(WrittenTensor::Type type) {
  switch (type) {
    case WrittenTensor::Type::kBF16:
      return "BF16";
    case WrittenTensor::Type::kF32:
      return "F32";
    case WrittenTensor::Type::kI64:
      return "I64";
    case WrittenTensor::Type::kF8E4M3:
      return "F8_E4M3";
  }
  return "";
}

}  // namespace

void WriteCheckpoint(const std::string& dir, const std::string& config,
                     const std::map<std::string, WrittenTensor>& tensors) {
  WriteFile(dir + "/config.json", config);
  Json header = Json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    for (const float value : tensor.values) AppendValue(value, tensor.type, data);
    header[name] = {{"dtype", NameOf(tensor.type)},
                    {"shape", tensor.shape},
                    {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length;
  AppendLittleEndian(text.size(), 8, length);
  WriteFile(dir + "/model.safetensors", length + text + data);
}

}  // namespace millrace
