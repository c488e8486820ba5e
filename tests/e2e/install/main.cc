// The example of client/cpp/README.md, against the server at argv[1].

#include <cstdio>
#include <vector>

#include "posenc/client.h"

int main(int argc, char** argv) {
  posenc::ClientOptions options;
  options.target = argc > 1 ? argv[1] : "localhost:50051";
  const posenc::Client client = posenc::Client::Connect(options);

  // Four tokens with 32 heads of 128 channels each.
  const std::vector<float> q(1 * 4 * 32 * 128, 1.0f);
  posenc::ApplyRopeArgs args;
  args.rope = posenc::FromPreset("llama-3.1-8b");
  args.positions = posenc::StartAt(1000);
  args.layout = posenc::v1::LAYOUT_BSHD;
  args.q = posenc::ViewOf(q, {1, 4, 32, 128});
  const absl::StatusOr<posenc::ApplyRopeResult> out = client.ApplyRope(args);
  if (!out.ok()) {
    std::fprintf(stderr, "%s\n", out.status().ToString().c_str());
    return 1;
  }
  std::printf("%zu bytes, rotated\n", out->q->bytes.size());
}
