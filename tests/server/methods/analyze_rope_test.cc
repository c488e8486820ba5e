// AnalyzeRope over a real connection; expected values in float64 from the
// formulas.

#include <cmath>
#include <complex>
#include <numbers>

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using AnalyzeRopeTest = ServerTest;

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
  // NoPE removes the whole rotation, so the kept share is the similarity.
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

}  // namespace
}  // namespace posenc::server
