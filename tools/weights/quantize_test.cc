#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/weights/checkpoint.h"
#include "gtest/gtest.h"
#include "kernels/core/check.h"
#include "kernels/core/dtype.h"
#include "kernels/lowp/small_float.h"
#include "nlohmann/json.hpp"
#include "tools/weights/quantize_models.h"
#include "tools/weights/quantize_run.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Floats = std::vector<float>;
using Shape = std::vector<int64_t>;

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Reads a quantised folder by the published formulas, apart from the code under test.
class Reader final {
 public:
  explicit Reader(const std::string& dir) {
    auto opened = Checkpoint::Open(dir);
    MR_CHECK(opened.ok());
    checkpoint_ = *std::move(opened);
  }

  const TensorInfo& Get(const std::string& name) const {
    const TensorInfo* const tensor = checkpoint_->Find(name);
    if (tensor == nullptr) ADD_FAILURE() << name << " is missing";
    MR_CHECK(tensor != nullptr);
    return *tensor;
  }
  bool Has(const std::string& name) const { return checkpoint_->Find(name) != nullptr; }
  size_t size() const { return checkpoint_->tensors().size(); }

  float F32(const std::string& name) const { return F32At(Get(name), 0); }

  static uint8_t ByteAt(const TensorInfo& tensor, int64_t i) {
    return static_cast<uint8_t>(tensor.data[static_cast<size_t>(i)]);
  }
  static float F32At(const TensorInfo& tensor, int64_t i) {
    MR_CHECK(tensor.dtype == FileDType::kF32);
    float value = 0;
    std::memcpy(&value, tensor.data.data() + i * 4, 4);
    return value;
  }
  // Element i of the matrix whose codes these are, two to a byte but for FP8.
  static float CodeAt(const TensorInfo& codes, int64_t i) {
    if (codes.dtype == FileDType::kF8E4M3) return kE4M3Values[ByteAt(codes, i)];
    return kE2M1Values[ByteAt(codes, i / 2) >> (i % 2 * 4) & 0xf];
  }
  static float ScaleAt(const TensorInfo& scales, int64_t i) {
    if (scales.dtype == FileDType::kF32) return F32At(scales, i);
    if (scales.dtype == FileDType::kF8E4M3) return kE4M3Values[ByteAt(scales, i)];
    return kE8M0Values[ByteAt(scales, i)];
  }

 private:
  std::unique_ptr<Checkpoint> checkpoint_;
};

// Names and types of one format, from its description.
struct Spelling {
  std::string codes, scale, global;  // suffixes
  FileDType codes_dtype, scale_dtype;
  bool reciprocal = false;
};
const Spelling kFp8Llama = {".weight", ".weight_scale_inv", "", FileDType::kF8E4M3,
                            FileDType::kF32};
const Spelling kFp8Base = {".weight", ".scale", "", FileDType::kF8E4M3, FileDType::kF32};
const Spelling kFp8Released = {".weight", ".scale", "", FileDType::kF8E4M3, FileDType::kF8E8M0};
const Spelling kMxfp4Released = {".weight", ".scale", "", FileDType::kI8, FileDType::kF8E8M0};
const Spelling kMxfp4Ct = {".weight_packed", ".weight_scale", "", FileDType::kU8, FileDType::kU8};
const Spelling kNvfp4 = {".weight", ".weight_scale", ".weight_scale_2", FileDType::kU8,
                         FileDType::kF8E4M3};
const Spelling kNvfp4Ct = {".weight_packed", ".weight_scale",    ".weight_global_scale",
                           FileDType::kU8,   FileDType::kF8E4M3, true};

// Every element is within half the widest gap of its format, and the report says the same error.
void ExpectClose(const Reader& reader, const QuantizeModel& model, const std::string& name,
                 const Spelling& spelling, const QuantError& error) {
  const std::string base = name.substr(0, name.size() - 7);
  const Shape& shape = model.shapes.at(name);
  const bool is_fp8 = spelling.codes_dtype == FileDType::kF8E4M3;
  const int64_t block = is_fp8 ? 128 : (spelling.global.empty() ? 32 : 16);
  const TensorInfo& codes = reader.Get(base + spelling.codes);
  const TensorInfo& scales = reader.Get(base + spelling.scale);
  ASSERT_EQ(codes.dtype, spelling.codes_dtype) << name;
  ASSERT_EQ(scales.dtype, spelling.scale_dtype) << name;
  ASSERT_EQ(codes.shape, (Shape{shape[0], is_fp8 ? shape[1] : shape[1] / 2})) << name;
  ASSERT_EQ(scales.shape,
            (Shape{is_fp8 ? (shape[0] + 127) / 128 : shape[0], (shape[1] + block - 1) / block}));
  double global = 1;
  if (!spelling.global.empty()) {
    const auto stored = static_cast<double>(reader.F32(base + spelling.global));
    global = spelling.reciprocal ? 1 / stored : stored;
  }
  const Floats& values = model.values.at(name);
  double largest = 0;
  for (int64_t i = 0; i < shape[0] * shape[1]; ++i) {
    const int64_t row = i / shape[1];
    const int64_t scale_row = is_fp8 ? row / 128 : row;
    const float scale = Reader::ScaleAt(scales, scale_row * scales.shape[1] + i % shape[1] / block);
    const double unit = static_cast<double>(scale) * global;
    const double restored = static_cast<double>(Reader::CodeAt(codes, i)) * unit;
    const double distance =
        std::fabs(restored - static_cast<double>(values[static_cast<size_t>(i)]));
    ASSERT_LE(distance, (is_fp8 ? 16 : 1) * unit * 1.000001) << name << " element " << i;
    largest = std::max(largest, distance);
  }
  // The report's is of values rounded to float: 2^-24 of a value that may be 32 times the error.
  EXPECT_NEAR(error.max, largest, 2e-6 * largest) << name;
  EXPECT_GT(error.relative_rms(), 0.0);
  EXPECT_LT(error.relative_rms(), is_fp8 ? 0.04 : 0.2) << name;
}

struct Quantised {
  std::string dir;
  QuantizeReport report;
  Json config;

  const QuantError& Error(const std::string& name) const {
    for (const QuantizeReport::Tensor& tensor : report.tensors) {
      if (tensor.name == name) return tensor.error;
    }
    ADD_FAILURE() << name << " is not in the report";
    return report.tensors.front().error;
  }
};

Quantised Quantise(const std::string& input, QuantTarget target, int threads = 3,
                   int64_t max_shard_bytes = 1 << 30) {
  Quantised result;
  result.dir = input + ".out" + std::to_string(static_cast<int>(target));
  fs::remove_all(result.dir);
  int64_t seen = -1;
  int64_t all = 0;
  auto report = QuantizeCheckpoint({.input = input,
                                    .output = result.dir,
                                    .target = target,
                                    .threads = threads,
                                    .max_shard_bytes = max_shard_bytes,
                                    .progress = [&](int64_t done, int64_t total) {
                                      EXPECT_GE(done, seen);
                                      seen = done;
                                      all = total;
                                    }});
  EXPECT_TRUE(report.ok()) << report.status();
  MR_CHECK(report.ok());
  EXPECT_EQ(seen, all);
  EXPECT_EQ(all, report->bytes_in);
  result.report = *std::move(report);
  result.config = Json::parse(ReadText(result.dir + "/config.json"));
  EXPECT_FALSE(fs::exists(result.dir + ".partial"));
  return result;
}

void ExpectCopied(const Reader& reader, const QuantizeModel& model, const std::string& name) {
  const TensorInfo& tensor = reader.Get(name);
  ASSERT_EQ(tensor.shape, model.shapes.at(name));
  const Floats& want = model.values.at(name);
  for (size_t i = 0; i < want.size(); ++i) {
    if (tensor.dtype == FileDType::kF32) {
      ASSERT_EQ(Reader::F32At(tensor, static_cast<int64_t>(i)), want[i]);
    } else {
      BFloat16 stored;
      std::memcpy(&stored.bits, tensor.data.data() + i * 2, 2);
      ASSERT_EQ(ToFloat(stored), want[i]);
    }
  }
}

TEST(Quantize, LlamaInEachFormat) {
  const QuantizeModel model = TinyLlamaToQuantize();
  const std::map<QuantTarget, Spelling> spellings = {{QuantTarget::kFp8, kFp8Llama},
                                                     {QuantTarget::kMxfp4, kMxfp4Ct},
                                                     {QuantTarget::kNvfp4, kNvfp4},
                                                     {QuantTarget::kNvfp4Ct, kNvfp4Ct}};
  for (const FileDType dtype : {FileDType::kBF16, FileDType::kF32}) {
    const std::string input = model.Write("llama", dtype);
    for (const auto& [target, spelling] : spellings) {
      const Quantised out = Quantise(input, target);
      const Reader reader(out.dir);
      EXPECT_EQ(out.report.tensors.size(), 7u);
      EXPECT_EQ(out.report.copied, 5);
      for (const auto& [name, shape] : model.shapes) {
        if (absl::StrContains(name, "_proj.weight")) {
          ExpectClose(reader, model, name, spelling, out.Error(name));
        } else {
          ExpectCopied(reader, model, name);
        }
      }
      EXPECT_EQ(ReadText(out.dir + "/tokenizer.json"), "{\"any\": \"text\"}");
      EXPECT_FALSE(fs::exists(out.dir + "/pytorch_model.bin"));
      EXPECT_EQ(out.report.left_out, (std::vector<std::string>{"encoding", "pytorch_model.bin"}));
      EXPECT_EQ(out.config["zeta"], 1);
    }
  }
}

TEST(Quantize, LlamaConfigs) {
  const std::string input = TinyLlamaToQuantize().Write("llama_configs");
  const Json fp8 = Quantise(input, QuantTarget::kFp8).config["quantization_config"];
  EXPECT_EQ(fp8["quant_method"], "fp8");
  EXPECT_EQ(fp8["weight_block_size"], Json({128, 128}));
  EXPECT_EQ(fp8["modules_to_not_convert"], Json::array({"lm_head"}));
  const Json mxfp4 = Quantise(input, QuantTarget::kMxfp4).config["quantization_config"];
  EXPECT_EQ(mxfp4["format"], "mxfp4-pack-quantized");
  EXPECT_EQ(mxfp4["config_groups"]["group_0"]["weights"]["group_size"], 32);
  const Quantised nvfp4 = Quantise(input, QuantTarget::kNvfp4);
  EXPECT_EQ(nvfp4.config["quantization_config"]["quant_method"], "modelopt");
  EXPECT_EQ(nvfp4.config["quantization_config"]["quant_algo"], "NVFP4");
  const Json sibling = Json::parse(ReadText(nvfp4.dir + "/hf_quant_config.json"));
  EXPECT_EQ(sibling["quantization"]["exclude_modules"], Json::array({"lm_head"}));
  const Json ct = Quantise(input, QuantTarget::kNvfp4Ct).config["quantization_config"];
  EXPECT_EQ(ct["quant_method"], "compressed-tensors");
  EXPECT_EQ(ct["format"], "nvfp4-pack-quantized");
  EXPECT_EQ(ct["config_groups"]["group_0"]["weights"]["strategy"], "tensor_group");
}

// Scales of outputs and of matrices: by their own largest magnitudes, under each spelling.
TEST(Quantize, LlamaInOtherFormsOfFp8) {
  const QuantizeModel model = TinyLlamaToQuantize();
  const std::string input = model.Write("llama_fp8");
  const std::string name = "model.layers.10.mlp.up_proj";
  const Shape shape = model.shapes.at(name + ".weight");
  const Floats& x = model.values.at(name + ".weight");
  for (const QuantTarget target :
       {QuantTarget::kFp8Ct, QuantTarget::kFp8CtTensor, QuantTarget::kFp8ModelOpt}) {
    const Quantised out = Quantise(input, target);
    const Reader reader(out.dir);
    const TensorInfo& codes = reader.Get(name + ".weight");
    const TensorInfo& scale = reader.Get(name + ".weight_scale");
    const bool rows = target == QuantTarget::kFp8Ct;
    const bool modelopt = target == QuantTarget::kFp8ModelOpt;
    EXPECT_EQ(codes.dtype, FileDType::kF8E4M3);
    EXPECT_EQ(scale.shape, rows ? (Shape{shape[0], 1}) : modelopt ? Shape{} : Shape{1});
    for (int64_t row = 0; row < shape[0]; ++row) {
      const float unit = Reader::F32At(scale, rows ? row : 0);
      for (int64_t i = row * shape[1]; i < (row + 1) * shape[1]; ++i) {
        const double restored = static_cast<double>(Reader::CodeAt(codes, i) * unit);
        ASSERT_LE(std::fabs(restored - static_cast<double>(x[static_cast<size_t>(i)])),
                  16 * static_cast<double>(unit) * 1.000001);
      }
    }
    const Json config = out.config["quantization_config"];
    EXPECT_EQ(config["quant_method"], modelopt ? "modelopt" : "compressed-tensors");
    EXPECT_EQ(config["ignore"], Json::array({"lm_head"}));
    EXPECT_LT(out.Error(name + ".weight").relative_rms(), 0.04);
    if (!modelopt) continue;
    EXPECT_EQ(config["quant_algo"], "FP8");
    EXPECT_EQ(reader.F32(name + ".input_scale"), static_cast<float>(256.0 / 448));
    const Json sibling = Json::parse(ReadText(out.dir + "/hf_quant_config.json"));
    EXPECT_EQ(sibling["quantization"]["exclude_modules"], Json::array({"lm_head"}));
  }
  const std::string deepseek = TinyDeepseekToQuantize().Write("deepseek_fp8_ct");
  const auto refused = QuantizeCheckpoint(
      {.input = deepseek, .output = deepseek + ".refused", .target = QuantTarget::kFp8Ct});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
}

TEST(Quantize, Nvfp4SharesTheGlobalScaleOfFusedMatrices) {
  const Reader llama(
      Quantise(TinyLlamaToQuantize().Write("llama_shared"), QuantTarget::kNvfp4).dir);
  const std::string layer = "model.layers.10.";
  const auto scale = [&](const std::string& name) {
    return llama.F32(layer + name + ".weight_scale_2");
  };
  EXPECT_EQ(scale("self_attn.q_proj"), scale("self_attn.k_proj"));
  EXPECT_EQ(scale("self_attn.q_proj"), scale("self_attn.v_proj"));
  EXPECT_EQ(scale("mlp.gate_proj"), scale("mlp.up_proj"));
  EXPECT_NE(scale("mlp.gate_proj"), scale("mlp.down_proj"));
  EXPECT_TRUE(llama.Get(layer + "mlp.up_proj.input_scale").shape.empty());
  EXPECT_EQ(llama.F32(layer + "mlp.up_proj.input_scale"), static_cast<float>(256.0 / 2688));
}

// What each target makes of DeepSeek's linears, main experts and the drafter's experts.
struct DeepseekCase {
  QuantTarget target;
  const Spelling* linear;  // null: copied
  const Spelling* expert;
  const Spelling* mtp_expert;
  const char* expert_dtype;
};

TEST(Quantize, DeepseekInEachFormat) {
  const QuantizeModel model = TinyDeepseekToQuantize();
  const std::string input = model.Write("deepseek");
  const std::vector<DeepseekCase> cases = {
      {QuantTarget::kFp8, &kFp8Base, &kFp8Base, &kFp8Base, "fp8"},
      {QuantTarget::kMxfp4, &kFp8Released, &kMxfp4Released, &kMxfp4Released, "fp4"},
      {QuantTarget::kNvfp4, &kFp8Released, &kNvfp4, &kMxfp4Released, "fp4"},
      {QuantTarget::kNvfp4Ct, nullptr, &kNvfp4Ct, &kNvfp4Ct, "fp4"}};
  for (const DeepseekCase& c : cases) {
    const Quantised out = Quantise(input, c.target);
    const Reader reader(out.dir);
    EXPECT_EQ(out.config["expert_dtype"], c.expert_dtype);
    for (const auto& [name, shape] : model.shapes) {
      const bool is_expert = absl::StrContains(name, ".experts.");
      const bool is_linear =
          absl::StrContains(name, "attn.w") || absl::StrContains(name, "indexer.wq_b") ||
          absl::StrContains(name, "shared_experts") || absl::StrContains(name, "e_proj");
      const Spelling* spelling = is_linear ? c.linear : nullptr;
      if (is_expert) spelling = absl::StartsWith(name, "mtp.") ? c.mtp_expert : c.expert;
      if (spelling == nullptr) {
        ExpectCopied(reader, model, name);
      } else {
        ExpectClose(reader, model, name, *spelling, out.Error(name));
      }
    }
  }
}

TEST(Quantize, DeepseekConfigs) {
  const std::string input = TinyDeepseekToQuantize().Write("deepseek_configs");
  const Json base = Quantise(input, QuantTarget::kFp8).config["quantization_config"];
  EXPECT_FALSE(base.contains("scale_fmt"));
  const Json released = Quantise(input, QuantTarget::kMxfp4).config["quantization_config"];
  EXPECT_EQ(released, Json::parse(R"({"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0",
      "activation_scheme": "dynamic", "weight_block_size": [128, 128]})"));
  const Json nvfp4 = Quantise(input, QuantTarget::kNvfp4).config["quantization_config"];
  EXPECT_EQ(nvfp4["quant_method"], "fp8");
  EXPECT_EQ(nvfp4["moe_quant_algo"], "NVFP4");
  EXPECT_EQ(nvfp4["quant_algo"], "MIXED_PRECISION");
  EXPECT_TRUE(nvfp4["kv_cache_quant_algo"].is_null());
  EXPECT_EQ(nvfp4["quantized_layers"],
            Json::parse(R"({"layers.2.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16}})"));
  EXPECT_EQ(nvfp4["ignore"], Json({"*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"}));
}

TEST(Quantize, ShardsAndThreadsDoNotMatter) {
  const std::string input = TinyDeepseekToQuantize().Write("sharded");
  const Quantised one = Quantise(input, QuantTarget::kNvfp4, 1);
  const Reader whole(one.dir);
  fs::rename(one.dir, one.dir + ".whole");
  const Quantised many = Quantise(input, QuantTarget::kNvfp4, 5, 20000);
  const Reader parts(many.dir);
  EXPECT_TRUE(fs::exists(many.dir + "/model.safetensors.index.json"));
  ASSERT_EQ(whole.size(), parts.size());
  const auto checkpoint = Checkpoint::Open(many.dir);
  for (const auto& [name, tensor] : (*checkpoint)->tensors()) {
    EXPECT_EQ(whole.Get(name).data, tensor->data) << name;
  }
  for (size_t i = 0; i < one.report.tensors.size(); ++i) {
    EXPECT_EQ(one.report.tensors[i].error.squared_error,
              many.report.tensors[i].error.squared_error);
  }
  fs::remove_all(one.dir + ".whole");
}

// Nothing is left of a run that fails, and the message says what to do.
void ExpectRefused(const std::string& input, QuantTarget target, absl::StatusCode code,
                   const std::string& message) {
  const std::string output = input + ".refused";
  const auto report = QuantizeCheckpoint({.input = input, .output = output, .target = target});
  EXPECT_EQ(report.status().code(), code) << report.status();
  EXPECT_TRUE(absl::StrContains(report.status().message(), message)) << report.status();
  EXPECT_FALSE(fs::exists(output));
  EXPECT_FALSE(fs::exists(output + ".partial"));
}

TEST(Quantize, RefusesTensors) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const std::string up = "model.layers.10.mlp.up_proj.weight";
  QuantizeModel model = TinyLlamaToQuantize();
  ExpectRefused(model.Write("half", FileDType::kF16), QuantTarget::kFp8, kInvalid,
                "is F16, want BF16 or F32");
  model.Add(up, {160, 104});
  ExpectRefused(model.Write("odd"), QuantTarget::kMxfp4, kInvalid,
                "up_proj.weight' has shape [160, 104]; MXFP4 needs columns in multiples of 32");
  ExpectRefused(model.Write("odd"), QuantTarget::kNvfp4, kInvalid, "multiples of 16");
  model.Add(up, {160, 96});
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 3e38f}) {
    model.values[up][5000] = bad;
    for (const QuantTarget target : {QuantTarget::kFp8, QuantTarget::kNvfp4}) {
      ExpectRefused(model.Write("nan"), target, kInvalid,
                    "up_proj.weight' has elements that are NaN");
    }
  }
  model.Add(up, {160 * 96});
  ExpectRefused(model.Write("flat"), QuantTarget::kFp8, kInvalid, "want a matrix");
  QuantizeModel none;
  none.config = TinyLlamaToQuantize().config;
  none.Add("model.norm.weight", {8});
  ExpectRefused(none.Write("none"), QuantTarget::kFp8, kInvalid, "no tensor has the name");
  QuantizeModel scaled = TinyLlamaToQuantize();
  scaled.Add("model.layers.10.mlp.up_proj.weight_scale_inv", {4});
  ExpectRefused(scaled.Write("scaled"), QuantTarget::kFp8, kInvalid, "would be there twice");
  QuantizeModel renamed = TinyDeepseekToQuantize();
  renamed.Add("model.layers.0.self_attn.q_a_proj.weight", {32, 32});
  ExpectRefused(renamed.Write("renamed"), QuantTarget::kFp8, kInvalid, "transformers' names");
}

TEST(Quantize, RefusesConfigs) {
  QuantizeModel model = TinyLlamaToQuantize();
  model.config["model_type"] = "deepseek_v41";
  ExpectRefused(model.Write("v41"), QuantTarget::kFp8, absl::StatusCode::kUnimplemented,
                "model_type 'deepseek_v41' is not one of");
  model = TinyDeepseekToQuantize();
  model.config["dspark_block_size"] = 5;
  ExpectRefused(model.Write("dspark"), QuantTarget::kFp8, absl::StatusCode::kUnimplemented,
                "DSpark");
  model = TinyLlamaToQuantize();
  model.config["quantization_config"] = {{"quant_method", "fp8"}};
  ExpectRefused(model.Write("again"), QuantTarget::kFp8, absl::StatusCode::kInvalidArgument,
                "quantised already");
  fs::remove(model.Write("no_config") + "/config.json");
  ExpectRefused(::testing::TempDir() + "/no_config", QuantTarget::kFp8, absl::StatusCode::kNotFound,
                "config.json");
}

TEST(Quantize, RefusesOutputs) {
  const std::string input = TinyLlamaToQuantize().Write("outputs");
  const std::string output = input + ".taken";
  fs::remove_all(output);
  fs::create_directories(output);
  EXPECT_TRUE(QuantizeCheckpoint({.input = input, .output = output}).ok()) << "an empty folder";
  const auto again = QuantizeCheckpoint({.input = input, .output = output});
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists);
  const auto orphan = QuantizeCheckpoint({.input = input, .output = output + "/no/where"});
  EXPECT_EQ(orphan.status().code(), absl::StatusCode::kNotFound);
  fs::create_directories(input + ".new.partial");
  const auto left = QuantizeCheckpoint({.input = input, .output = input + ".new"});
  EXPECT_EQ(left.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(fs::exists(input + ".new"));
}

TEST(ParseQuantTarget, Names) {
  EXPECT_EQ(*ParseQuantTarget("nvfp4-ct"), QuantTarget::kNvfp4Ct);
  const auto unknown = ParseQuantTarget("int4");
  EXPECT_EQ(unknown.status().message(),
            "format 'int4' is not one of fp8, fp8-ct, fp8-ct-tensor, fp8-modelopt, mxfp4, nvfp4, "
            "nvfp4-ct");
}

}  // namespace
}  // namespace millrace
