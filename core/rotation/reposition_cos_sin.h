// Evaluates the cosines and sines that move keys from one rotary encoding at
// old positions to another encoding at new positions. Private to Reposition.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/angle/quarter_turns.h"
#include "core/positions/positions.h"
#include "core/rope/cos_sin_source.h"
#include "core/rope/frequencies.h"

namespace posenc::core {

// Old and new positions of tokens. If `to` is set, it has the new positions. If
// only `shifts` is set, the new positions are the old positions plus `shifts`;
// otherwise they are the old positions plus `shift`.
struct PositionChange {
  std::optional<TokenPositions> from;
  std::optional<TokenPositions> to;
  std::optional<TokenPositions> shifts;
  double shift = 0;

  // True if all sequences have the same change.
  bool shared() const;
};

// Returns the first difference of the encodings that makes the rotation depend
// on the old position, and not only on the distance; empty if there is no such
// difference.
std::string StartDependence(const ResolvedRope& from, const ResolvedRope& to);

// The row of a token has the angle of `to` at p' minus the angle of `from` at
// p. The row's factor is the ratio of the attention factors, A' / A, times the
// ratio of the keys' xPos factors.
class RepositionCosSin : public CosSinSource {
 public:
  // The encodings must be joinable (PrepareReposition checks this). Either
  // change->from is set, or change->to is unset and StartDependence() is empty.
  RepositionCosSin(const ResolvedRope& from, const ResolvedRope& to,
                   std::shared_ptr<const PositionChange> change);

  std::unique_ptr<CosSinSource> Clone() const override {
    return std::make_unique<RepositionCosSin>(*this);
  }
  std::size_t pairs() const override { return pairs_; }
  std::size_t heads() const override { return heads_; }
  bool uniform() const override { return uniform_; }
  void Fill(std::int64_t b, std::int64_t t, float* row) override;
  void Fill(std::int64_t b, std::int64_t t, double* row) override;

  // Returns OUT_OF_RANGE, with a token's index as metadata, if an xPos factor
  // leaves the range of float32.
  absl::Status CheckReach(std::int64_t batch, std::int64_t tokens);

 private:
  // One encoding's terms of the angle: position * frequency for each axis. A
  // float32 angle is a single term with frequency 1.
  struct Encoding {
    Encoding(const ResolvedRope& rope, std::size_t heads);

    std::size_t terms() const { return float32 ? 1 : axes; }

    std::size_t axes;
    double sign;                   // -1 if reversed
    bool float32;                  // float32 angles, as in the frameworks
    std::vector<double> inv_freq;  // [heads][axes][pairs]
    // The ln of a key's xPos factor is (center - p) * decay[pair].
    std::vector<long double> decay;  // empty: no xPos
    long double center = 0;
  };

  template <typename T>
  void Evaluate(std::int64_t b, std::int64_t t, T* row);
  // Reads the change of a token into old_, new_, distance_.
  void Read(std::int64_t b, std::int64_t t);
  // Sets terms_ and at_ (of head h) for the current change.
  void SetTerms(std::size_t h);
  // Sets the terms of one encoding from term `first` on.
  void WriteTerms(const Encoding& encoding, std::size_t h, std::size_t first,
                  double sign, const std::vector<double>& positions);
  // Returns ln of the xPos factor of the current change.
  long double DecayExponent(std::size_t pair) const;

  std::shared_ptr<const PositionChange> change_;
  std::size_t pairs_;
  std::size_t heads_;
  std::size_t axes_;
  Encoding from_, to_;
  bool same_angles_;
  bool same_decay_;
  bool uniform_;
  double ratio_;  // A' / A, the ratio of the attention factors
  // Frequencies of the terms, [heads][terms][pairs], for all_terms_ terms.
  std::size_t all_terms_;
  QuarterTurnArrays quarter_turns_;
  // p, p', the rounding error of p', and p' - p of the current token, by axis.
  std::vector<double> old_, new_, new_error_, distance_;
  bool distance_exact_ = false;
  std::size_t terms_ = 0;
  // Positions of the terms, [terms], or [terms][pairs] if per_pair_.
  bool per_pair_;
  std::vector<double> at_;
  std::vector<double> factors_;  // [pairs] with xPos, else empty
};

}  // namespace posenc::core
