#include "tools/weights/quantize_plan.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/weights/safetensors_header.h"
#include "kernels/core/status.h"
#include "kernels/lowp/block_formats.h"

namespace millrace {
namespace {

struct TargetName {
  const char* name;
  QuantTarget target;
};
constexpr std::array<TargetName, 7> kTargets = {{{"fp8", QuantTarget::kFp8},
                                                 {"fp8-ct", QuantTarget::kFp8Ct},
                                                 {"fp8-ct-tensor", QuantTarget::kFp8CtTensor},
                                                 {"fp8-modelopt", QuantTarget::kFp8ModelOpt},
                                                 {"mxfp4", QuantTarget::kMxfp4},
                                                 {"nvfp4", QuantTarget::kNvfp4},
                                                 {"nvfp4-ct", QuantTarget::kNvfp4Ct}}};

constexpr std::array<std::string_view, 8> kDeepseekFp8 = {
    "attn.wq_a", "attn.wq_b",         "attn.wkv", "attn.wo_a",
    "attn.wo_b", "attn.indexer.wq_b", "e_proj",   "h_proj"};

struct Rule {
  Encoding encoding = Encoding::kCopy;
  std::string group = {};
};

bool IsNumber(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

template <size_t kCount>
bool Contains(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "model.layers.3.mlp.up_proj.weight"
Rule LlamaRule(const std::vector<std::string>& parts, QuantTarget target) {
  if (parts.size() != 6 || parts[0] != "model" || parts[1] != "layers" || !IsNumber(parts[2])) {
    return {};
  }
  constexpr std::array<std::string_view, 3> kQkv = {"q_proj", "k_proj", "v_proj"};
  constexpr std::array<std::string_view, 2> kGateUp = {"gate_proj", "up_proj"};
  const std::string& projection = parts[4];
  const std::string block = absl::StrJoin(parts.begin(), parts.begin() + 4, ".");
  std::string group = absl::StrCat(block, ".", projection);
  if (parts[3] == "self_attn" && Contains(kQkv, projection)) {
    group = absl::StrCat(block, ".qkv");
  } else if (parts[3] == "mlp" && Contains(kGateUp, projection)) {
    group = absl::StrCat(block, ".gate_up");
  } else if (group != absl::StrCat(block, ".o_proj") &&
             group != absl::StrCat(block, ".down_proj")) {
    return {};
  }
  switch (target) {
    case QuantTarget::kFp8:
      return {Encoding::kFp8F32, group};
    case QuantTarget::kFp8Ct:
      return {Encoding::kFp8Channel, group};
    case QuantTarget::kFp8CtTensor:
    case QuantTarget::kFp8ModelOpt:
      return {Encoding::kFp8Tensor, absl::StrCat(block, ".", projection)};
    case QuantTarget::kMxfp4:
      return {Encoding::kMxfp4, group};
    case QuantTarget::kNvfp4:
      return {Encoding::kNvfp4, group};
    case QuantTarget::kNvfp4Ct:
      break;
  }
  return {Encoding::kNvfp4Reciprocal, group};
}

Encoding DeepseekExpertEncoding(QuantTarget target, bool is_mtp) {
  switch (target) {
    case QuantTarget::kFp8:
      return Encoding::kFp8F32;
    case QuantTarget::kMxfp4:
      return Encoding::kMxfp4;
    case QuantTarget::kNvfp4:
      return is_mtp ? Encoding::kMxfp4 : Encoding::kNvfp4;
    default:
      break;
  }
  return Encoding::kNvfp4Reciprocal;
}

// "layers.3.ffn.experts.7.w1.weight", "mtp.0.e_proj.weight"
Rule DeepseekRule(const std::vector<std::string>& parts, QuantTarget target) {
  const bool is_mtp = parts[0] == "mtp";
  if (parts.size() < 4 || (parts[0] != "layers" && !is_mtp) || !IsNumber(parts[1])) return {};
  const std::string module = absl::StrJoin(parts.begin() + 2, parts.end() - 1, ".");
  constexpr std::array<std::string_view, 3> kMatrices = {"w1", "w2", "w3"};
  const bool is_ffn = parts[2] == "ffn" && Contains(kMatrices, parts[parts.size() - 2]);
  if (is_ffn && parts.size() == 7 && parts[3] == "experts" && IsNumber(parts[4])) {
    const std::string expert = absl::StrJoin(parts.begin(), parts.begin() + 5, ".");
    return {DeepseekExpertEncoding(target, is_mtp),
            absl::StrCat(expert, parts[5] == "w2" ? ".w2" : ".w13")};
  }
  const bool is_shared = is_ffn && parts.size() == 6 && parts[3] == "shared_experts";
  if (!is_shared && !Contains(kDeepseekFp8, module)) return {};
  if (target == QuantTarget::kNvfp4Ct) return {};  // its experts only, the rest stays as it is
  return {target == QuantTarget::kFp8 ? Encoding::kFp8F32 : Encoding::kFp8E8m0};
}

Rule RuleFor(const std::string& name, ModelLayout layout, QuantTarget target) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  if (parts.back() != "weight") return {};
  return layout == ModelLayout::kLlama ? LlamaRule(parts, target) : DeepseekRule(parts, target);
}

// The matrix's columns must be a multiple of this.
int64_t BlockOf(Encoding encoding) {
  switch (encoding) {
    case Encoding::kMxfp4:
      return kMxfp4Block;
    case Encoding::kNvfp4:
    case Encoding::kNvfp4Reciprocal:
      return kNvfp4Block;
    default:
      return 1;
  }
}

absl::Status CheckSource(const TensorInfo& tensor, Encoding encoding) {
  std::string reason;
  if (tensor.dtype != FileDType::kBF16 && tensor.dtype != FileDType::kF32) {
    reason = absl::StrCat("is ", std::string(FileDTypeName(tensor.dtype)),
                          ", want BF16 or F32: other types are quantised already or lose twice");
  } else if (tensor.shape.size() != 2 || tensor.num_elements() == 0) {
    reason = absl::StrCat("has shape ", ShapeString(tensor.shape), ", want a matrix");
  } else if (tensor.shape[1] % BlockOf(encoding) != 0) {
    reason = absl::StrCat("has shape ", ShapeString(tensor.shape), "; ",
                          std::string(EncodingName(encoding)), " needs columns in multiples of ",
                          BlockOf(encoding));
  } else {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", QuotedTensor(tensor.name), " ", reason));
}

std::vector<OutputTensor> Nvfp4Outputs(const std::string& base, MatrixShape shape,
                                       bool reciprocal) {
  const std::vector<int64_t> codes = {shape.rows, shape.cols / 2};
  const std::vector<int64_t> scales = {shape.rows, shape.cols / kNvfp4Block};
  if (reciprocal) {
    return {{base + ".weight_packed", FileDType::kU8, codes},
            {base + ".weight_scale", FileDType::kF8E4M3, scales},
            {base + ".weight_global_scale", FileDType::kF32, {1}}};
  }
  return {{base + ".weight", FileDType::kU8, codes},
          {base + ".weight_scale", FileDType::kF8E4M3, scales},
          {base + ".weight_scale_2", FileDType::kF32, {}},
          {base + ".input_scale", FileDType::kF32, {}}};
}

std::vector<OutputTensor> Fp8Outputs(const std::string& base, const TensorInfo& source,
                                     QuantTarget target) {
  std::vector<OutputTensor> outputs = {{base + ".weight", FileDType::kF8E4M3, source.shape}};
  std::vector<int64_t> scale = {source.shape[0], 1};
  if (target == QuantTarget::kFp8CtTensor) scale = {1};
  if (target == QuantTarget::kFp8ModelOpt) scale = {};
  outputs.push_back({base + ".weight_scale", FileDType::kF32, scale});
  if (target == QuantTarget::kFp8ModelOpt) {
    outputs.push_back({base + ".input_scale", FileDType::kF32, {}});
  }
  return outputs;
}

std::vector<OutputTensor> OutputsOf(const TensorInfo& source, Encoding encoding, ModelLayout layout,
                                    QuantTarget target) {
  if (encoding == Encoding::kCopy) return {{source.name, source.dtype, source.shape}};
  const bool is_llama = layout == ModelLayout::kLlama;
  const std::string base =
      source.name.substr(0, source.name.size() - std::string(".weight").size());
  const MatrixShape shape = {source.shape[0], source.shape[1]};
  if (encoding == Encoding::kNvfp4 || encoding == Encoding::kNvfp4Reciprocal) {
    return Nvfp4Outputs(base, shape, encoding == Encoding::kNvfp4Reciprocal);
  }
  if (encoding == Encoding::kMxfp4) {
    const std::vector<int64_t> codes = {shape.rows, shape.cols / 2};
    const std::vector<int64_t> scales = {shape.rows, shape.cols / kMxfp4Block};
    // compressed-tensors' spelling for LLaMA, the release's for DeepSeek.
    if (is_llama) {
      return {{base + ".weight_packed", FileDType::kU8, codes},
              {base + ".weight_scale", FileDType::kU8, scales}};
    }
    return {{base + ".weight", FileDType::kI8, codes},
            {base + ".scale", FileDType::kF8E8M0, scales}};
  }
  if (encoding == Encoding::kFp8Channel || encoding == Encoding::kFp8Tensor) {
    return Fp8Outputs(base, source, target);
  }
  const MatrixShape scales = Fp8ScaleShape(shape);
  return {{base + ".weight", FileDType::kF8E4M3, source.shape},
          {base + (is_llama ? ".weight_scale_inv" : ".scale"),
           encoding == Encoding::kFp8F32 ? FileDType::kF32 : FileDType::kF8E8M0,
           {scales.rows, scales.cols}}};
}

absl::Status CheckNames(const std::vector<PlannedTensor>& plan) {
  std::set<std::string_view> names;
  bool any = false;
  for (const PlannedTensor& tensor : plan) {
    any = any || tensor.encoding != Encoding::kCopy;
    for (const OutputTensor& output : tensor.outputs) {
      if (names.insert(output.name).second) continue;
      return absl::InvalidArgumentError(absl::StrCat("tensor ", QuotedTensor(output.name),
                                                     " would be there twice: the checkpoint has "
                                                     "scales, so it is quantised already"));
    }
  }
  if (any) return absl::OkStatus();
  return absl::InvalidArgumentError("no tensor has the name of one that is quantised");
}

}  // namespace

absl::StatusOr<QuantTarget> ParseQuantTarget(const std::string& name) {
  for (const TargetName& target : kTargets) {
    if (target.name == name) return target.target;
  }
  const auto append_name = [](std::string* out, const TargetName& t) { out->append(t.name); };
  return absl::InvalidArgumentError(absl::StrCat("format '", name, "' is not one of ",
                                                 absl::StrJoin(kTargets, ", ", append_name)));
}

std::string_view EncodingName(Encoding encoding) {
  switch (encoding) {
    case Encoding::kCopy:
      return "copied";
    case Encoding::kFp8F32:
      return "FP8/F32";
    case Encoding::kFp8E8m0:
      return "FP8/E8M0";
    case Encoding::kFp8Channel:
      return "FP8/row";
    case Encoding::kFp8Tensor:
      return "FP8/all";
    case Encoding::kMxfp4:
      return "MXFP4";
    case Encoding::kNvfp4:
    case Encoding::kNvfp4Reciprocal:
      return "NVFP4";
  }
  return "?";
}

absl::StatusOr<std::vector<PlannedTensor>> PlanQuantization(const Checkpoint& checkpoint,
                                                            ModelLayout layout,
                                                            QuantTarget target) {
  const bool llamas = target == QuantTarget::kFp8Ct || target == QuantTarget::kFp8CtTensor ||
                      target == QuantTarget::kFp8ModelOpt;
  if (layout == ModelLayout::kDeepseekV4 && llamas) {
    return absl::UnimplementedError(
        "this format is LLaMA's; DeepSeek-V4 has fp8, mxfp4, nvfp4 and nvfp4-ct");
  }
  std::vector<PlannedTensor> plan;
  for (const auto& file : checkpoint.files()) {
    for (const TensorInfo& tensor : file->tensors()) {
      if (layout == ModelLayout::kDeepseekV4 && absl::StartsWith(tensor.name, "model.")) {
        return absl::InvalidArgumentError(absl::StrCat(
            "tensor ", QuotedTensor(tensor.name),
            ": these are transformers' names; the quantised formats of DeepSeek-V4 have the "
            "released ones ('layers.0.attn.wq_a.weight')"));
      }
      Rule rule = RuleFor(tensor.name, layout, target);
      if (rule.encoding != Encoding::kCopy) RETURN_IF_ERROR(CheckSource(tensor, rule.encoding));
      std::vector<OutputTensor> outputs = OutputsOf(tensor, rule.encoding, layout, target);
      plan.push_back({&tensor, rule.encoding, std::move(rule.group), std::move(outputs)});
    }
  }
  RETURN_IF_ERROR(CheckNames(plan));
  return plan;
}

}  // namespace millrace
