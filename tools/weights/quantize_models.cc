#include "tools/weights/quantize_models.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "engine/weights/safetensors_writer.h"
#include "gtest/gtest.h"
#include "kernels/core/dtype.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Shape = std::vector<int64_t>;

}  // namespace

void QuantizeModel::Add(const std::string& name, const Shape& shape) {
  size_t size = 1;
  for (const int64_t extent : shape) size *= static_cast<size_t>(extent);
  std::mt19937 rng(static_cast<uint32_t>(shapes.size()));
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float>& x = values[name];
  x.clear();
  for (size_t i = 0; i < size; ++i) {
    x.push_back(ToFloat(ToBFloat16(std::ldexp(normal(rng), static_cast<int>(i / 16 % 9) - 4))));
  }
  for (size_t i = 0; i < std::min<size_t>(size, 16); ++i) x[i] = 0;
  shapes[name] = shape;
}

std::string QuantizeModel::Write(const std::string& name, FileDType matrix_dtype) const {
  const std::string dir = ::testing::TempDir() + "/" + name;
  fs::remove_all(dir);
  fs::create_directories(dir + "/encoding");
  SafetensorsWriter writer;
  for (const auto& [tensor, shape] : shapes) {
    const std::vector<float>& x = values.at(tensor);
    if (shape.size() == 1 || matrix_dtype == FileDType::kF32) {
      writer.AddF32(tensor, shape, x);
      continue;
    }
    std::string bytes;
    for (const float value : x) {
      const uint16_t bits = ToBFloat16(value).bits;
      bytes.push_back(static_cast<char>(bits & 0xff));
      bytes.push_back(static_cast<char>(bits >> 8));
    }
    writer.Add(tensor, matrix_dtype, shape, bytes);
  }
  WriteTestFile(dir + "/model.safetensors", writer.Bytes());
  WriteTestFile(dir + "/config.json", config.dump());
  WriteTestFile(dir + "/tokenizer.json", "{\"any\": \"text\"}");
  WriteTestFile(dir + "/pytorch_model.bin", "old");
  return dir;
}

QuantizeModel TinyLlamaToQuantize() {
  QuantizeModel model;
  model.config = {{"model_type", "llama"}, {"architectures", {"LlamaForCausalLM"}}, {"zeta", 1}};
  model.Add("model.embed_tokens.weight", {20, 96});
  model.Add("lm_head.weight", {20, 96});
  model.Add("model.norm.weight", {96});
  const std::string layer = "model.layers.10.";
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    model.Add(layer + "self_attn." + name + ".weight", {name[0] == 'q' ? 192 : 96, 96});
  }
  model.Add(layer + "self_attn.q_proj.bias", {192});
  model.Add(layer + "mlp.gate_proj.weight", {160, 96});
  model.Add(layer + "mlp.up_proj.weight", {160, 96});
  model.Add(layer + "mlp.down_proj.weight", {96, 160});
  model.Add(layer + "input_layernorm.weight", {96});
  return model;
}

QuantizeModel TinyDeepseekToQuantize() {
  QuantizeModel model;
  model.config = {{"model_type", "deepseek_v4"}, {"architectures", {"DeepseekV4ForCausalLM"}}};
  model.Add("embed.weight", {20, 160});
  model.Add("head.weight", {20, 160});
  for (const std::string layer : {"layers.2.", "mtp.0."}) {
    for (const char* name : {"attn.wq_a", "attn.wq_b", "attn.wkv", "attn.wo_a", "attn.wo_b",
                             "ffn.shared_experts.w1", "attn.indexer.wq_b"}) {
      model.Add(layer + name + ".weight", {136, 160});
    }
    model.Add(layer + "attn.compressor.wkv.weight", {32, 160});
    model.Add(layer + "attn.q_norm.weight", {160});
    model.Add(layer + "ffn.gate.weight", {2, 160});
    for (const std::string expert : {"0", "1"}) {
      for (const char* name : {"w1", "w2", "w3"}) {
        model.Add(layer + "ffn.experts." + expert + "." + name + ".weight", {64, 160});
      }
    }
  }
  model.Add("mtp.0.e_proj.weight", {160, 160});
  return model;
}

}  // namespace millrace
