// Converts rotary encodings of requests to core's arguments, and resolved
// encodings to responses.
//
// Enums have the same numbers in core and in the contract, so they are cast.
// Parse() has already refused values that this server does not know.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/interpretation/compare.h"
#include "core/interpretation/source.h"
#include "core/rope/analyze.h"
#include "core/rope/frequencies.h"
#include "core/rope/table.h"
#include "core/rotation/convert_pairing.h"
#include "core/rotation/reposition.h"
#include "posenc/v1/rope.pb.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/positions.h"
#include "server/convert/tensor.h"

namespace posenc::server {

// If no source is given, the result has no source, and core refuses it.
core::interpretation::RopeSource ReadRopeSource(const v1::RopeSource& source);

core::QueryScale ReadQueryScale(const v1::QueryScale& scale);

// Tensors of the results point into the message, or into `owned`.
absl::StatusOr<core::Movement> ReadMovement(const v1::Movement& movement,
                                            OwnedElements* owned);
absl::StatusOr<core::CacheLayout> ReadCacheLayout(const v1::CacheLayout& cache,
                                                  OwnedElements* owned);

core::ConvertPairingArgs ReadConvertPairing(
    const v1::ConvertPairingRequest& request);

void WriteRope(const core::ResolvedRope& rope, const std::string& content_hash,
               v1::ResolveRopeResponse* response);
void WriteDifference(const core::interpretation::RopeDifference& difference,
                     v1::RopeDifference* out);
void WriteAnalysis(const core::RopeAnalysis& analysis,
                   v1::AnalyzeRopeResponse* response);

}  // namespace posenc::server
