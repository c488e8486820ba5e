// Files are truncated, removed or filled up while the server uses them: calls
// fail or succeed, and the server survives.

#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/fixtures/server_errors.h"
#include "tests/fixtures/shared_memory.h"

namespace posenc::server {
namespace {

using test::SharedMemoryFile;

class CutTest : public ServerTest {
 protected:
  void SetUp() override {
    Start({.listen = {"unix:/tmp/posenc_cut_" + std::to_string(getpid()) +
                      ".sock"},
           .shared_memory = {.prefix = test::kSharedDirectory +
                                       test::SharedPrefix()}});
  }

  // Returns a request that rotates the whole file in place.
  static v1::ApplyRopeRequest Rotation(const SharedMemoryFile& file) {
    v1::ApplyRopeRequest request = GoodApply();
    request.clear_k();
    v1::Tensor* const q = request.mutable_q();
    q->clear_data();
    q->set_shape(1, static_cast<std::int64_t>(file.bytes() / (2 * 8 * 4)));
    q->mutable_shared()->set_name(file.name());
    *request.mutable_q_output() = q->shared();
    return request;
  }
};

constexpr std::size_t kBytes = 4 << 20;

// The scheduler decides which truncations happen during a rotation. Both cases
// occur.
TEST_F(CutTest, TheServerOutlivesTwoHundredCutsUnderLoad) {
  SharedMemoryFile file(kBytes);
  const v1::ApplyRopeRequest request = Rotation(file);
  std::atomic<bool> stop{false};
  std::atomic<int> good{0}, cut{0}, out_of_range{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      while (!stop.load()) {
        v1::ApplyRopeResponse response;
        const grpc::Status status = Apply(request, &response);
        if (status.ok()) {
          ++good;
        } else if (status.error_code() ==
                   grpc::StatusCode::FAILED_PRECONDITION) {
          EXPECT_EQ(ReadDetails(status).reason,
                    "ERROR_REASON_SHARED_MEMORY_CUT");
          ++cut;
        } else {
          // The file was already truncated when the call came.
          EXPECT_EQ(status.error_code(), kInvalid) << status.error_message();
          ++out_of_range;
        }
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    const int before = good.load() + cut.load();
    EXPECT_EQ(ftruncate(file.fd(), (i % 5) * (kBytes / 5)), 0);
    EXPECT_EQ(ftruncate(file.fd(), kBytes), 0);
    EXPECT_TRUE(
        test::Eventually([&] { return good.load() + cut.load() > before; }));
  }
  stop.store(true);
  for (std::thread& caller : callers) caller.join();
  EXPECT_GT(good.load(), 0);
  v1::ApplyRopeResponse response;
  EXPECT_TRUE(Apply(request, &response).ok());
  ExpectNothingInFlight();
}

TEST_F(CutTest, AFileThatIsUnlinkedDuringCallsStaysMappedForThem) {
  for (int round = 0; round < 20; ++round) {
    auto file = std::make_unique<SharedMemoryFile>(kBytes);
    const v1::ApplyRopeRequest request = Rotation(*file);
    std::thread caller([&] {
      v1::ApplyRopeResponse response;
      const grpc::Status status = Apply(request, &response);
      EXPECT_TRUE(status.ok() ||
                  status.error_code() == grpc::StatusCode::NOT_FOUND)
          << status.error_message();
    });
    file.reset();
    caller.join();
  }
  ExpectNothingInFlight();
}

TEST_F(CutTest, ATableIntoAFileThatIsCutFailsOrIsWhole) {
  v1::BuildTableRequest request = LargeTable();
  SharedMemoryFile file(2 * kLargeTableBytes);
  request.mutable_cos_output()->set_name(file.name());
  request.mutable_sin_output()->set_name(file.name());
  request.mutable_sin_output()->set_offset(kLargeTableBytes + 1);
  for (int round = 0; round < 20; ++round) {
    std::thread caller([&] {
      v1::BuildTableResponse response;
      const grpc::Status status = Table(request, &response);
      EXPECT_TRUE(status.ok() || status.error_code() == kInvalid ||
                  status.error_code() == grpc::StatusCode::FAILED_PRECONDITION)
          << status.error_message();
    });
    EXPECT_EQ(ftruncate(file.fd(), 4096), 0);
    caller.join();
    EXPECT_EQ(ftruncate(file.fd(), file.bytes()), 0);
  }
}

}  // namespace
}  // namespace posenc::server
