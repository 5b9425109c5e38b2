// The bounds of the tests on GPUs, on the formulas alone: what is wrong in one place is above them.
#include "tests/parity/nearness.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parity/cache_codes.h"
#include "tests/parity/checkpoint_writer.h"
#include "tests/parity/dequantised_checkpoint.h"
#include "tests/parity/engine_runs.h"
#include "tests/parity/fp8_llama.h"
#include "tests/parity/tiny_llama.h"

namespace millrace {
namespace {

// Of `wrong`, taken for an engine.
Nearness NearnessOf(const TinyLlama& model, const TinyLlama& wrong) {
  const LogitsOfPrompt measured = [&wrong](const std::vector<int32_t>& prompt) {
    std::vector<std::vector<float>> logits;
    for (const std::vector<double>& row : wrong.Logits(prompt)) {
      logits.emplace_back(row.begin(), row.end());
    }
    return logits;
  };
  return MeasureNearness(model, measured, {1, 5, 33});
}

void ExpectNoticed(const TinyLlama& model, const TinyLlama& wrong, const std::string& what) {
  const Nearness nearness = NearnessOf(model, wrong);
  EXPECT_GT(nearness.error, kNoises * nearness.noise) << what << ": " << nearness;
}

TEST(NearnessTest, ScalesOfACache) {
  TinyLlama model({.hidden = 192, .intermediate = 320, .heads = 6, .kv_heads = 3, .head_dim = 64},
                  1);
  const HeadScales scales = UnlikeScales(model.shape(), 0.075f);
  model.round_cache = InCodes(scales);
  const auto wrong = [&](const std::string& what, auto edit) {
    HeadScales others = scales;
    edit(others);
    // Codes are made with their own scale and stand for another.
    TinyLlama made = model;
    made.round_cache = [&](const std::string& projection, std::vector<double>& row) {
      model.round_cache(projection, row);
      const size_t width = row.size() / 3;
      for (size_t i = 0; i < row.size(); ++i) {
        row[i] *= others.at(projection)[i / width] / scales.at(projection)[i / width];
      }
    };
    ExpectNoticed(model, made, what);
  };
  for (const std::string layer : {"model.layers.0.self_attn.", "model.layers.1.self_attn."}) {
    for (const std::string& projection : {layer + "k_proj", layer + "v_proj"}) {
      wrong(projection + " of another head",
            [&](HeadScales& s) { std::swap(s[projection][0], s[projection][1]); });
    }
    wrong(layer + "values by the scales of keys",
          [&](HeadScales& s) { s[layer + "v_proj"] = s[layer + "k_proj"]; });
  }
}

TEST(NearnessTest, ACacheThatIsNotFp8) {
  const TinyLlama model(
      {.hidden = 192, .intermediate = 320, .heads = 6, .kv_heads = 3, .head_dim = 64}, 1);
  TinyLlama rounded = model;
  rounded.round_cache = InCodes(UnlikeScales(model.shape(), 0.075f));
  ExpectNoticed(rounded, model, "not rounded");
}

class NearnessFp8Test : public testing::TestWithParam<QuantTarget> {};

TEST_P(NearnessFp8Test, ScalesOfWeights) {
  const TinyLlamaShape shape = {
      .hidden = 160, .intermediate = 272, .heads = 4, .kv_heads = 2, .head_dim = 64};
  const Fp8Llama llama = MakeFp8Llama(shape, GetParam(), "nearness");
  const bool blocks = GetParam() == QuantTarget::kFp8;
  for (const std::string projection :
       {"self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"}) {
    std::map<std::string, WrittenTensor> tensors = StoredTensors(llama.dir);
    std::vector<float>& scales =
        tensors
            .at("model.layers.0." + projection + (blocks ? ".weight_scale_inv" : ".weight_scale"))
            .values;
    if (scales.size() == 1) {
      scales[0] *= 3;
    } else {  // of the next block, or of a row of the next patch
      std::rotate(scales.begin(), scales.begin() + (blocks ? 1 : 64), scales.end());
    }
    const std::string dir = MakeFolder("nearness_wrong");
    WriteCheckpoint(dir, ConfigOf(llama.dir), tensors);
    TinyLlama wrong = Dequantised(shape, dir);
    wrong.round_inputs = llama.twin.round_inputs;
    ExpectNoticed(llama.twin, wrong, projection);
  }
}

TEST(LargestError, NanIsLargest) {
  EXPECT_EQ(LargestError({{1, 2, 3}}, {{1, std::nanf(""), 4}}), INFINITY);
  EXPECT_EQ(LargestError({{1, 2, 3}}, {{1, 2.5f, 4}}), 1);
}

INSTANTIATE_TEST_SUITE_P(Formats, NearnessFp8Test,
                         testing::Values(QuantTarget::kFp8, QuantTarget::kFp8Ct,
                                         QuantTarget::kFp8CtTensor, QuantTarget::kFp8ModelOpt),
                         [](const auto& info) { return Fp8FormatName(info.param); });

}  // namespace
}  // namespace millrace
