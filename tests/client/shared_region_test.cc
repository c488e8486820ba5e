// Regions of shared memory: results equal those of the same calls by wire,
// whether or not the server accepts regions.

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "posenc/client.h"
#include "server/service/server.h"
#include "tests/fixtures/shared_memory.h"

namespace posenc {
namespace {

using testing::HasSubstr;

constexpr std::size_t kElements = 512 * 4 * 64;
constexpr std::size_t kBytes = kElements * sizeof(float);

class SharedRegionTest : public testing::Test {
 protected:
  void Start(bool shared) {
    server::ServerOptions options;
    options.listen = {
        "unix:/tmp/posenc_region_" + std::to_string(getpid()) + ".sock",
        "127.0.0.1:0"};
    if (shared) {
      options.shared_memory.prefix =
          test::kSharedDirectory + test::SharedPrefix();
    }
    server_.reset();
    auto server = server::Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  Client Connect(int address) {
    ClientOptions options;
    options.target = server_->addresses()[address];
    return Client::Connect(options);
  }

  static ApplyRopeArgs Rotation(absl::Span<const float> q) {
    ApplyRopeArgs args;
    args.rope.mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
    args.positions = StartAt(3);
    args.layout = v1::LAYOUT_BSHD;
    args.q = ViewOf(q, {1, 512, 4, 64});
    return args;
  }

  static std::vector<float> Numbers() {
    std::vector<float> numbers(kElements);
    for (std::size_t i = 0; i < kElements; ++i) {
      numbers[i] = static_cast<float>(i % 977) / 500 - 1;
    }
    return numbers;
  }

  // Rotations out of place and in place give the same bytes as the wire.
  void ExpectSameAsByWire(const Client& client, bool named) {
    const std::vector<float> q = Numbers();
    const auto wire = Connect(1).ApplyRope(Rotation(q));
    ASSERT_TRUE(wire.ok()) << wire.status();
    const auto region = client.MakeRegion(2 * kBytes);
    ASSERT_TRUE(region.ok()) << region.status();
    EXPECT_EQ((*region)->name().empty(), !named);
    const absl::Span<float> in = (*region)->Elements<float>(0, kElements);
    const absl::Span<float> out = (*region)->Elements<float>(kBytes, kElements);
    ASSERT_EQ(out.size(), kElements);
    std::copy(q.begin(), q.end(), in.begin());

    ApplyRopeArgs args = Rotation(in);
    auto done = client.ApplyRope(args);
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(done->q->bytes, wire->q->bytes);

    args.q_out = OutputTo(out);
    done = client.ApplyRope(args);
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(done->q->bytes.data(), reinterpret_cast<char*>(out.data()));
    EXPECT_EQ(done->q->bytes, wire->q->bytes);
    EXPECT_EQ(in, absl::MakeConstSpan(q));

    args.q_out = OutputTo(in);
    done = client.ApplyRope(args);
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(0, std::memcmp(in.data(), wire->q->bytes.data(), kBytes));
  }

  std::unique_ptr<server::Server> server_;
};

TEST_F(SharedRegionTest, TensorsInRegionsGiveTheSameAsByWire) {
  Start(true);
  ExpectSameAsByWire(Connect(0), true);
}

TEST_F(SharedRegionTest, ServersWithoutSharedMemoryGetTheBytes) {
  Start(false);
  ExpectSameAsByWire(Connect(0), false);
}

TEST_F(SharedRegionTest, CallersWithoutPermissionSendTheBytes) {
  Start(true);
  ExpectSameAsByWire(Connect(1), false);
}

// The caller shares a region, but the server does not accept it.
TEST_F(SharedRegionTest, FallsBackWhenTheServerRefuses) {
  for (const bool shared : {false, true}) {
    Start(shared);
    const Client client = Connect(1);
    const auto region =
        SharedRegion::Create("/dev/shm", test::SharedName(), kBytes);
    ASSERT_TRUE(region.ok()) << region.status();
    client.Share(*region);
    const std::vector<float> q = Numbers();
    const auto wire = Connect(1).ApplyRope(Rotation(q));
    const absl::Span<float> in = (*region)->Elements<float>(0, kElements);
    for (int round = 0; round < 2; ++round) {
      std::copy(q.begin(), q.end(), in.begin());
      ApplyRopeArgs args = Rotation(in);
      args.q_out = OutputTo(in);
      const auto done = client.ApplyRope(args);
      ASSERT_TRUE(done.ok()) << done.status();
      EXPECT_EQ(done->q->bytes, wire->q->bytes);
    }
  }
}

TEST_F(SharedRegionTest, OtherCallsPassRegionsToo) {
  Start(true);
  const Client client = Connect(0);
  const auto region = client.MakeRegion(1 << 16);
  ASSERT_TRUE(region.ok());
  const absl::Span<float> in = (*region)->Elements<float>(0, 64);
  for (std::size_t i = 0; i < 64; ++i) in[i] = static_cast<float>(i);
  const std::vector<float> copy(in.begin(), in.end());
  const absl::Span<float> out = (*region)->Elements<float>(4096, 64);

  ConvertPairingArgs pairing;
  pairing.old_pairing = v1::PAIRING_INTERLEAVED;
  pairing.new_pairing = v1::PAIRING_HALF_SPLIT;
  pairing.heads = 2;
  pairing.weight = ViewOf(copy, {8, 8});
  const auto converted = Connect(1).ConvertPairing(pairing);
  ASSERT_TRUE(converted.ok()) << converted.status();
  pairing.weight = ViewOf(in, {8, 8});
  pairing.out = OutputTo(out);
  const auto shared = client.ConvertPairing(pairing);
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_EQ(shared->tensor.bytes, converted->tensor.bytes);

  AddEncodingArgs add;
  add.encoding.mutable_sinusoidal()->set_dim(8);
  add.encoding.mutable_sinusoidal()->set_order(v1::SINUSOIDAL_ORDER_SIN_COS);
  add.positions = StartAt(0);
  add.x = ViewOf(copy, {8, 8});
  const auto added = Connect(1).AddEncoding(add);
  ASSERT_TRUE(added.ok()) << added.status();
  add.x = ViewOf(in, {8, 8});
  add.out = OutputTo(in);
  const auto in_place = client.AddEncoding(add);
  ASSERT_TRUE(in_place.ok()) << in_place.status();
  EXPECT_EQ(in_place->tensor.bytes, added->tensor.bytes);
}

TEST_F(SharedRegionTest, TablesAreCopiedToTheirPlacesInRegions) {
  Start(true);
  const Client client = Connect(0);
  v1::BuildTableRequest request;
  request.mutable_rope()->set_preset("llama-2-7b");
  *request.mutable_positions() = StartAt(0);
  request.set_rows(3);
  const auto wire = Connect(1).BuildTable(request);
  ASSERT_TRUE(wire.ok()) << wire.status();
  const auto region = client.MakeRegion(4096);
  ASSERT_TRUE(region.ok()) << region.status();
  const absl::Span<char> all = (*region)->bytes();
  std::fill(all.begin(), all.end(), 7);
  TableOutputs out;
  out.cos = all.subspan(0, 768);
  out.sin = all.subspan(2048, 768);
  const auto table = client.BuildTable(request, out);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->cos->bytes.data(), out.cos->data());
  EXPECT_EQ(table->cos->bytes, wire->cos->bytes);
  EXPECT_EQ(table->sin->bytes, wire->sin->bytes);
  EXPECT_EQ(table->sin->shape, wire->sin->shape);
  EXPECT_FALSE(table->table.has_value() || wire->table.has_value());
  EXPECT_EQ(all[768], 7);
  EXPECT_EQ(all[2048 + 768], 7);

  out.sin = all.subspan(2048, 764);
  EXPECT_THAT(std::string(client.BuildTable(request, out).status().message()),
              HasSubstr("sin_output: has 764 bytes; the result has 768"));
  EXPECT_EQ(all[2048 + 764], (*wire->sin).bytes[764]);
  TableOutputs wrong;
  wrong.table = OutputTo(absl::Span<char>());
  EXPECT_THAT(std::string(client.BuildTable(request, wrong).status().message()),
              HasSubstr("table_output: is set; this table has cos and sin"));
}

// The client reads nothing outside of a view, and the server reports the error.
TEST_F(SharedRegionTest, ViewsOfTheWrongSizeAreRefusedAsByWire) {
  Start(true);
  const Client client = Connect(0);
  const auto region = client.MakeRegion(2 * kBytes);
  ASSERT_TRUE(region.ok());
  const auto done =
      client.ApplyRope(Rotation((*region)->Elements<float>(0, kElements - 1)));
  EXPECT_EQ(done.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(done.status()), "ERROR_REASON_TENSOR_SIZE_MISMATCH");
}

TEST_F(SharedRegionTest, AnErrorInPlaceSaysThatTheTensorMayBeRotated) {
  Start(true);
  const Client client = Connect(0);
  const auto region = client.MakeRegion(kBytes);
  ASSERT_TRUE(region.ok());
  const absl::Span<float> in = (*region)->Elements<float>(0, kElements);
  ApplyRopeArgs args = Rotation(in);
  args.q_out = OutputTo(in);
  server_.reset();
  const auto gone = client.ApplyRope(args);
  EXPECT_EQ(gone.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(gone.status().message()), HasSubstr("anew"));
}

TEST_F(SharedRegionTest, ARegionIsAFileOfItsOwnAndGoesWithItsOwner) {
  Start(true);
  const Client client = Connect(0);
  auto region = client.MakeRegion(kBytes);
  ASSERT_TRUE(region.ok());
  const std::string path = test::kSharedDirectory + (*region)->name();
  struct stat file = {};
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  EXPECT_EQ(file.st_size, static_cast<off_t>(kBytes));
  EXPECT_GE(file.st_blocks * 512, static_cast<off_t>(kBytes));
  EXPECT_TRUE((*region)->Elements<float>(0, kElements + 1).empty());
  EXPECT_TRUE((*region)->Elements<float>(1, 1).empty());
  const auto again =
      SharedRegion::Create("/dev/shm", (*region)->name(), kBytes);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(stat(path.c_str(), &file), 0);
  region->reset();
  EXPECT_NE(stat(path.c_str(), &file), 0);
  EXPECT_EQ(SharedRegion::Create("/nosuch", "x", 1).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_TRUE(client.MakeRegion(0).ok());
  const auto huge = client.MakeRegion(std::size_t{1} << 62);
  EXPECT_EQ(ErrorFact(huge.status(), "field"), "bytes") << huge.status();
  for (const std::string& name :
       {std::string(), std::string(".."), std::string("a/b"),
        std::string("a\0b", 3), std::string(256, 'a')}) {
    const absl::Status status =
        SharedRegion::Create("/dev/shm", name, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(ErrorFact(status, "field"), "name");
  }
}

// Two containers with different users that share a volume with an fsGroup have
// such a directory.
TEST_F(SharedRegionTest, ADirectoryThatGivesItsGroupGetsFilesOfTheGroup) {
  const std::string directory = test::kSharedDirectory + test::SharedName();
  ASSERT_EQ(mkdir(directory.c_str(), 0700), 0);
  ASSERT_EQ(chmod(directory.c_str(), 02770), 0);
  const mode_t before = umask(077);
  const auto region = SharedRegion::Create(directory, "x", kBytes);
  umask(before);
  ASSERT_TRUE(region.ok()) << region.status();
  struct stat file = {};
  ASSERT_EQ(stat((directory + "/x").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0660u);
  EXPECT_EQ(file.st_size, static_cast<off_t>(kBytes));
  unlink((directory + "/x").c_str());
  EXPECT_EQ(rmdir(directory.c_str()), 0);
}

}  // namespace
}  // namespace posenc
