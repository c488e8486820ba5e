// The `posenc` command against a server on a socket.

#include <string>

#include "gmock/gmock.h"
#include "server/service/server.h"
#include "tests/fixtures/cli.h"

namespace posenc::cli {
namespace {

class StreamCommandTest : public PosencTest {};

TEST_F(StreamCommandTest, TensorsOverTheServersLimitGoAsAStream) {
  server::ServerOptions options;
  options.listen = {"unix:" + Path("server")};
  options.limits.max_request_bytes = options.limits.max_response_bytes = 16
                                                                         << 20;
  const auto server = server::Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string to = " --server " + Quoted(options.listen[0]);
  const std::string encoding = " --preset llama-3.1-8b --layout bshd";
  // q has 65 MiB, and k has 33 MiB.
  ASSERT_EQ(Posenc("sample --seed 3 --dtype float64 --q 1,33280,2,128 "
                   "--k 1,33280,1,128 --out " +
                   Quoted(Path("in.safetensors")))
                .exit_code,
            0);

  const Outcome applied = Posenc("apply" + to + encoding + " --start 7 --in " +
                                 Quoted(Path("in.safetensors")) + " --out " +
                                 Quoted(Path("out.safetensors")));
  ASSERT_EQ(applied.exit_code, 0) << applied.text;
  // q is moved, k passes through.
  const Outcome moved =
      Posenc("reposition" + to + encoding + " --shift 1000 --tensor q --in " +
             Quoted(Path("out.safetensors")) + " --out " +
             Quoted(Path("moved.safetensors")));
  ASSERT_EQ(moved.exit_code, 0) << moved.text;
  const Outcome check_moved =
      Posenc("check" + encoding + " --start 1007 --repositions 1 --before " +
             Quoted(Path("in.safetensors")) + " --after " +
             Quoted(Path("moved.safetensors")));
  EXPECT_EQ(check_moved.exit_code, 1) << check_moved.text;
  EXPECT_THAT(check_moved.text, testing::HasSubstr("q: 8519680 elements, 0 "));
}

}  // namespace
}  // namespace posenc::cli
