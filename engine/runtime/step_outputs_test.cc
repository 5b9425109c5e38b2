#include "engine/runtime/step_outputs.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/parallel/communicator.h"
#include "engine/runtime/sample_rows.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"

namespace millrace {
namespace {

constexpr int64_t kHidden = 3;
constexpr int32_t kVocab = 7;

// logits[v] = hidden[0] * v + hidden[1]; hidden[2] tells which token a row came from. Notes the
// largest call.
class LineModel final : public Model {
 public:
  absl::Status PlanAttention(const PagedAttentionTarget&, const ForwardBatch&,
                             PagedAttentionPlan&) const override {
    return absl::OkStatus();
  }
  int64_t AttentionPlanBytes(const PagedAttentionTarget&, const LargestStep&) const override {
    return 0;
  }
  absl::Status Forward(ForwardContext&, const ForwardBatch&, const TensorView&) const override {
    return absl::OkStatus();
  }
  absl::Status Logits(ForwardContext&, const TensorView& hidden,
                      const TensorView& logits) const override {
    most_rows = std::max(most_rows, hidden.dim(0));
    for (int64_t r = 0; r < hidden.dim(0); ++r) {
      const float* h = hidden.Rows(r, r + 1).as<float>();
      seen.push_back(static_cast<int64_t>(h[2]));
      for (int32_t v = 0; v < kVocab; ++v) {
        logits.Rows(r, r + 1).as<float>()[v] = h[0] * static_cast<float>(v) + h[1];
      }
    }
    return absl::OkStatus();
  }
  const CacheSpec& cache_spec() const override { return spec_; }
  int64_t hidden_size() const override { return kHidden; }
  int64_t vocab_size() const override { return kVocab; }
  int64_t WorkspaceBytes(Device&, const LargestStep&) const override { return 0; }

  mutable int64_t most_rows = 0;
  mutable std::vector<int64_t> seen;

 private:
  CacheSpec spec_;
};

constexpr PlanLimits kLimits = {.max_num_seqs = 4,
                                .max_num_batched_tokens = 40,
                                .max_model_len = 40,
                                .page_tokens = 40,
                                .num_pages = 4,
                                .vocab_size = kVocab};

SequencePlan Prompt(int32_t slot, int32_t tokens) {
  SequencePlan s;
  s.slot = slot;
  s.init = SlotInit();
  s.init->sampling.temperature = 0;
  s.new_pages = {slot};
  s.tokens.assign(static_cast<size_t>(tokens), 1);
  return s;
}

class StepOutputsTest : public testing::Test {
 protected:
  // Computes the plan; token t has hidden state {slopes[t], 0.5, t}.
  StepResult Compute(const StepPlan& plan, const std::vector<float>& slopes, int64_t max_rows) {
    SlotTable slots(kLimits);
    EXPECT_TRUE(slots.Validate(plan).ok()) << slots.Validate(plan);
    slots.Apply(plan);
    std::vector<float> hidden;
    for (size_t t = 0; t < slopes.size(); ++t) {
      hidden.insert(hidden.end(), {slopes[t], 0.5f, static_cast<float>(t)});
    }
    StepOutputs outputs =
        *StepOutputs::Create(model_, kLimits, *device_, max_rows * kVocab * int64_t{4});
    EXPECT_EQ(outputs.max_rows(), max_rows);
    const int64_t bytes = outputs.WorkspaceBytes(*device_);
    const Buffer memory = *device_->Allocate(bytes);
    Workspace workspace(memory.data(), bytes);
    SingleRank comm(*device_);
    const KvCache cache = *KvCache::Allocate(CacheSpec(), {1, 1, 0}, *device_);
    PagedAttentionPlan attention;
    const OpContext op = {.device = *device_, .stream = {}, .workspace = workspace};
    ForwardContext ctx = {.op = op, .comm = comm, .cache = cache, .attention_plan = attention};
    const int64_t tokens = static_cast<int64_t>(slopes.size());
    std::vector<const SequencePlan*> sampling;
    for (const SequencePlan& s : plan.sequences) {
      if (s.sample) sampling.push_back(&s);
    }
    std::vector<SampleRow> rows(sampling.size());
    StepStaging::Block block = {.host = reinterpret_cast<char*>(rows.data()), .device = nullptr};
    const absl::Status filled = SampleRows(*device_).Fill(
        sampling, slots, static_cast<int64_t>(rows.size()), block, Stream());
    EXPECT_TRUE(filled.ok()) << filled;
    absl::StatusOr<PendingOutputs> pending =
        outputs.Enqueue(ctx, plan, slots,
                        TensorView::Of(hidden.data(), DType::kF32, {tokens, kHidden}), rows.data());
    EXPECT_TRUE(pending.ok()) << pending.status();
    return pending.ok() ? outputs.Finish(*std::move(pending)) : StepResult();
  }

  LineModel model_;
  const std::unique_ptr<CpuDevice> device_ = *CpuDevice::Create(1);
};

double LogSoftmax(float slope, int32_t id) {
  double total = 0;
  for (int32_t v = 0; v < kVocab; ++v) total += std::exp(double{slope} * v);
  return double{slope} * id - std::log(total);
}

TEST_F(StepOutputsTest, NoRowsMeansNoLogits) {
  StepPlan plan;
  plan.step = 5;
  plan.sequences = {Prompt(2, 3)};
  const StepResult result = Compute(plan, {1, 1, 1}, 4);
  EXPECT_EQ(result.step, 5);
  ASSERT_EQ(result.sequences.size(), 1u);
  EXPECT_EQ(result.sequences[0].slot, 2);
  EXPECT_EQ(result.sequences[0].token, -1);
  EXPECT_TRUE(model_.seen.empty());
}

// Sampling, scoring and raw rows of three sequences, mixed, for every size of chunk.
TEST_F(StepOutputsTest, ChunksChangeNothingAndBoundTheRows) {
  StepPlan plan;
  plan.sequences = {Prompt(0, 4), Prompt(1, 3), Prompt(3, 2)};
  SequencePlan& scored = plan.sequences[0];
  scored.sample = true;
  scored.init->sampling.num_logprobs = 2;
  scored.init->sampling.num_prompt_logprobs = 1;
  scored.prompt_logprobs = true;
  scored.score_targets = {3, 6, 0, -1};
  plan.sequences[1].logits_rows = {0, 2};
  plan.sequences[2].sample = true;
  plan.sequences[2].logits_rows = {1};
  const std::vector<float> slopes = {0.1f, 0.2f, -0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f, -0.9f};

  for (const int64_t max_rows : {1, 2, 3, 5, 40}) {
    model_.most_rows = 0;
    model_.seen.clear();
    const StepResult result = Compute(plan, slopes, max_rows);
    EXPECT_LE(model_.most_rows, max_rows);
    EXPECT_EQ(model_.seen, (std::vector<int64_t>{0, 1, 2, 3, 4, 6, 8}));
    const SequenceResult& first = result.sequences[0];
    EXPECT_EQ(first.token, 6);
    EXPECT_NEAR(first.logprobs->token.logprob, LogSoftmax(0.4f, 6), 1e-5);
    ASSERT_EQ(first.logprobs->top.size(), 2u);
    EXPECT_EQ(first.logprobs->top[1].token, 5);
    ASSERT_EQ(first.prompt_logprobs.size(), 3u);
    EXPECT_NEAR(first.prompt_logprobs[0].token.logprob, LogSoftmax(0.1f, 3), 1e-5);
    EXPECT_NEAR(first.prompt_logprobs[1].token.logprob, LogSoftmax(0.2f, 6), 1e-5);
    EXPECT_NEAR(first.prompt_logprobs[2].token.logprob, LogSoftmax(-0.3f, 0), 1e-5);
    ASSERT_EQ(first.prompt_logprobs[1].top.size(), 1u);
    EXPECT_EQ(first.prompt_logprobs[2].top[0].token, 0);
    const SequenceResult& second = result.sequences[1];
    EXPECT_EQ(second.token, -1);
    ASSERT_EQ(second.logits.size(), 2u);
    EXPECT_FLOAT_EQ(second.logits[0][2], 0.5f * 2 + 0.5f);
    EXPECT_FLOAT_EQ(second.logits[1][6], 0.7f * 6 + 0.5f);
    const SequenceResult& third = result.sequences[2];
    EXPECT_EQ(third.token, 0);
    EXPECT_FALSE(third.logprobs.has_value());
    ASSERT_EQ(third.logits.size(), 1u);
    EXPECT_FLOAT_EQ(third.logits[0][1], -0.9f + 0.5f);
  }
}

TEST_F(StepOutputsTest, SamplingParamsReachTheirRow) {
  StepPlan plan;
  plan.sequences = {Prompt(0, 1), Prompt(1, 1), Prompt(2, 1), Prompt(3, 1)};
  for (SequencePlan& s : plan.sequences) s.sample = true;
  SamplingParams& biased = plan.sequences[0].init->sampling;
  biased.logit_bias = {{2, 100.0f}};
  SamplingParams& young = plan.sequences[1].init->sampling;  // 6 would be best
  young.stop_token_ids = {6, 1000};
  young.min_tokens = 1;
  SlotInit& penalised = *plan.sequences[2].init;
  penalised.sampling.frequency_penalty = 0.6f;
  penalised.history = {1, 6, 6, 5};
  penalised.prompt_tokens = 2;
  penalised.output_tokens = 2;
  SlotInit& grown = *plan.sequences[3].init;  // may stop again
  grown.sampling.stop_token_ids = {6};
  grown.sampling.min_tokens = 1;
  grown.output_tokens = 1;
  const StepResult result = Compute(plan, {0.5f, 0.5f, 0.5f, 0.5f}, 4);
  EXPECT_EQ(result.sequences[0].token, 2);
  EXPECT_EQ(result.sequences[1].token, 5);
  // 6 and 5 were put out once each and lose 0.6; 4 loses 1.0 against the 3.0 of 6 by its place.
  EXPECT_EQ(result.sequences[2].token, 6);
  EXPECT_EQ(result.sequences[3].token, 6);
  penalised.sampling.frequency_penalty = 1.1f;
  EXPECT_EQ(Compute(plan, {0.5f, 0.5f, 0.5f, 0.5f}, 4).sequences[2].token, 4);
}

TEST_F(StepOutputsTest, ANumericFaultHitsItsOwnSequence) {
  StepPlan plan;
  plan.sequences = {Prompt(0, 1), Prompt(1, 2), Prompt(2, 1)};
  for (SequencePlan& s : plan.sequences) s.sample = true;
  plan.sequences[1].prompt_logprobs = true;
  plan.sequences[1].score_targets = {2, -1};
  for (const std::vector<float>& slopes : {std::vector<float>{1, NAN, 1, 1}, {1, 1, INFINITY, 1}}) {
    const StepResult result = Compute(plan, slopes, 3);
    EXPECT_EQ(result.sequences[0].token, 6);
    EXPECT_FALSE(result.sequences[0].numeric_fault);
    EXPECT_TRUE(result.sequences[1].numeric_fault);
    EXPECT_EQ(result.sequences[2].token, 6);
    EXPECT_FALSE(result.sequences[2].numeric_fault);
  }
}

}  // namespace
}  // namespace millrace
