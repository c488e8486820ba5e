// ResolveRope's comparison over a real connection; expected values from the
// formula in long double, with the frequencies that the server gives for each
// side alone.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

class ResolveRopeTest : public ServerTest {
 protected:
  v1::ResolveRopeResponse Resolved(const v1::ResolveRopeRequest& request) {
    v1::ResolveRopeResponse response;
    const grpc::Status status = Call(&Stub::ResolveRope, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  std::vector<double> Frequencies(const v1::RopeSource& source) {
    v1::ResolveRopeRequest request;
    *request.mutable_rope() = source;
    const v1::ResolveRopeResponse response = Resolved(request);
    return {response.inv_freq().begin(), response.inv_freq().end()};
  }
};

v1::ResolveRopeRequest GptOss(v1::Profile other) {
  v1::ResolveRopeRequest request;
  request.mutable_rope()->set_preset("gpt-oss-20b");
  request.mutable_compare_with()->set_preset("gpt-oss-20b");
  request.mutable_compare_with()->set_profile(other);
  return request;
}

// Distances of 2^31 times float64's rounding of a frequency are 10^-7 rad.
long double Kept(const std::vector<double>& a, const std::vector<double>& b,
                 std::int64_t distance) {
  long double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const long double apart =
        static_cast<long double>(a[i]) - static_cast<long double>(b[i]);
    sum += std::cos(static_cast<long double>(distance) * apart);
  }
  return sum / static_cast<long double>(a.size());
}

TEST_F(ResolveRopeTest, DifferenceTellsWhatIsLeftOfAScore) {
  v1::ResolveRopeRequest request = GptOss(v1::PROFILE_LLAMA_CPP);
  const v1::RopeDifference difference = Resolved(request).difference();
  const std::vector<double> a = Frequencies(request.rope());
  const std::vector<double> b = Frequencies(request.compare_with());
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(difference.length(), 131072);  // the preset's length
  EXPECT_NEAR(difference.kept_at_length(),
              static_cast<double>(Kept(a, b, 131072)), 1e-13);
  // All distances up to 4096 are tried; larger distances grow by less than 0.1
  // %.
  const std::int64_t first = difference.first_distance();
  ASSERT_GT(first, 4096);
  EXPECT_LT(Kept(a, b, first), 0.9L);
  EXPECT_GT(Kept(a, b, first - first / 1000 - 1), 0.9L);
  for (std::int64_t r = 1; r <= 4096; ++r) {
    ASSERT_GE(Kept(a, b, r), 0.9L) << r;
  }
  EXPECT_EQ(difference.first_diverging_position(), 46);
}

TEST_F(ResolveRopeTest, FirstDistanceIsExactBelow4096) {
  v1::ResolveRopeRequest request;
  for (auto* source :
       {request.mutable_rope(), request.mutable_compare_with()}) {
    source->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
    source->mutable_spec()->set_rotary_dim(128);
  }
  request.mutable_compare_with()->mutable_spec()->set_rope_theta(500000);
  const v1::RopeDifference difference = Resolved(request).difference();
  const std::vector<double> a = Frequencies(request.rope());
  const std::vector<double> b = Frequencies(request.compare_with());
  std::int64_t first = 1;
  while (Kept(a, b, first) >= 0.9L) ++first;
  EXPECT_EQ(difference.first_distance(), first);
  EXPECT_EQ(difference.length(), 8192);  // a spec has no length
  EXPECT_NEAR(difference.kept_at_length(),
              static_cast<double>(Kept(a, b, 8192)), 1e-13);
}

TEST_F(ResolveRopeTest, LengthSaysHowFarTheDifferenceIsLookedAt) {
  v1::ResolveRopeRequest request = GptOss(v1::PROFILE_LLAMA_CPP);
  request.set_length(4096);
  const v1::RopeDifference near = Resolved(request).difference();
  EXPECT_EQ(near.length(), 4096);
  EXPECT_EQ(near.first_distance(), -1);
  EXPECT_GT(near.kept_at_length(), 0.9);
  request.set_length(std::int64_t{1} << 31);
  EXPECT_EQ(Resolved(request).difference().length(), std::int64_t{1} << 31);
}

TEST_F(ResolveRopeTest, EqualEncodingsKeepAll) {
  const v1::RopeDifference difference =
      Resolved(GptOss(v1::PROFILE_HF)).difference();
  EXPECT_TRUE(difference.equal());
  EXPECT_EQ(difference.first_distance(), -1);
  EXPECT_EQ(difference.kept_at_length(), 1);
  EXPECT_EQ(difference.length(), 131072);
}

TEST_F(ResolveRopeTest, ChannelsThatOneSideDoesNotRotateStandStill) {
  v1::ResolveRopeRequest request;
  request.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  request.mutable_rope()->mutable_spec()->set_rotary_dim(8);
  *request.mutable_compare_with() = request.rope();
  request.mutable_compare_with()->mutable_spec()->set_rotary_dim(4);
  request.set_length(9);
  const std::vector<double> a = Frequencies(request.rope());
  std::vector<double> b = Frequencies(request.compare_with());
  b.resize(a.size());
  EXPECT_NEAR(Resolved(request).difference().kept_at_length(),
              static_cast<double>(Kept(a, b, 9)), 1e-15);
}

}  // namespace
}  // namespace posenc::server
