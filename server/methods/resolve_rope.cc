// ResolveRope explains an encoding, and how a second encoding differs from it.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/interpretation/claimed_length.h"
#include "core/interpretation/compare.h"
#include "core/interpretation/content_hash.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/rope.h"
#include "server/methods/methods.h"
#include "server/methods/rope_source.h"
#include "server/methods/takes_long.h"

namespace posenc::server {
namespace {

absl::Status CheckLength(const v1::ResolveRopeRequest& request) {
  const std::int64_t length = request.length();
  if (length != 0 && !request.has_compare_with()) {
    return core::FieldInvalid(
        "length", length,
        " without compare_with; it limits the distances to compare");
  }
  if (length < 0 || length > core::interpretation::kMaxComparedLength) {
    return core::FieldInvalid("length", length,
                              "; must be 1 to 2^31, or unset");
  }
  return absl::OkStatus();
}

std::int64_t LengthOf(const v1::ResolveRopeRequest& request) {
  if (request.length() > 0) return request.length();
  const std::int64_t claimed =
      core::interpretation::ClaimedLength(ReadRopeSource(request.rope()));
  return claimed > 0 ? claimed : core::interpretation::kDefaultComparedLength;
}

}  // namespace

absl::Status AnswerResolveRope(const v1::ResolveRopeRequest& request,
                               const MethodContext& context, StopCheck stop,
                               v1::ResolveRopeResponse* response) {
  std::string key;
  if (!request.has_compare_with() && request.length() == 0) {
    key = CacheKey(request.rope(), request.head_dim()) + ":explained";
    if (const auto known = context.cache->Find(key)) {
      WriteRope(known->rope, core::interpretation::ContentHash(known->rope),
                response);
      return absl::OkStatus();
    }
  }
  ASSIGN_OR_RETURN(
      ComparedRopes ropes,
      ResolveCompared(
          request.rope(),
          request.has_compare_with() ? &request.compare_with() : nullptr,
          request.head_dim(), CheckLength(request)));
  core::ResolvedRope& rope = ropes.rope;
  WriteRope(rope, core::interpretation::ContentHash(rope), response);
  if (!key.empty()) {
    context.cache->Insert(
        key, std::make_shared<const core::PreparedRope>(std::move(rope)));
    return absl::OkStatus();
  }
  core::interpretation::RopeDifference difference =
      core::interpretation::CompareRopes(rope, *ropes.other);
  RETURN_IF_ERROR(core::interpretation::CompareScores(
      rope, *ropes.other, LengthOf(request), [stop] { return stop(); },
      &difference));
  WriteDifference(difference, response->mutable_difference());
  return absl::OkStatus();
}

// A comparison takes long, because its scores need sines and cosines of about
// 128 frequencies at up to 8192 distances.
bool TakesLong(const v1::ResolveRopeRequest& request) {
  return request.has_compare_with() ||
         ResolvesLong(request.rope(), request.head_dim());
}

}  // namespace posenc::server
