// Rows that rotate keys from where one rotary encoding put them to where
// another puts them. Private to Reposition.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/positions.h"
#include "core/rope/frequencies.h"
#include "core/rope/rotation_map.h"

namespace posenc::core {

// Where tokens stand and where they go: to `to`; else by `shifts` on from
// where they stand; else all by `shift`.
struct Moves {
  std::optional<TokenPositions> from;
  std::optional<TokenPositions> to;
  std::optional<TokenPositions> shifts;
  double shift = 0;

  // True where the moves of one sequence are those of all.
  bool shared() const;
};

// Why a move's rotation depends on where it starts, not on its distance alone:
// the first difference of the two encodings; empty where there is none.
std::string StartDependence(const ResolvedRope& from, const ResolvedRope& to);

// The row of a token has the angle to(p') - from(p) and the amplitude
// A' / A times the quotient of the keys' xPos factors.
class MoveRows : public TokenRows {
 public:
  // The encodings are joinable. moves->from is set, or StartDependence() is
  // empty and moves->to unset.
  MoveRows(const ResolvedRope& from, const ResolvedRope& to,
           std::shared_ptr<const Moves> moves);

  std::unique_ptr<TokenRows> Clone() const override {
    return std::make_unique<MoveRows>(*this);
  }
  std::size_t pairs() const override { return pairs_; }
  std::size_t heads() const override { return heads_; }
  bool uniform() const override { return uniform_; }
  void Fill(std::int64_t b, std::int64_t t, float* row) override;
  void Fill(std::int64_t b, std::int64_t t, double* row) override;

  // OUT_OF_RANGE (metadata index) where a factor of xPos leaves float32.
  absl::Status CheckReach(std::int64_t batch, std::int64_t tokens);

 private:
  // One encoding's part of the angle, as terms position * frequency.
  struct Part {
    Part(const ResolvedRope& rope, std::size_t heads);

    std::size_t terms() const { return float32 ? 1 : axes; }

    std::size_t axes;
    double sign;                   // -1: reverse
    bool float32;                  // angles of float32, as the frameworks have
    std::vector<double> inv_freq;  // [heads][axes][pairs]
    // ln of the key's xPos factor: (center - p) * decay[pair].
    std::vector<long double> decay;  // empty: no xPos
    long double center = 0;
  };

  template <typename T>
  void Evaluate(std::int64_t b, std::int64_t t, T* row);
  // Reads a token's move into from_, to_, distance_.
  void Read(std::int64_t b, std::int64_t t);
  // Sets terms_ and at_ (of head h) for the move that was read.
  void PlaceTerms(std::size_t h);
  void PutTerms(const Part& part, std::size_t h, std::size_t first, double sign,
                const std::vector<double>& positions);
  // ln of the factor that xPos has in the move that was read.
  long double DecayExponent(std::size_t pair) const;

  std::shared_ptr<const Moves> moves_;
  std::size_t pairs_;
  std::size_t heads_;
  std::size_t axes_;
  Part from_part_, to_part_;
  bool same_angles_;
  bool same_decay_;
  bool uniform_;
  double ratio_;  // of the amplitudes
  // Terms in this order: `to` at p', `from` at p, `to` at what p' lost in
  // rounding. Frequencies in quarter turns, [heads][terms][pairs].
  std::size_t all_terms_;
  std::vector<double> turns_hi_, turns_mid_, turns_lo_;
  // Of the token at hand, by axis: p, p' and its rounding error, and p' - p.
  std::vector<double> from_, to_, to_error_, distance_;
  bool distance_exact_ = false;
  std::size_t terms_ = 0;
  // Positions of the terms, [terms], or [terms][pairs] where per_pair_.
  bool per_pair_;
  std::vector<double> at_;
  std::vector<double> amplitudes_;  // [pairs] with xPos
};

}  // namespace posenc::core
