#include "tests/parity/cache_codes.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/parity/round_e4m3.h"

namespace millrace {

HeadScales UnlikeScales(const TinyLlamaShape& shape, float unit) {
  HeadScales scales;
  int32_t n = 0;
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    for (const char* projection : {"k_proj", "v_proj"}) {
      std::vector<double>& heads =
          scales["model.layers." + std::to_string(layer) + ".self_attn." + projection];
      for (int32_t head = 0; head < shape.kv_heads; ++head) {
        const int32_t apart = (head + n) % 3, within = (5 * head + 3 * n) % 16;
        heads.push_back(double{unit} * (1 << 2 * apart) * (1 + within / 16.0));
      }
      ++n;
    }
  }
  return scales;
}

std::map<std::string, WrittenTensor> ScaleTensors(const HeadScales& scales) {
  std::map<std::string, WrittenTensor> tensors;
  for (const auto& [projection, heads] : scales) {
    const std::string kind = projection.substr(projection.size() - 6, 1);  // of "k_proj"
    tensors[projection + "." + kind + "_scale"] = {
        .shape = {static_cast<int64_t>(heads.size())},
        .values = std::vector<float>(heads.begin(), heads.end()),
        .type = WrittenTensor::Type::kF32};
  }
  return tensors;
}

TinyLlama::Rounding InCodes(HeadScales scales) {
  return [scales = std::move(scales)](const std::string& projection, std::vector<double>& row) {
    const auto found = scales.find(projection);
    const std::vector<double> heads =
        found == scales.end() ? std::vector<double>{1} : found->second;
    const size_t width = row.size() / heads.size();
    for (size_t head = 0; head < heads.size(); ++head) {
      RoundE4M3(std::span(row).subspan(head * width, width), heads[head]);
    }
  };
}

}  // namespace millrace
