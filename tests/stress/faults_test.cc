// Real processes on loopback that are killed, stopped, and started again.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/controller/cluster/worker_hub.h"
#include "distributed/session/handshake.h"
#include "distributed/session/secret.h"
#include "distributed/session/version.h"
#include "proto/worker.grpc.pb.h"
#include "tests/stress/decode_loop.h"
#include "tests/stress/listener.h"
#include "tests/stress/process.h"

namespace millrace {
namespace {

constexpr char kWorker[] = "tests/stress/fake_worker";
constexpr char kController[] = "tests/stress/fake_controller";
// The machine may be busy: waits that should not matter are long, limits that matter are checked.
constexpr absl::Duration kPatience = absl::Seconds(60);

// A limit that is held to, stretched where a sanitizer slows everything down.
absl::Duration Limit(double seconds) {
#if defined(MILLRACE_TSAN) || defined(__SANITIZE_ADDRESS__)
  return absl::Seconds(8 * seconds);
#else
  return absl::Seconds(seconds);
#endif
}

class FaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    secret_file_ = absl::StrCat(testing::TempDir(), "/secret");
    unlink(secret_file_.c_str());
    secret_ = ReadOrMakeSecretFile(secret_file_).value();
  }

  void StartHub(int32_t world, WorkerHubOptions options = {}) {
    options.secret = secret_;
    options.build_version = std::string(kBuildVersion);
    options.config = TestConfig();
    options.world = world;
    options.vocab_size = kTestVocab;
    options.num_pages = kTestPages;
    hub_ = WorkerHub::Start(options, &listener_).value();
  }

  std::unique_ptr<Process> Worker(std::vector<std::string> more = {}, int32_t port = 0) {
    more.push_back(absl::StrCat("--controller=127.0.0.1:", port == 0 ? hub_->port() : port));
    more.push_back(absl::StrCat("--secret_file=", secret_file_));
    return std::make_unique<Process>(kWorker, std::move(more));
  }

  std::string secret_file_;
  std::string secret_;
  RecordingListener listener_;
  std::unique_ptr<WorkerHub> hub_;
};

// Decodes on a thread until the executor fails; says with what and when.
class Decoding final {
 public:
  explicit Decoding(StepExecutor& executor) : loop_(executor, 8) {
    thread_ = std::thread([this] {
      status_ = loop_.Run(190);
      end_ = absl::Now();
    });
  }
  ~Decoding() { Join(); }
  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  const absl::Status& status() const { return status_; }
  absl::Time end() const { return end_; }

 private:
  DecodeLoop loop_;
  absl::Status status_;
  absl::Time end_;
  std::thread thread_;
};

// A killed worker of two: the step in progress fails at once and names the rank, health follows,
// the other rank lets go and serves in the next group. Again and again.
TEST_F(FaultsTest, KilledWorkerTwentyTimes) {
  StartHub(2);
  std::vector<std::unique_ptr<Process>> workers;
  workers.push_back(Worker({"--step_ms=20"}));
  workers.push_back(Worker({"--step_ms=20"}));
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    auto group = hub_->WaitForGroup();
    ASSERT_TRUE(group.ok()) << group.status() << "\n" << listener_.All();
    listener_.Clear();
    Decoding decoding(*group->executor);
    absl::SleepFor(absl::Milliseconds(50 + random() % 100));
    const size_t victim = random() % 2;
    int32_t rank = -1;
    for (const RankInfo& info : group->info.ranks) {
      if (info.pid == workers[victim]->pid()) rank = info.rank;
    }
    const absl::Time killed = absl::Now();
    workers[victim]->Signal(SIGKILL);
    decoding.Join();
    EXPECT_EQ(decoding.status().code(), absl::StatusCode::kUnavailable) << decoding.status();
    EXPECT_NE(decoding.status().message().find(absl::StrCat("rank ", rank, " (")),
              std::string::npos)
        << "killed rank " << rank << ": " << decoding.status();
    EXPECT_LT(decoding.end() - killed, Limit(5));
    EXPECT_LT(listener_.WaitFor("lost", kPatience) - killed, Limit(2));
    workers[victim] = Worker({"--step_ms=20"});
  }
  ASSERT_TRUE(hub_->WaitForGroup().ok());
  hub_->Shutdown("the test is over");
  for (const auto& worker : workers) {
    EXPECT_EQ(worker->Wait(kPatience), 0) << worker->Output();
  }
}

TEST_F(FaultsTest, StoppedWorkerIsLostWithItsLease) {
  StartHub(2);
  const auto first = Worker({"--step_ms=20"});
  const auto second = Worker({"--step_ms=20"});
  ReadyGroup group = hub_->WaitForGroup().value();
  Decoding decoding(*group.executor);
  absl::SleepFor(absl::Milliseconds(100));
  const absl::Time stopped = absl::Now();
  first->Signal(SIGSTOP);
  decoding.Join();
  EXPECT_EQ(decoding.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(decoding.status().message().find(absl::StrCat(":", first->pid(), ")")),
            std::string::npos)
      << decoding.status();
  EXPECT_LT(decoding.end() - stopped, Limit(5));
  EXPECT_EQ(listener_.Count("nothing heard of it"), 1) << listener_.All();
  // Awake again, it reads that its group has ended and dials again, or finds its lease lost and
  // ends: whichever it notices first. Either way the next group comes about.
  first->Signal(SIGCONT);
  std::unique_ptr<Process> third;
  if (first->Wait(absl::Seconds(1)).has_value()) third = Worker({"--step_ms=20"});
  ReadyGroup next = hub_->WaitForGroup().value();
  EXPECT_TRUE(DecodeLoop(*next.executor, 2).Run(5).ok());
}

TEST_F(FaultsTest, WorkersEndWithTheirController) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    Process controller(kController, {absl::StrCat("--secret_file=", secret_file_)});
    ASSERT_TRUE(controller.WaitForOutput(".", kPatience));
    const std::string output = controller.Output();
    int32_t port = 0;
    ASSERT_TRUE(absl::SimpleAtoi(output.substr(5, output.find('.') - 5), &port)) << output;
    const auto first = Worker({}, port);
    const auto second = Worker({"--load_ms=100"}, port);
    ASSERT_TRUE(controller.WaitForOutput("ready.", kPatience)) << controller.Output();
    absl::SleepFor(absl::Milliseconds(100));
    controller.Signal(signal);
    const absl::Time gone = absl::Now();
    EXPECT_EQ(first->Wait(kPatience), 1) << first->Output();
    EXPECT_EQ(second->Wait(kPatience), 1) << second->Output();
    EXPECT_LT(absl::Now() - gone, Limit(5));
    EXPECT_NE(first->Output().find("the controller at"), std::string::npos) << first->Output();
  }
}

// A worker that loads, computes or has no group yet leaves no less quickly.
TEST_F(FaultsTest, BusyWorkersEndWithTheirControllerToo) {
  StartHub(3);
  const auto idle = Worker();
  const auto other = Worker();
  ASSERT_NE(listener_.WaitFor("waiting 2/3", kPatience), absl::InfiniteFuture());
  hub_.reset();  // says goodbye
  EXPECT_EQ(idle->Wait(kPatience), 0) << idle->Output();
  EXPECT_EQ(other->Wait(kPatience), 0);
  StartHub(2);
  const auto loading = Worker({"--load_ms=60000"});
  const auto loading_too = Worker({"--load_ms=60000"});
  ASSERT_NE(listener_.WaitFor("loading", kPatience), absl::InfiniteFuture());
  const absl::Time begin = absl::Now();
  loading->Signal(SIGTERM);
  EXPECT_EQ(loading->Wait(kPatience), 0) << loading->Output();
  EXPECT_LT(absl::Now() - begin, Limit(5));
  hub_.reset();
  const absl::Time end = absl::Now();
  EXPECT_TRUE(loading_too->Wait(kPatience).has_value());
  EXPECT_LT(absl::Now() - end, Limit(5)) << loading_too->Output();
}

TEST_F(FaultsTest, OtherVersionsAreRefusedQuickly) {
  StartHub(1);
  const absl::Time begin = absl::Now();
  const auto old = Worker({"--build_version=0.0.1"});
  EXPECT_EQ(old->Wait(kPatience), 1);
  EXPECT_LT(absl::Now() - begin, Limit(5));
  EXPECT_NE(old->Output().find("build version: worker 0.0.1, controller"), std::string::npos)
      << old->Output();
}

TEST_F(FaultsTest, GlooWorkersOnLoopback) {
  StartHub(2);
  const auto first = Worker({"--gloo"});
  const auto second = Worker({"--gloo"});
  ReadyGroup group = hub_->WaitForGroup().value();
  EXPECT_EQ(group.info.ranks[1].transport, "gloo on 127.0.0.1");
  Decoding decoding(*group.executor);
  decoding.Join();
  EXPECT_TRUE(decoding.status().ok()) << decoding.status();
  first->Signal(SIGKILL);
  EXPECT_NE(listener_.WaitFor("lost", Limit(2)), absl::InfiniteFuture());
}

// --- peers that are no workers ---

int Dial(int32_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (connect(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

// How long until the other side closes.
absl::Duration UntilClosed(int fd) {
  const absl::Time begin = absl::Now();
  struct timeval limit = {10, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  std::vector<char> buffer(4096);
  while (true) {
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) break;
    if (got < 0) return absl::InfiniteDuration();
  }
  close(fd);
  return absl::Now() - begin;
}

TEST_F(FaultsTest, BytesThatAreNoSession) {
  StartHub(1);
  std::mt19937 random(3);
  const int quiet = Dial(hub_->port());
  ASSERT_GE(quiet, 0);
  for (int i = 0; i < 50; ++i) {
    const int fd = Dial(hub_->port());
    ASSERT_GE(fd, 0);
    std::string bytes(1 + random() % 5000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 3 == 0) bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes;
    if (i % 3 == 1) bytes = "GET / HTTP/1.1\r\n\r\n";
    send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_LT(UntilClosed(fd), Limit(2)) << "case " << i;
  }
  EXPECT_LT(UntilClosed(quiet), Limit(2)) << "says nothing at all";
  const auto worker = Worker();
  ASSERT_TRUE(hub_->WaitForGroup().ok()) << "the hub serves on";
}

// A client that speaks the protocol's frames, but badly.
class RawSession final {
 public:
  explicit RawSession(int32_t port)
      : stub_(worker::WorkerHub::NewStub(grpc::CreateChannel(absl::StrCat("127.0.0.1:", port),
                                                             grpc::InsecureChannelCredentials()))),
        stream_(stub_->Session(&context_)) {}

  void Send(const worker::Frame& frame) { stream_->Write(frame); }
  std::optional<worker::Frame> Receive() {
    worker::Frame frame;
    if (!stream_->Read(&frame)) return std::nullopt;
    return frame;
  }
  grpc::Status Finish() {
    while (Receive().has_value()) {
    }
    return stream_->Finish();
  }

 private:
  std::unique_ptr<worker::WorkerHub::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<worker::Frame, worker::Frame>> stream_;
};

worker::Frame NonceFrame(const std::string& nonce) {
  worker::Frame frame;
  frame.set_nonce(nonce);
  return frame;
}

// A session that has got its challenge; one that is too slow for the hub's limit is tried again.
std::pair<std::unique_ptr<RawSession>, worker::Frame> Challenged(int32_t port,
                                                                 const std::string& nonce) {
  while (true) {
    auto session = std::make_unique<RawSession>(port);
    session->Send(NonceFrame(nonce));
    const std::optional<worker::Frame> challenge = session->Receive();
    if (challenge.has_value()) return {std::move(session), *challenge};
  }
}

TEST_F(FaultsTest, PeersWithoutTheSecret) {
  StartHub(1);
  const std::string nonce(kNonceBytes, 'n');
  std::string seen_proof;
  {
    // A proof that is right, for this session only.
    const auto [good, challenge] = Challenged(hub_->port(), nonce);
    EXPECT_EQ(challenge.proof(),
              MakeProof(secret_, SessionRole::kController, nonce, challenge.nonce()).value());
    seen_proof = MakeProof(secret_, SessionRole::kWorker, nonce, challenge.nonce()).value();
    worker::Frame frame;
    frame.set_proof(seen_proof);
    good->Send(frame);
    // Proved, but then no hello: a message of another kind.
    worker::WorkerMessage message;
    message.mutable_ready();
    worker::Frame body;
    message.SerializeToString(body.mutable_body());
    good->Send(body);
    EXPECT_EQ(good->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  const std::vector<std::pair<const char*, std::string>> proofs = {
      {"replayed", seen_proof},
      {"empty", ""},
      {"short", "x"},
      {"random", std::string(kProofBytes, 'x')},
      {"the controller's own", "reflect"},
  };
  for (const auto& [name, proof] : proofs) {
    const absl::Time begin = absl::Now();
    const auto [session, challenge] = Challenged(hub_->port(), nonce);
    worker::Frame frame;
    frame.set_proof(proof == "reflect" ? challenge.proof() : proof);
    frame.set_body("a body that must not be parsed");
    session->Send(frame);
    EXPECT_EQ(session->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED) << name;
    EXPECT_LT(absl::Now() - begin, Limit(2)) << name;
  }
  EXPECT_EQ(listener_.Count("refused a peer"), 1) << "once a minute\n" << listener_.All();
  const auto worker = Worker();
  ASSERT_TRUE(hub_->WaitForGroup().ok()) << "the hub serves on";
}

TEST_F(FaultsTest, HandshakesThatAreNone) {
  StartHub(1);
  for (const size_t size : {size_t{0}, size_t{31}, size_t{33}, size_t{1} << 19}) {
    RawSession session(hub_->port());
    session.Send(NonceFrame(std::string(size, 'n')));
    EXPECT_FALSE(session.Finish().ok()) << size;
  }
  {
    RawSession session(hub_->port());
    session.Send(NonceFrame(std::string(size_t{2} << 20, 'n')));
    EXPECT_FALSE(session.Finish().ok()) << "above the size limit";
  }
  {
    const absl::Time begin = absl::Now();
    RawSession session(hub_->port());
    EXPECT_FALSE(session.Finish().ok()) << "opens a session and says nothing";
    EXPECT_LT(absl::Now() - begin, Limit(2));
  }
  EXPECT_EQ(listener_.Count("refused a peer"), 1) << "once a minute\n" << listener_.All();
  const auto worker = Worker();
  ASSERT_TRUE(hub_->WaitForGroup().ok()) << "the hub serves on";
}

// A worker that knows the secret and is hostile all the same.
TEST_F(FaultsTest, MessagesThatNoWorkerSends) {
  StartHub(1);
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    const std::string nonce(kNonceBytes, 'n');
    const auto [session, challenge] = Challenged(hub_->port(), nonce);
    worker::Frame frame;
    frame.set_proof(MakeProof(secret_, SessionRole::kWorker, nonce, challenge.nonce()).value());
    session->Send(frame);
    worker::WorkerMessage message;
    message.mutable_hello()->set_build_version(std::string(kBuildVersion));
    message.mutable_hello()->set_protocol_revision(ProtocolRevision());
    message.mutable_hello()->set_instance(absl::StrCat(round));
    worker::Frame body;
    message.SerializeToString(body.mutable_body());
    session->Send(body);
    switch (round % 4) {
      case 0:
        message.mutable_step_done()->set_step(1);
        break;
      case 1:
        message.mutable_loaded()->set_bytes_per_page(-1);
        break;
      case 2:
        message.mutable_store_set()->set_key(std::string(1000, 'k'));
        break;
      default:
        message.mutable_ready();
        break;
    }
    message.SerializeToString(body.mutable_body());
    if (round >= 20) {
      for (int i = 0; i < 3; ++i) {
        (*body.mutable_body())[random() % body.body().size()] = static_cast<char>(random());
      }
    }
    session->Send(body);
    // Whatever it was, no group came of it, and a session that goes on is ended by the client.
    session->Send(NonceFrame(nonce));
    EXPECT_FALSE(session->Finish().ok()) << "round " << round;
  }
  const auto worker = Worker();
  auto group = hub_->WaitForGroup();
  ASSERT_TRUE(group.ok()) << group.status() << "\n" << listener_.All();
}

}  // namespace
}  // namespace millrace
