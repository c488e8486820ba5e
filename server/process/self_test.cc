#include "server/process/self_test.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/interpretation/source.h"
#include "core/rotation/apply.h"
#include "core/simd/dispatch.h"

namespace posenc::server {
namespace {

constexpr std::int64_t kTokens = 3;
constexpr std::int64_t kHeadDim = 128;
// A large position, so that the test covers the reduction of angles.
constexpr std::int64_t kStart = 1000003;
constexpr double kTheta = 10000;

// Hashes of the expected bytes. For these bytes, cosines and sines were
// computed with 60 digits and rounded to float32. Each product and each sum was
// rounded to float32, and the result was rounded to the dtype.
struct Golden {
  core::Dtype dtype;
  core::Pairing pairing;
  std::uint64_t fnv1a;
};
constexpr Golden kGolden[] = {
    {core::Dtype::kFloat32, core::Pairing::kHalfSplit, 0xdf59a0ab9509a6cd},
    {core::Dtype::kBfloat16, core::Pairing::kHalfSplit, 0x7d7d5866688dc89d},
    {core::Dtype::kFloat16, core::Pairing::kHalfSplit, 0x07a0f17eb9ac63a6},
    {core::Dtype::kFloat32, core::Pairing::kInterleaved, 0xd062c36f8b94b861},
    {core::Dtype::kBfloat16, core::Pairing::kInterleaved, 0x0ee2fd223c3b475d},
    {core::Dtype::kFloat16, core::Pairing::kInterleaved, 0xbe9a28a68c247651},
};

// Returns the 64-bit FNV-1a hash (Fowler, Noll, Vo).
std::uint64_t Fnv1a(const std::vector<unsigned char>& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

}  // namespace

absl::Status SelfTest() {
  for (const Golden& golden : kGolden) {
    std::vector<unsigned char> bytes(kTokens * kHeadDim *
                                     core::DtypeSize(golden.dtype));
    const core::TensorView tensor = {
        golden.dtype, {1, kTokens, 1, kHeadDim}, bytes.data()};
    for (std::int64_t i = 0; i < kTokens * kHeadDim; ++i) {
      // These inputs are exact in every dtype.
      core::StoreDouble(static_cast<double>(i % 23 - 11) / 4, tensor, i);
    }
    core::RopeSpec spec;
    spec.rope_theta = kTheta;
    spec.pairing = golden.pairing;
    core::ApplyRopeArgs args;
    args.rope = core::interpretation::LookupOf(spec);
    args.positions = core::StartPosition{kStart};
    const core::ConstTensorView input = {tensor.dtype, tensor.shape,
                                         tensor.data};
    ASSIGN_OR_RETURN(const core::Rotations rotations,
                     core::PrepareApplyRope(args, &input, nullptr));
    core::MapAll(*rotations.q, tensor.data, tensor.data);
    if (Fnv1a(bytes) != golden.fnv1a) {
      return absl::InternalError(
          absl::StrCat("self-test: the ", simd::ActiveKernels().name,
                       " kernels rotate ", core::DtypeName(golden.dtype),
                       " wrongly; this build must not serve on this CPU"));
    }
  }
  return absl::OkStatus();
}

}  // namespace posenc::server
