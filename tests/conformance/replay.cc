// posenc-replay TARGET FOLDER: replays the vectors of FOLDER through the C++
// client library. Prints a line for each, "family<TAB>name<TAB>ok" or
// "...<TAB>fail<TAB>why", and exits with 1 if one failed.

#include "tests/conformance/replay.h"

#include <cstdio>

#include "grpcpp/create_channel.h"

namespace posenc::conformance {
namespace {

int Main(const std::string& target, const std::string& folder) {
  ClientOptions options;
  options.target = target;
  Replay replay(
      Client::Connect(options),
      grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
  bool failed = false;
  for (const Vector& vector : LoadVectors(folder)) {
    const std::string failure = replay.Run(vector);
    if (failure.empty()) {
      std::printf("%s\t%s\tok\n", vector.family.c_str(), vector.name.c_str());
    } else {
      failed = true;
      std::printf("%s\t%s\tfail\t%s\n", vector.family.c_str(),
                  vector.name.c_str(), failure.c_str());
    }
  }
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace posenc::conformance

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: posenc-replay TARGET FOLDER\n");
    return 2;
  }
  return posenc::conformance::Main(argv[1], argv[2]);
}
