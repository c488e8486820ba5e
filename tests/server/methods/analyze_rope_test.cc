// AnalyzeRope over a real connection; expected values in float64 from the
// formulas.

#include <cmath>
#include <complex>
#include <numbers>

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using AnalyzeRopeTest = ErrorTest;

double Frequency(int pair, int width) {
  return std::pow(10000.0, -2.0 * pair / width);
}

v1::AnalyzeRopeRequest GoodAnalyze() {
  v1::AnalyzeRopeRequest request;
  request.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  request.set_head_dim(8);
  request.set_max_distance(20);
  request.set_distance_step(5);
  request.set_trained_length(1000);
  return request;
}

TEST_F(AnalyzeRopeTest, AnalyzeRopeTellsWavelengthsDecayAndSimilarity) {
  v1::AnalyzeRopeResponse response;
  const grpc::Status status =
      Call(&Stub::AnalyzeRope, GoodAnalyze(), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.wavelengths_size(), 4);
  int within = 0;
  for (int i = 0; i < 4; ++i) {
    const double wavelength = 2 * std::numbers::pi / Frequency(i, 8);
    EXPECT_NEAR(response.wavelengths(i), wavelength, 1e-14 * wavelength);
    within += wavelength <= 1000;
  }
  EXPECT_EQ(response.pairs_within_trained_length(), within);
  ASSERT_EQ(response.decay_size(), 5);
  ASSERT_EQ(response.similarity_size(), 5);
  for (int s = 0; s < 5; ++s) {
    std::complex<double> sum = 0;
    double decay = 0, similarity = 0;
    for (int i = 0; i < 4; ++i) {
      sum += std::polar(1.0, 5 * s * Frequency(i, 8));
      decay += std::abs(sum) / 4;
      similarity += std::cos(5 * s * Frequency(i, 8)) / 4;
    }
    EXPECT_NEAR(response.decay(s), decay, 1e-13) << s;
    EXPECT_NEAR(response.similarity(s), similarity, 1e-13) << s;
  }
}

TEST_F(AnalyzeRopeTest, AnalyzeRopeTellsWhatAnotherEncodingLeavesOfAScore) {
  v1::AnalyzeRopeRequest request = GoodAnalyze();
  *request.mutable_compare_with() = request.rope();
  request.mutable_compare_with()->mutable_spec()->mutable_linear()->set_factor(
      4);
  v1::AnalyzeRopeResponse response;
  ASSERT_TRUE(Call(&Stub::AnalyzeRope, request, &response).ok());
  ASSERT_EQ(response.kept_size(), 5);
  for (int s = 0; s < 5; ++s) {
    double kept = 0;
    for (int i = 0; i < 4; ++i) {
      kept += std::cos(5 * s * Frequency(i, 8) * 0.75) / 4;
    }
    EXPECT_NEAR(response.kept(s), kept, 1e-14) << s;
  }
  // Nothing is left of the rotation: what is kept is the similarity.
  request.mutable_compare_with()->mutable_spec()->Clear();
  request.mutable_compare_with()->mutable_spec()->set_nope(true);
  ASSERT_TRUE(Call(&Stub::AnalyzeRope, request, &response).ok());
  for (int s = 0; s < 5; ++s) {
    EXPECT_NEAR(response.kept(s), response.similarity(s), 1e-15) << s;
  }
  request.clear_compare_with();
  ASSERT_TRUE(Call(&Stub::AnalyzeRope, request, &response).ok());
  EXPECT_EQ(response.kept_size(), 0);
}

TEST_F(AnalyzeRopeTest, AnalyzeRopeNamesFieldNumbersAndReason) {
  using A = v1::AnalyzeRopeRequest;
  ExpectAll<A, v1::AnalyzeRopeResponse>(
      GoodAnalyze(),
      {
          {"NoRope",
           [](A& a) { a.clear_rope(); },
           kInvalid,
           "FIELD_REQUIRED",
           "rope",
           {}},
          {"NegativeHeadDim",
           [](A& a) { a.set_head_dim(-1); },
           kInvalid,
           "FIELD_INVALID",
           "head_dim",
           {"-1"}},
          {"NoWidth",
           [](A& a) { a.clear_head_dim(); },
           kInvalid,
           "FIELD_REQUIRED",
           "rope.spec.rotary_dim",
           {}},
          {"NoPe",
           [](A& a) {
             a.mutable_rope()->mutable_spec()->Clear();
             a.mutable_rope()->mutable_spec()->set_nope(true);
           },
           kInvalid,
           "FIELD_INVALID",
           "rope",
           {}},
          {"TwoAxes",
           [](A& a) {
             v1::RotaryAxes* axes =
                 a.mutable_rope()->mutable_spec()->mutable_axes();
             axes->set_assignment(v1::RotaryAxes::ASSIGNMENT_SECTIONED);
             axes->add_sections(2);
             axes->add_sections(2);
           },
           kInvalid,
           "FIELD_INVALID",
           "rope",
           {"2"}},
          {"NoSourceToCompareWith",
           [](A& a) { a.mutable_compare_with(); },
           kInvalid,
           "FIELD_REQUIRED",
           "compare_with",
           {}},
          {"TwoAxesToCompareWith",
           [](A& a) {
             *a.mutable_compare_with() = a.rope();
             v1::RotaryAxes* axes =
                 a.mutable_compare_with()->mutable_spec()->mutable_axes();
             axes->set_assignment(v1::RotaryAxes::ASSIGNMENT_SECTIONED);
             axes->add_sections(2);
             axes->add_sections(2);
           },
           kInvalid,
           "FIELD_INVALID",
           "compare_with",
           {"2"}},
          {"HeadsToCompareWith",
           [](A& a) {
             *a.mutable_compare_with() = a.rope();
             v1::ExplicitFrequencies* given =
                 a.mutable_compare_with()
                     ->mutable_spec()
                     ->mutable_explicit_frequencies();
             given->set_heads(2);
             for (int i = 0; i < 8; ++i) given->add_values(1);
           },
           kInvalid,
           "FIELD_INVALID",
           "compare_with",
           {"2 heads"}},
          {"NegativeDistance",
           [](A& a) { a.set_max_distance(-1); },
           kInvalid,
           "FIELD_INVALID",
           "max_distance",
           {"-1"}},
          {"NegativeStep",
           [](A& a) { a.set_distance_step(-1); },
           kInvalid,
           "FIELD_INVALID",
           "distance_step",
           {"-1"}},
          {"TooManyDistances",
           [](A& a) {
             a.set_distance_step(1);
             a.set_max_distance(65536);
           },
           kInvalid,
           "FIELD_INVALID",
           "distance_step",
           {"65537", "65536"}},
          {"NegativeTrainedLength",
           [](A& a) { a.set_trained_length(-1); },
           kInvalid,
           "FIELD_INVALID",
           "trained_length",
           {"-1"}},
      },
      &Stub::AnalyzeRope);
}

}  // namespace
}  // namespace posenc::server
