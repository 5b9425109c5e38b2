#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "distributed/session/frames.h"
#include "distributed/session/handshake.h"
#include "distributed/session/secret.h"
#include "distributed/session/version.h"

namespace millrace {
namespace {

std::string TempPath(const std::string& name) { return testing::TempDir() + "/" + name; }

std::string WriteFile(const std::string& name, const std::string& text, mode_t mode) {
  const std::string path = TempPath(name);
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
  return path;
}

TEST(SecretTest, ReadsAndStripsLineEnds) {
  const std::string path = WriteFile("good", "0123456789abcdef\r\n", 0600);
  EXPECT_EQ(ReadSecretFile(path).value(), "0123456789abcdef");
}

TEST(SecretTest, RefusesWithWhatToDo) {
  const auto open = ReadSecretFile(WriteFile("open", "0123456789abcdef", 0640));
  EXPECT_EQ(open.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(open.status().message().find("chmod 600"), std::string::npos) << open.status();
  const auto brief = ReadSecretFile(WriteFile("brief", "short\n", 0600));
  EXPECT_EQ(brief.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(brief.status().message().find("short"), std::string::npos) << "tells the secret";
  EXPECT_EQ(ReadSecretFile(WriteFile("long", std::string(5000, 'x'), 0600)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadSecretFile(TempPath("nothing")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadSecretFile(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SecretTest, MakesOnceAndOnlyForTheOwner) {
  const std::string path = TempPath("made");
  const std::string first = ReadOrMakeSecretFile(path).value();
  EXPECT_EQ(first.size(), 64u);
  EXPECT_EQ(ReadOrMakeSecretFile(path).value(), first);
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  EXPECT_FALSE(ReadOrMakeSecretFile(TempPath("no/folder")).ok());
}

TEST(HandshakeTest, ProofsDependOnEverything) {
  const std::string secret(20, 's');
  const std::string a(kNonceBytes, 'a');
  const std::string b(kNonceBytes, 'b');
  const std::string proof = MakeProof(secret, SessionRole::kWorker, a, b).value();
  EXPECT_TRUE(SameProof(proof, MakeProof(secret, SessionRole::kWorker, a, b).value()));
  EXPECT_FALSE(SameProof(proof, MakeProof(secret, SessionRole::kController, a, b).value()));
  EXPECT_FALSE(SameProof(proof, MakeProof(secret, SessionRole::kWorker, b, a).value()));
  EXPECT_FALSE(SameProof(proof, MakeProof(secret + "s", SessionRole::kWorker, a, b).value()));
  EXPECT_FALSE(SameProof(proof, proof.substr(1)));
  EXPECT_FALSE(SameProof(proof, ""));
  EXPECT_NE(RandomBytes(32).value(), RandomBytes(32).value());
}

TEST(VersionTest, RevisionIsStable) {
  EXPECT_EQ(ProtocolRevision().size(), 16u);
  EXPECT_EQ(ProtocolRevision(), ProtocolRevision());
}

// Sends through a queue and an assembler; returns what came out.
std::string Through(const std::string& text, size_t limit, int* frames) {
  FrameQueue queue;
  queue.PushMessage(std::make_shared<const std::string>(text));
  FrameAssembler assembler(limit);
  *frames = 0;
  while (!queue.empty()) {
    worker::Frame frame;
    queue.Pop(&frame);
    ++*frames;
    EXPECT_LE(frame.ByteSizeLong(), static_cast<size_t>(kMaxFrameBytes));
    auto message = assembler.Add(std::move(frame));
    if (!message.ok()) return message.status().ToString();
    EXPECT_EQ(message->has_value(), queue.empty());
    if (message->has_value()) return **message;
  }
  return "nothing";
}

TEST(FramesTest, RoundTripAtTheEdges) {
  for (const auto& [size, want] : {std::pair<size_t, int>{0, 1},
                                   {1, 1},
                                   {kMaxBodyBytes, 1},
                                   {kMaxBodyBytes + 1, 2},
                                   {3 * kMaxBodyBytes + 17, 4}}) {
    std::string text(size, '\0');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 131 + i / 1000);
    int frames = 0;
    EXPECT_EQ(Through(text, kMaxMessageBytes, &frames), text) << size;
    EXPECT_EQ(frames, want) << size;
  }
}

TEST(FramesTest, CapsTheWholeAndRefusesHandshakeFrames) {
  int frames = 0;
  EXPECT_NE(Through(std::string(kMaxBodyBytes * 2, 'x'), kMaxBodyBytes + 5, &frames)
                .find("RESOURCE_EXHAUSTED"),
            std::string::npos);
  FrameAssembler assembler;
  worker::Frame frame;
  frame.set_nonce("x");
  EXPECT_EQ(assembler.Add(frame).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(FramesTest, KeepsTheOrderOfFramesAndMessages) {
  FrameQueue queue;
  worker::Frame first;
  first.set_nonce("n");
  queue.PushFrame(first);
  queue.PushMessage(std::make_shared<const std::string>("one"));
  queue.PushMessage(std::make_shared<const std::string>("two"));
  worker::Frame frame;
  queue.Pop(&frame);
  EXPECT_EQ(frame.nonce(), "n");
  queue.Pop(&frame);
  EXPECT_EQ(frame.body(), "one");
  EXPECT_TRUE(frame.nonce().empty());
  queue.Pop(&frame);
  EXPECT_EQ(frame.body(), "two");
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace millrace
