#include "distributed/comm/gloo_transport.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/check.h"

namespace millrace {
namespace {

constexpr int64_t kSlotBytes = 256 * 1024;

// gloo's texts begin with the place in its source.
std::string Reason(const std::exception& error) {
  const std::string text = error.what();
  const size_t end = text.find("] ");
  return absl::StartsWith(text, "[") && end != std::string::npos ? text.substr(end + 2) : text;
}

absl::Status ToStatus(const std::string& what, const std::exception& error) {
  const std::string reason = Reason(error);
  const std::string message = absl::StrCat(what, ": gloo: ", reason);
  const bool late = absl::StrContains(reason, "timeout") || absl::StrContains(reason, "Timed out");
  return late ? absl::DeadlineExceededError(message) : absl::UnavailableError(message);
}

// Thrown through gloo's code and caught by ConnectGloo.
class StoreError final : public std::exception {
 public:
  explicit StoreError(absl::Status status) : status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return "rendezvous"; }

 private:
  const absl::Status status_;
};

class StoreAdapter final : public gloo::rendezvous::Store {
 public:
  StoreAdapter(KeyValueStore& store, absl::Duration timeout) : store_(store), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const absl::Status status =
        store_.Set(absl::StrCat("gloo/", key), std::string(data.begin(), data.end()));
    if (!status.ok()) throw StoreError(status);
  }
  std::vector<char> get(const std::string& key) override {
    const absl::StatusOr<std::string> value = store_.Get(absl::StrCat("gloo/", key), timeout_);
    if (!value.ok()) throw StoreError(value.status());
    return std::vector<char>(value->begin(), value->end());
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  KeyValueStore& store_;
  const absl::Duration timeout_;
};

class GlooTransport final : public SlotTransport {
 public:
  GlooTransport(std::shared_ptr<gloo::rendezvous::Context> context, const GlooOptions& options);
  ~GlooTransport() override;

  int32_t rank() const override { return context_->rank; }
  int32_t size() const override { return context_->size; }
  int64_t slot_bytes() const override { return kSlotBytes; }
  std::byte* outgoing() override { return Slot((round_ + 1) & 1, rank()); }
  absl::Status Exchange(int64_t bytes) override;
  const std::byte* incoming(int32_t rank) const override { return Slot(round_ & 1, rank); }
  void Abort() override;
  std::string Describe() const override { return absl::StrCat("gloo on ", address_); }

 private:
  // What goes to and comes from one rank, for each of the two sets of slots.
  struct Link {
    std::unique_ptr<gloo::transport::UnboundBuffer> send;
    std::unique_ptr<gloo::transport::UnboundBuffer> receive;
    bool sending = false;
  };

  std::byte* Slot(uint32_t set, int32_t rank) const {
    return memory_.get() + (static_cast<int64_t>(set) * context_->size + rank) * kSlotBytes;
  }
  // A receive that is posted a round ahead has told the sender so by the time he sends, and the
  // data comes in one trip.
  void PostReceives(uint32_t set);
  void FinishSends(uint32_t set);

  const std::shared_ptr<gloo::rendezvous::Context> context_;
  const std::string address_;
  const std::chrono::milliseconds timeout_;
  const std::unique_ptr<std::byte[]> memory_;
  std::array<std::vector<Link>, 2> links_;  // [set][rank]; this rank's own stay empty
  std::atomic<bool> aborted_ = false;
  uint32_t round_ = 0;
};

GlooTransport::GlooTransport(std::shared_ptr<gloo::rendezvous::Context> context,
                             const GlooOptions& options)
    : context_(std::move(context)),
      address_(options.address),
      timeout_(absl::ToChronoMilliseconds(options.timeout)),
      memory_(new std::byte[static_cast<size_t>(2 * kSlotBytes * context_->size)]()) {
  for (uint32_t set = 0; set < 2; ++set) {
    links_[set].resize(static_cast<size_t>(size()));
    for (int32_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      Link& link = links_[set][static_cast<size_t>(r)];
      link.send = context_->createUnboundBuffer(Slot(set, rank()), kSlotBytes);
      link.receive = context_->createUnboundBuffer(Slot(set, r), kSlotBytes);
    }
  }
  PostReceives(1);  // of the first round
}

GlooTransport::~GlooTransport() {
  // A pair must not write into a buffer that is gone.
  context_->closeConnections();
  for (std::vector<Link>& set : links_) set.clear();
}

void GlooTransport::PostReceives(uint32_t set) {
  for (int32_t r = 0; r < size(); ++r) {
    Link& link = links_[set][static_cast<size_t>(r)];
    if (link.receive != nullptr) link.receive->recv(r, set);
  }
}

void GlooTransport::FinishSends(uint32_t set) {
  for (Link& link : links_[set]) {
    if (!link.sending) continue;
    link.send->waitSend(timeout_);
    link.sending = false;
  }
}

absl::Status GlooTransport::Exchange(int64_t bytes) {
  MR_CHECK(bytes >= 0 && bytes <= kSlotBytes);
  if (aborted_) return absl::UnavailableError("the group was aborted");
  ++round_;
  const uint32_t set = round_ & 1;
  int32_t peer = 0;
  try {
    for (; peer < size(); ++peer) {
      Link& link = links_[set][static_cast<size_t>(peer)];
      if (link.send == nullptr) continue;
      // A round without content still has to be announced.
      link.sending = true;
      link.send->send(peer, set, 0, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
    }
    // The next round uses the other set, whose data has been read and must have been sent.
    FinishSends(set ^ 1u);
    PostReceives(set ^ 1u);
    for (peer = 0; peer < size(); ++peer) {
      Link& link = links_[set][static_cast<size_t>(peer)];
      if (link.receive != nullptr) link.receive->waitRecv(timeout_);
    }
  } catch (const std::exception& error) {
    if (aborted_) return absl::UnavailableError("the group was aborted");
    return ToStatus(absl::StrCat("rank ", peer), error);
  }
  if (aborted_) return absl::UnavailableError("the group was aborted");
  return absl::OkStatus();
}

void GlooTransport::Abort() {
  if (aborted_.exchange(true)) return;
  for (std::vector<Link>& set : links_) {
    for (Link& link : set) {
      if (link.receive == nullptr) continue;
      link.receive->abortWaitRecv();
      link.send->abortWaitSend();
    }
  }
  context_->closeConnections();  // the other ranks see it at once
}

}  // namespace

absl::StatusOr<std::unique_ptr<SlotTransport>> ConnectGloo(const GlooOptions& options,
                                                           KeyValueStore& store) {
  StoreAdapter adapter(store, options.connect_timeout);
  try {
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(options.address.c_str()));
    auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
    context->setTimeout(absl::ToChronoMilliseconds(options.timeout));
    context->connectFullMesh(adapter, device);
    return std::make_unique<GlooTransport>(std::move(context), options);
  } catch (const StoreError& error) {
    return error.status();
  } catch (const std::exception& error) {
    return ToStatus(absl::StrCat("connecting the ranks from ", options.address), error);
  }
}

}  // namespace millrace
