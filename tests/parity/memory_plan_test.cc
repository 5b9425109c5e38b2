// A model of the released size on a machine that is far too small: refused with the plan, before
// anything is read or made up.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/parallel/communicator.h"
#include "engine/parallel/thread_group.h"
#include "engine/runtime/model_runner.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "nlohmann/json.hpp"
#include "tests/parity/engine_runs.h"
#include "tests/parity/tiny_deepseek_v4.h"

namespace millrace {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// The CPU, with this much memory left.
class SmallDevice final : public Device {
 public:
  explicit SmallDevice(int64_t free_bytes) : free_bytes_(free_bytes) {}

  // Looks at its memory late, and then counts what others have taken.
  SmallDevice(int64_t free_bytes, absl::Duration delay, const SmallDevice* other)
      : free_bytes_(free_bytes), delay_(delay), other_(other) {}

  DeviceType type() const override { return DeviceType::kCpu; }
  absl::StatusOr<DeviceProperties> Properties() const override {
    absl::SleepFor(delay_);
    if (other_ != nullptr && taken_before < 0) taken_before = other_->allocations;
    return DeviceProperties{.name = "small", .total_bytes = free_bytes_, .free_bytes = free_bytes_};
  }
  absl::StatusOr<Buffer> Allocate(int64_t bytes) override {
    ++allocations;
    return cpu_->Allocate(bytes);
  }
  absl::StatusOr<Stream> CreateStream() override { return cpu_->CreateStream(); }
  void DestroyStream(Stream stream) override { cpu_->DestroyStream(stream); }
  absl::Status Copy(void* dst, const void* src, int64_t bytes, CopyKind kind,
                    Stream stream) override {
    return cpu_->Copy(dst, src, bytes, kind, stream);
  }
  absl::Status Synchronize(Stream stream) override { return cpu_->Synchronize(stream); }
  ThreadPool* thread_pool() override { return cpu_->thread_pool(); }

  std::atomic<int> allocations = 0;
  mutable int taken_before = -1;  // the other's allocations at the first look

 private:
  void Free(void*, MemoryKind) override {}

  const int64_t free_bytes_;
  const absl::Duration delay_;
  const SmallDevice* const other_ = nullptr;
  const std::unique_ptr<CpuDevice> cpu_ = *CpuDevice::Create(1);
};

nlohmann::json Yarn() {
  return {{"type", "yarn"},
          {"factor", 16},
          {"original_max_position_embeddings", 65536},
          {"beta_fast", 32},
          {"beta_slow", 1}};
}

// DeepSeek-V4-Flash, as it was released.
nlohmann::json FlashConfig() {
  std::vector<int> ratios = {0, 0};
  for (int layer = 2; layer < 43; ++layer) ratios.push_back(layer % 2 == 0 ? 4 : 128);
  ratios.push_back(0);
  const nlohmann::json config = {{"architectures", {"DeepseekV4ForCausalLM"}},
                                 {"model_type", "deepseek_v4"},
                                 {"torch_dtype", "bfloat16"},
                                 {"vocab_size", 129280},
                                 {"hidden_size", 4096},
                                 {"num_hidden_layers", 43},
                                 {"num_attention_heads", 64},
                                 {"num_key_value_heads", 1},
                                 {"head_dim", 512},
                                 {"qk_rope_head_dim", 64},
                                 {"q_lora_rank", 1024},
                                 {"o_groups", 8},
                                 {"o_lora_rank", 1024},
                                 {"moe_intermediate_size", 2048},
                                 {"n_routed_experts", 256},
                                 {"n_shared_experts", 1},
                                 {"num_experts_per_tok", 6},
                                 {"num_hash_layers", 3},
                                 {"routed_scaling_factor", 1.5},
                                 {"scoring_func", "sqrtsoftplus"},
                                 {"topk_method", "noaux_tc"},
                                 {"norm_topk_prob", true},
                                 {"swiglu_limit", 10.0},
                                 {"hidden_act", "silu"},
                                 {"index_n_heads", 64},
                                 {"index_head_dim", 128},
                                 {"index_topk", 512},
                                 {"sliding_window", 128},
                                 {"hc_mult", 4},
                                 {"hc_sinkhorn_iters", 20},
                                 {"hc_eps", 1e-6},
                                 {"rms_norm_eps", 1e-6},
                                 {"rope_theta", 10000},
                                 {"compress_rope_theta", 160000},
                                 {"rope_scaling", Yarn()},
                                 {"max_position_embeddings", 1048576},
                                 {"num_nextn_predict_layers", 1},
                                 {"tie_word_embeddings", false},
                                 {"bos_token_id", 0},
                                 {"eos_token_id", 1},
                                 {"compress_ratios", ratios},
                                 {"quantization_config",
                                  {{"quant_method", "fp8"},
                                   {"fmt", "e4m3"},
                                   {"scale_fmt", "ue8m0"},
                                   {"activation_scheme", "dynamic"},
                                   {"weight_block_size", {128, 128}}}}};
  return config;
}

std::string FlashFolder() {
  const std::filesystem::path dir = std::filesystem::path(testing::TempDir()) / "flash";
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "config.json") << FlashConfig().dump();
  return dir.string();
}

int64_t Fp8(int64_t rows, int64_t cols) { return rows * cols + rows / 128 * (cols / 128); }

// What one rank holds, from the shapes: codes and scales, norms and mixes in f32, the rest in bf16.
int64_t FlashWeightBytes() {
  constexpr int64_t kD = 4096, kI = 2048, kV = 129280, kQ = 1024, kHead = 512, kIndex = 128;
  const int64_t expert = 3 * (kD * kI / 2 + kD * kI / 32);
  const int64_t shared = 3 * Fp8(kI, kD);
  const int64_t attention = Fp8(kQ, kD) + Fp8(64 * kHead, kQ) + Fp8(kHead, kD) +
                            Fp8(8 * 1024, 8 * kHead) + Fp8(kD, 8 * 1024) +
                            4 * (kQ + kHead + 64);  // two norms and the sinks
  const int64_t around = 4 * (2 * (24 * 4 * kD + 24 + 3) + 2 * kD);
  const int64_t router = 2 * 256 * kD;
  const auto compressor = [](int64_t ratio, int64_t projected, int64_t width) {
    return 2 * 2 * projected * kD + 4 * (ratio * projected + width);
  };
  const int64_t csa = compressor(4, 2 * kHead, kHead) + Fp8(64 * kIndex, kQ) + 2 * 64 * kD +
                      compressor(4, 2 * kIndex, kIndex);
  const int64_t hca = compressor(128, kHead, kHead);
  return 43 * (256 * expert + shared + attention + around + router) + 21 * csa + 20 * hca +
         3 * kV * 6 * 4 + 40 * 256 * 4 + 2 * 2 * kV * kD + 4 * (4 * 4 * kD + 4 + 1) + 4 * kD;
}

TEST(MemoryPlanTest, FlashOnASmallMachine) {
  SmallDevice device(20 * kGiB);
  SingleRank comm(device);
  RunnerConfig config;
  config.model_dir = FlashFolder();
  config.load_format = LoadFormat::kDummy;
  config.page_tokens = 128;
  config.max_model_len = 4096;
  const absl::Status status = ModelRunner::Create(config, device, RankGroups(comm), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(device.allocations, 0);
  const std::string message(status.message());
  const double weights = static_cast<double>(FlashWeightBytes()) / kGiB;
  EXPECT_GT(weights, 145);
  EXPECT_LT(weights, 146);
  for (const std::string& part :
       {std::string("20.00 GiB are available (small)"),
        absl::StrFormat("weights %.2f GiB", weights), std::string("activations "),
        std::string("cache of one sequence 0."), std::string("--tensor-parallel-size (now 1)"),
        std::string("--max-num-batched-tokens (now 2048)"),
        std::string("--max-model-len (now 4096)")}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

TEST(MemoryPlanTest, AModelLenThatFitsIsCountedAsOnePage) {
  SmallDevice device(20 * kGiB);
  SingleRank comm(device);
  RunnerConfig config;
  config.model_dir = FlashFolder();
  config.load_format = LoadFormat::kDummy;
  config.page_tokens = 128;
  config.max_model_len = 1 << 20;
  const auto message = [&] {
    const auto runner = ModelRunner::Create(config, device, RankGroups(comm), {});
    return std::string(runner.status().message());
  };
  EXPECT_EQ(message().find("cache of one sequence 0.01 GiB"), std::string::npos) << message();
  config.fit_model_len = true;
  EXPECT_NE(message().find("cache of one sequence 0.01 GiB"), std::string::npos) << message();
}

TEST(MemoryPlanTest, RanksOfOneProcessShareTheMemory) {
  SmallDevice device(200 * kGiB);  // enough for one
  SingleRank comm(device);
  RunnerConfig config;
  config.model_dir = FlashFolder();
  config.load_format = LoadFormat::kDummy;
  config.page_tokens = 128;
  config.max_model_len = 4096;
  RankGroups groups(comm);
  groups.sharing_memory = 2;
  const absl::Status status = ModelRunner::Create(config, device, groups, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(std::string(status.message()).find("200.00 GiB are available to 2 ranks"),
            std::string::npos)
      << status;
}

TEST(MemoryPlanTest, RanksOfOneProcessAllLookBeforeAnyTakes) {
  const TinyDeepSeekV4 model({}, 1);
  RunnerConfig config;
  config.model_dir = Folder(model, "look");
  config.page_tokens = 128;
  config.max_model_len = 256;
  config.max_num_seqs = 2;
  ThreadGroup group(2);
  SmallDevice quick(kGiB);
  SmallDevice late(kGiB, absl::Milliseconds(300), &quick);
  const auto load = [&](int32_t rank, Device& device) {
    RankGroups groups(group.communicator(rank));
    groups.sharing_memory = 2;
    return ModelRunner::Create(config, device, groups, {}).status();
  };
  absl::Status first;
  std::thread other([&] { first = load(0, quick); });
  EXPECT_TRUE(load(1, late).ok());
  other.join();
  EXPECT_TRUE(first.ok()) << first;
  EXPECT_GT(quick.allocations, 0);
  EXPECT_EQ(late.taken_before, 0);
}

}  // namespace
}  // namespace millrace
