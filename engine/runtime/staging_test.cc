// What happens between a plan and the kernels: staging, sampling rows, graphs.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/decode_graphs.h"
#include "engine/runtime/runner_config.h"
#include "engine/runtime/sample_rows.h"
#include "engine/runtime/step_batch.h"
#include "engine/runtime/step_staging.h"
#include "engine/testing/fake_gpu.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"

namespace millrace {
namespace {

constexpr PlanLimits kLimits = {.max_num_seqs = 4,
                                .max_num_batched_tokens = 16,
                                .max_model_len = 12,
                                .page_tokens = 4,
                                .num_pages = 20,
                                .vocab_size = 50};

TEST(StepStagingTest, AStepsBytesArriveInOneCopyAndStayWhereTheyWere) {
  FakeGpu gpu;
  StepStaging staging = *StepStaging::Create(1024, gpu);
  char* first_device = nullptr;
  for (int step = 0; step < 4; ++step) {
    staging.Begin();
    const StepStaging::Block a = staging.Take(10), b = staging.Take(300);
    ASSERT_NE(a.host, a.device);
    std::memset(a.host, 'a' + step, 10);
    std::memset(b.host, 'p' + step, 300);
    gpu.copies = 0;
    ASSERT_TRUE(staging.Flush(/*last_bytes=*/7, Stream()).ok());
    EXPECT_EQ(gpu.copies, 1);
    EXPECT_EQ(a.device[9], 'a' + step);
    EXPECT_EQ(b.device[6], 'p' + step);
    EXPECT_NE(b.device[7], 'p' + step) << "more was copied than was written";
    if (first_device == nullptr) first_device = a.device;
    EXPECT_EQ(a.device, first_device);
    EXPECT_EQ(b.device, first_device + StepStaging::kAlignment);
  }
}

// The copy of a step may still be under way while the next one is written.
TEST(StepStagingTest, TwoStepsAreWrittenApart) {
  FakeGpu gpu;
  StepStaging staging = *StepStaging::Create(256, gpu);
  staging.Begin();
  char* const first = staging.Take(8).host;
  staging.Begin();
  char* const second = staging.Take(8).host;
  staging.Begin();
  EXPECT_NE(first, second);
  EXPECT_EQ(staging.Take(8).host, first);
}

TEST(StepStagingTest, OnTheCpuThereIsNothingToCopy) {
  const std::unique_ptr<CpuDevice> cpu = *CpuDevice::Create(1);
  StepStaging staging = *StepStaging::Create(256, *cpu);
  staging.Begin();
  const StepStaging::Block block = staging.Take(8);
  EXPECT_EQ(block.host, block.device);
  EXPECT_TRUE(staging.Flush(8, Stream()).ok());
}

// Slot 2 has a prompt of 5 tokens behind it and samples its next token; slot 0 begins.
StepPlan TwoSequences(SlotTable& slots) {
  StepPlan prompt;
  prompt.step = 1;
  prompt.sequences.emplace_back();
  prompt.sequences[0].slot = 2;
  prompt.sequences[0].init = SlotInit();
  prompt.sequences[0].new_pages = {7, 3};
  prompt.sequences[0].tokens = {1, 2, 3, 4, 5};
  prompt.sequences[0].sample = true;
  EXPECT_TRUE(slots.Validate(prompt).ok()) << slots.Validate(prompt);
  slots.Apply(prompt);
  StepPlan plan;
  plan.step = 2;
  plan.sequences.resize(2);
  plan.sequences[0].slot = 2;
  plan.sequences[0].position = 5;
  plan.sequences[0].sample = true;
  plan.sequences[1].slot = 0;
  plan.sequences[1].init = SlotInit();
  plan.sequences[1].new_pages = {9};
  plan.sequences[1].tokens = {11, 12};
  EXPECT_TRUE(slots.Validate(plan).ok()) << slots.Validate(plan);
  slots.Apply(plan);
  return plan;
}

template <typename T>
std::vector<T> Values(const TensorView& view) {
  return std::vector<T>(view.as<T>(), view.as<T>() + view.size());
}

TEST(PackStepTest, PaddingHasNoQueriesAndWritesNothing) {
  FakeGpu gpu;
  SlotTable slots(kLimits);
  const StepPlan plan = TwoSequences(slots);
  StepStaging staging = *StepStaging::Create(PackedBytes(LargestShape(kLimits)), gpu);
  staging.Begin();
  const BatchShape shape = {.tokens = 5, .sequences = 4, .table_pages = 3};
  const ForwardBatch batch = PackStep(plan, slots, shape, DeviceType::kCuda, staging);
  ASSERT_TRUE(staging.Flush(4 * 3 * 4, Stream()).ok());
  // What slot 2 sampled is on the device only.
  EXPECT_EQ(Values<int32_t>(batch.token_ids), (std::vector<int32_t>{-3, 11, 12, 0, 0}));
  EXPECT_EQ(Values<int32_t>(batch.positions), (std::vector<int32_t>{5, 0, 1, 0, 0}));
  EXPECT_EQ(Values<int64_t>(batch.cache_slots),
            (std::vector<int64_t>{3 * 4 + 1, 9 * 4, 9 * 4 + 1, -1, -1}));
  EXPECT_EQ(Values<int32_t>(batch.q_start), (std::vector<int32_t>{0, 1, 3, 3, 3}));
  EXPECT_EQ(Values<int32_t>(batch.kv_len), (std::vector<int32_t>{6, 2, 0, 0}));
  EXPECT_EQ(Values<int32_t>(batch.state_slots), (std::vector<int32_t>{2, 0, -1, -1}));
  EXPECT_EQ(Values<int32_t>(batch.page_table),
            (std::vector<int32_t>{7, 3, -1, 9, -1, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(batch.host_q_start.back(), 3);
}

TEST(PackStepTest, OnTheCpuTheHostKnowsWhatWasSampled) {
  const std::unique_ptr<CpuDevice> cpu = *CpuDevice::Create(1);
  SlotTable slots(kLimits);
  const StepPlan plan = TwoSequences(slots);
  slots.RecordSample(2, slots.slot(2).sequence, 42);
  StepStaging staging = *StepStaging::Create(PackedBytes(LargestShape(kLimits)), *cpu);
  staging.Begin();
  const ForwardBatch batch = PackStep(plan, slots, ShapeOf(plan, slots), DeviceType::kCpu, staging);
  EXPECT_EQ(Values<int32_t>(batch.token_ids), (std::vector<int32_t>{42, 11, 12}));
}

class SampleRowsTest : public testing::Test {
 protected:
  // One step that samples from slot 1 with the given sampling, padded to 3 rows.
  std::vector<SampleRow> Fill(SampleRows& rows, const SlotInit& init) {
    SlotTable slots(kLimits);
    SequencePlan s;
    s.slot = 1;
    s.init = init;
    s.new_pages = {0};
    s.tokens = {4};
    s.sample = true;
    StepPlan plan;
    plan.sequences = {s};
    EXPECT_TRUE(slots.Validate(plan).ok()) << slots.Validate(plan);
    slots.Apply(plan);
    std::vector<SampleRow> filled(3);
    const SequencePlan* const sampling[] = {&plan.sequences[0]};
    const absl::Status status =
        rows.Fill(sampling, slots, 3,
                  {.host = reinterpret_cast<char*>(filled.data()), .device = nullptr}, Stream());
    EXPECT_TRUE(status.ok()) << status;
    return filled;
  }

  FakeGpu gpu_;
};

TEST_F(SampleRowsTest, ListsLieInDeviceMemory) {
  SampleRows rows(gpu_);
  SlotInit init;
  init.sampling.presence_penalty = 1;
  init.sampling.logit_bias = {{8, 1.5f}, {9, -2.0f}};
  init.sampling.stop_token_ids = {30};
  init.sampling.min_tokens = 1;
  init.history = {5, 6, 5};
  init.prompt_tokens = 1;
  init.output_tokens = 2;
  for (int step = 0; step < 5; ++step) {  // the buffers take turns
    const std::vector<SampleRow> filled = Fill(rows, init);
    const SampleRow& row = filled[0];
    EXPECT_EQ(row.slot, 1);
    EXPECT_EQ(row.position, 1);
    ASSERT_EQ(row.num_penalties, 2);
    EXPECT_EQ(row.penalty_ids[0], 5);
    EXPECT_EQ(row.penalty_counts[0], 1);
    EXPECT_EQ(row.penalty_ids[1], 6);
    EXPECT_EQ(row.penalty_counts[1], 1);
    ASSERT_EQ(row.num_biases, 2);
    EXPECT_EQ(row.bias_ids[1], 9);
    EXPECT_EQ(row.bias_values[1], -2.0f);
    EXPECT_EQ(row.num_banned, 0) << "two tokens were put out before";
    EXPECT_EQ(filled[1].off, 1);
    EXPECT_EQ(filled[2].off, 1);
    EXPECT_EQ(row.off, 0);
  }
}

TEST_F(SampleRowsTest, LongerListsFindRoom) {
  SampleRows rows(gpu_);
  for (const int32_t count : {1, 40, 3, 50}) {
    SlotInit init;
    for (int32_t i = 0; i < count; ++i) init.sampling.logit_bias.push_back({i, 0.5f * i});
    const std::vector<SampleRow> filled = Fill(rows, init);
    ASSERT_EQ(filled[0].num_biases, count);
    for (int32_t i = 0; i < count; ++i) EXPECT_EQ(filled[0].bias_values[i], 0.5f * i);
  }
}

TEST_F(SampleRowsTest, NoListsAreNotCopied) {
  SampleRows rows(gpu_);
  Fill(rows, SlotInit());
  EXPECT_EQ(gpu_.copies, 0);
}

TEST(DecodeGraphsTest, TakesTheSmallestGraphThatFits) {
  FakeGpu gpu;
  DecodeGraphs graphs;
  int runs = 0;
  for (const int32_t size : {8, 2, 4}) {
    ASSERT_TRUE(graphs.Add(size, gpu, Stream(), [&] { return ++runs, absl::OkStatus(); }).ok());
  }
  EXPECT_EQ(runs, 6) << "each runs once and is captured once";
  StepPlan plan;
  const auto size = [&](size_t sequences) {
    plan.sequences.assign(sequences, SequencePlan());
    for (SequencePlan& s : plan.sequences) s.sample = true;
    return graphs.SizeFor(plan);
  };
  EXPECT_EQ(size(1), 2);
  EXPECT_EQ(size(3), 4);
  EXPECT_EQ(size(8), 8);
  EXPECT_EQ(size(9), 0);
  ASSERT_TRUE(graphs.Launch(2, gpu, Stream()).ok());
  EXPECT_EQ(gpu.launched, 2) << "the second that was captured";
  size(3);
  plan.sequences[1].tokens = {1, 2};
  EXPECT_EQ(graphs.SizeFor(plan), 0) << "two tokens";
  plan.sequences[1].tokens = {1};
  EXPECT_EQ(graphs.SizeFor(plan), 4);
  plan.sequences[2].logits_rows = {0};
  EXPECT_EQ(graphs.SizeFor(plan), 0);
  plan.sequences[2].logits_rows.clear();
  plan.sequences[0].sample = false;
  EXPECT_EQ(graphs.SizeFor(plan), 0);
}

TEST(DecodeGraphsTest, ACaptureThatFailsSaysSoAndEnds) {
  FakeGpu gpu;
  DecodeGraphs graphs;
  const absl::Status waits =
      graphs.Add(4, gpu, Stream(), [&] { return gpu.Synchronize(Stream()); });
  EXPECT_NE(waits.message().find("a graph of 4 sequences: a wait inside a capture"),
            std::string::npos)
      << waits;
  EXPECT_NE(waits.message().find("--enforce-eager"), std::string::npos);
  EXPECT_FALSE(gpu.capturing);
  StepPlan plan;
  plan.sequences.emplace_back();
  plan.sequences[0].sample = true;
  EXPECT_EQ(graphs.SizeFor(plan), 0);
}

TEST(DefaultGraphSizesTest, EndAtTheLargestBatch) {
  EXPECT_EQ(DefaultGraphSizes(1), (std::vector<int32_t>{1}));
  EXPECT_EQ(DefaultGraphSizes(10), (std::vector<int32_t>{1, 2, 4, 8, 10}));
  EXPECT_EQ(DefaultGraphSizes(64), (std::vector<int32_t>{1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64}));
  EXPECT_EQ(DefaultGraphSizes(1000).back(), 256);
}

}  // namespace
}  // namespace millrace
