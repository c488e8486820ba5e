// posenc-hop TARGET IN OUT SHIFT: moves the keys of a file, bfloat16
// [1, 16, 2, 64], by SHIFT positions. One step of the test that passes keys
// through all languages.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "posenc/client.h"

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: posenc-hop TARGET IN OUT SHIFT\n");
    return 2;
  }
  std::ifstream in(argv[2], std::ios::binary);
  std::string k((std::istreambuf_iterator<char>(in)), {});
  posenc::ClientOptions options;
  options.target = argv[1];
  const posenc::Client client = posenc::Client::Connect(options);
  posenc::RepositionArgs args;
  args.old_rope.mutable_spec()->set_pairing(posenc::v1::PAIRING_HALF_SPLIT);
  args.movement.set_shift(std::atoll(argv[4]));
  args.layout = posenc::v1::LAYOUT_BSHD;
  args.k = posenc::TensorView{posenc::v1::DTYPE_BFLOAT16, {1, 16, 2, 64}, k};
  args.out = absl::MakeSpan(k);
  const absl::StatusOr<posenc::TensorResult> result = client.Reposition(args);
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    return 1;
  }
  std::ofstream(argv[3], std::ios::binary) << k;
  return 0;
}
