#include "tests/bench/core_rotation.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace posenc::bench {

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "posenc-core-bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

core::RopeLookup LookupOf(core::Pairing pairing, std::int64_t rotary_dim,
                          std::int64_t head_dim) {
  core::RopeSpec spec;
  spec.pairing = pairing;
  spec.rotary_dim = static_cast<std::int32_t>(rotary_dim);
  absl::StatusOr<core::ResolvedRope> rope = core::ResolveSpec(
      spec, head_dim, std::nullopt, core::MissingLength::kError);
  Require(rope.status());
  auto prepared = std::make_shared<const core::PreparedRope>(*std::move(rope));
  return [prepared](std::int64_t) { return prepared; };
}

namespace {

core::ApplyRopeArgs ArgsOf(const RotationShape& shape) {
  core::ApplyRopeArgs args;
  args.rope = LookupOf(shape.pairing, shape.rotary_dim, shape.head_dim);
  args.layout = shape.layout;
  if (core::IsFloat8(shape.dtype)) {
    args.saturation = core::Saturation::kFinite;
  }
  if (shape.layout == core::Layout::kThd) {
    args.positions = core::PackedSequences{{0, shape.tokens}, {}};
  } else {
    args.positions = core::StartPosition{0};
  }
  return args;
}

}  // namespace

std::function<void()> CallOf(const RotationShape& shape, const std::byte* src,
                             std::byte* dst) {
  const core::ConstTensorView in{shape.dtype, shape.shape(), src};
  return [args = ArgsOf(shape), in, src, dst] {
    const absl::StatusOr<core::Rotations> rotations =
        core::PrepareApplyRope(args, &in, nullptr);
    Require(rotations.status());
    core::MapAll(*rotations->q, src, dst);
  };
}

std::function<void()> PassOf(const RotationShape& shape, const std::byte* src,
                             std::byte* dst) {
  const core::ConstTensorView in{shape.dtype, shape.shape(), src};
  absl::StatusOr<core::Rotations> rotations =
      core::PrepareApplyRope(ArgsOf(shape), &in, nullptr);
  Require(rotations.status());
  const std::shared_ptr<core::RowMap> map = std::move(rotations->q);
  const std::shared_ptr<core::RowMap::Worker> worker =
      map->StartWorker(0, map->rows());
  return [map, worker, src, dst] { worker->Run(0, map->rows(), src, dst); };
}

}  // namespace posenc::bench
