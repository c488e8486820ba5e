// ApplyRopeStream and RepositionStream: they give the bytes of the unary call,
// for any ends of messages.

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "posenc/wire/frame.h"
#include "tests/fixtures/byte_stream.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using Random = std::mt19937;
using Status = grpc::StatusCode;

std::int64_t Below(std::int64_t n, Random* random) {
  return std::uniform_int_distribution<std::int64_t>(0, n - 1)(*random);
}

// A tensor of numbers between -2 and 2, with random bits.
void Fill(v1::Dtype dtype, const std::vector<std::int64_t>& shape,
          Random* random, v1::Tensor* tensor) {
  const std::size_t element = wire::ElementBytes(dtype);
  std::size_t bytes = element;
  for (const std::int64_t extent : shape) bytes *= extent;
  std::string data(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<char>((*random)());
    // Clears the exponent's highest bit, so that all numbers are between -2 and
    // 2.
    if (i % element == element - 1) data[i] &= '\xbf';
  }
  SetTensor(dtype, shape, std::vector<char>(data.begin(), data.end()), tensor);
}

struct Extents {
  std::int64_t batch, tokens;
};

std::vector<std::int64_t> Shape(v1::Layout layout, const Extents& extents,
                                std::int64_t heads, std::int64_t head_dim) {
  const auto& [batch, tokens] = extents;
  switch (layout) {
    case v1::LAYOUT_BHSD:
      return {batch, heads, tokens, head_dim};
    case v1::LAYOUT_SBHD:
      return {tokens, batch, heads, head_dim};
    case v1::LAYOUT_THD:
      return {tokens, heads, head_dim};
    default:
      return {batch, tokens, heads, head_dim};
  }
}

// Sets ids of `axes` axes: one list for all sequences, or with `each` one for
// each sequence.
void SetIds(const Extents& extents, int axes, bool each, Random* random,
            v1::Tensor* ids) {
  std::vector<std::int64_t> shape = {extents.tokens};
  if (each) shape.insert(shape.begin(), extents.batch);
  if (axes > 1) shape.insert(shape.begin(), axes);
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  std::vector<std::int32_t> numbers(count);
  for (std::int32_t& number : numbers) {
    number = static_cast<std::int32_t>(Below(5000, random));
  }
  SetTensor(v1::DTYPE_INT32, shape, numbers, ids);
}

// The encodings: whole heads, a part of the head with another output pairing,
// several axes, and frequencies by head.
enum Encoding { kWhole, kPartial, kAxes, kByHead, kEncodings };
constexpr int kHeads = 3, kHeadDim = 12;

void SetRope(Encoding encoding, v1::RopeSpec* spec) {
  spec->set_pairing(v1::PAIRING_HALF_SPLIT);
  switch (encoding) {
    case kPartial:
      spec->set_rotary_dim(8);
      spec->set_output_pairing(v1::PAIRING_INTERLEAVED);
      break;
    case kAxes:
      spec->mutable_axes()->set_assignment(
          v1::RotaryAxes::ASSIGNMENT_SECTIONED);
      for (const int pairs : {1, 2, 3}) {
        spec->mutable_axes()->add_sections(pairs);
      }
      break;
    case kByHead:
      spec->set_rotary_dim(kHeadDim);
      spec->mutable_explicit_frequencies()->set_heads(kHeads);
      for (int i = 0; i < kHeads * kHeadDim / 2; ++i) {
        spec->mutable_explicit_frequencies()->add_values(1.0 / (1 + i));
      }
      break;
    default:
      break;
  }
}

constexpr v1::Layout kLayouts[] = {v1::LAYOUT_BSHD, v1::LAYOUT_BHSD,
                                   v1::LAYOUT_SBHD, v1::LAYOUT_THD};
constexpr v1::Dtype kDtypes[] = {
    v1::DTYPE_FLOAT32, v1::DTYPE_FLOAT16,       v1::DTYPE_BFLOAT16,
    v1::DTYPE_FLOAT64, v1::DTYPE_FLOAT8_E4M3FN, v1::DTYPE_FLOAT8_E5M2};

// The kinds of keys that repositions move, and the elements of a head.
struct Keys {
  v1::Dtype dtype;
  v1::BlockFormat format = v1::BLOCK_FORMAT_UNSPECIFIED;
  std::int64_t width = kHeadDim;
};

std::vector<Keys> AllKeys() {
  std::vector<Keys> all;
  for (const v1::Dtype dtype : kDtypes) all.push_back({dtype});
  all.push_back({v1::DTYPE_INT8});
  all.push_back({v1::DTYPE_INT8, v1::BLOCK_FORMAT_Q8_0, 2 * 34});
  all.push_back({v1::DTYPE_INT8, v1::BLOCK_FORMAT_Q4_0, 2 * 18});
  return all;
}

// Returns random places at which messages end, between elements; the last
// message ends after the last byte. The parts have `sizes` bytes, and their
// elements have `elements` bytes.
std::vector<std::size_t> Ends(const std::vector<std::size_t>& sizes,
                              const std::vector<std::size_t>& elements,
                              Random* random) {
  std::vector<std::size_t> ends;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t cuts = Below(12, random);
    for (std::int64_t cut = 0; cut < cuts; ++cut) {
      const auto count = static_cast<std::int64_t>(sizes[i] / elements[i]);
      ends.push_back(begin + Below(count + 1, random) * elements[i]);
    }
    begin += sizes[i];
  }
  ends.push_back(begin);
  std::sort(ends.begin(), ends.end());
  return ends;
}

class RotationStreamTest : public ServerTest {
 protected:
  grpc::Status Stream(const std::vector<v1::ApplyRopeStreamRequest>& requests,
                      std::string* bytes) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    return Exchange(stub_->ApplyRopeStream(&context).get(), requests, bytes);
  }
  grpc::Status Stream(const std::vector<v1::RepositionStreamRequest>& requests,
                      std::string* bytes) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    return Exchange(stub_->RepositionStream(&context).get(), requests, bytes);
  }
};

TEST_F(RotationStreamTest, AnyCutOfAnyRotationHasTheBytesOfTheUnaryCall) {
  unsigned seed = 0;
  for (const v1::Layout layout : kLayouts) {
    for (const v1::Dtype dtype : kDtypes) {
      for (int encoding = 0; encoding < kEncodings; ++encoding) {
        SCOPED_TRACE(absl::StrCat(v1::Layout_Name(layout), " ",
                                  v1::Dtype_Name(dtype), " ", encoding,
                                  " seed ", seed));
        Random random(seed++);
        const bool packed = layout == v1::LAYOUT_THD;
        const Extents extents = {packed ? 1 : 1 + Below(3, &random),
                                 1 + Below(40, &random)};
        v1::ApplyRopeRequest unary;
        SetRope(static_cast<Encoding>(encoding),
                unary.mutable_rope()->mutable_spec());
        unary.set_layout(layout);
        unary.set_saturation(v1::SATURATION_FINITE);
        unary.set_direction(static_cast<v1::Direction>(1 + Below(3, &random)));
        const bool ids = encoding == kAxes || Below(2, &random) == 0;
        if (ids) {
          SetIds(extents, encoding == kAxes ? 3 : 1,
                 !packed && Below(2, &random) == 0, &random,
                 unary.mutable_positions()->mutable_ids());
        } else {
          unary.mutable_positions()->set_start(Below(1000, &random));
        }
        Fill(dtype, Shape(layout, extents, kHeads, kHeadDim), &random,
             unary.mutable_q());
        const std::int64_t k_heads = encoding == kByHead ? kHeads : 1;
        Fill(dtype, Shape(layout, extents, k_heads, kHeadDim), &random,
             unary.mutable_k());
        v1::ApplyRopeResponse expected;
        const grpc::Status whole = Apply(unary, &expected);
        ASSERT_TRUE(whole.ok()) << whole.error_message();

        const bool send_ids = ids && Below(2, &random) == 0;
        std::vector<std::size_t> sizes = {unary.q().data().size(),
                                          unary.k().data().size()};
        std::vector<std::size_t> elements(2, wire::ElementBytes(dtype));
        if (send_ids) {
          sizes.insert(sizes.begin(), unary.positions().ids().data().size());
          elements.insert(elements.begin(), 4);
        }
        const std::string bytes = TakeData(&unary, send_ids);
        std::string rotated;
        const grpc::Status status =
            Stream(StreamOf<v1::ApplyRopeStreamRequest>(
                       unary, bytes, Ends(sizes, elements, &random)),
                   &rotated);
        ASSERT_TRUE(status.ok()) << status.error_message();
        EXPECT_EQ(rotated, expected.q().data() + expected.k().data());
      }
    }
  }
  ExpectNothingInFlight();
}

TEST_F(RotationStreamTest, AnyCutOfAnyRepositionHasTheBytesOfTheUnaryCall) {
  unsigned seed = 1000;
  for (const v1::Layout layout : kLayouts) {
    for (const auto& [dtype, format, width] : AllKeys()) {
      for (const int target : {0, 1, 2}) {
        SCOPED_TRACE(absl::StrCat(
            v1::Layout_Name(layout), " ", v1::Dtype_Name(dtype), " ",
            v1::BlockFormat_Name(format), " ", target, " seed ", seed));
        Random random(seed++);
        const bool packed = layout == v1::LAYOUT_THD;
        const Extents extents = {packed ? 1 : 1 + Below(3, &random),
                                 1 + Below(40, &random)};
        v1::RepositionRequest unary;
        SetRope(kWhole, unary.mutable_old_rope()->mutable_spec());
        unary.set_layout(layout);
        unary.set_saturation(dtype == v1::DTYPE_INT8 ? v1::SATURATION_FINITE
                                                     : v1::SATURATION_NONE);
        unary.set_block_format(format);
        v1::Movement* const movement = unary.mutable_movement();
        std::vector<v1::Tensor*> ids;
        if (target > 0) {
          ids.push_back(movement->mutable_old_positions()->mutable_ids());
        }
        if (target == 0) movement->set_shift(-17);
        if (target == 1) {
          ids.push_back(movement->mutable_new_positions()->mutable_ids());
        }
        if (target == 2) ids.push_back(movement->mutable_shifts());
        std::vector<std::size_t> sizes, elements;
        for (v1::Tensor* const each : ids) {
          SetIds(extents, 1, !packed, &random, each);
          sizes.push_back(each->data().size());
          elements.push_back(4);
        }
        Fill(dtype, Shape(layout, extents, kHeads, width), &random,
             unary.mutable_k());
        sizes.push_back(unary.k().data().size());
        elements.push_back(wire::ElementBytes(dtype));
        v1::RepositionResponse expected;
        const grpc::Status whole = Call(&Stub::Reposition, unary, &expected);
        ASSERT_TRUE(whole.ok()) << whole.error_message();
        const std::string bytes = TakeData(&unary, true);
        std::string rotated;
        const grpc::Status status =
            Stream(StreamOf<v1::RepositionStreamRequest>(
                       unary, bytes, Ends(sizes, elements, &random)),
                   &rotated);
        ASSERT_TRUE(status.ok()) << status.error_message();
        EXPECT_EQ(rotated, expected.k().data());
      }
    }
  }
}

// Returns a call with q [1, 3, 2, 4] of float32, and k with half of the heads,
// from position 7 on; with `ids`, the positions are int32.
v1::ApplyRopeRequest Small(bool ids) {
  v1::ApplyRopeRequest call;
  call.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  call.set_layout(v1::LAYOUT_BSHD);
  if (ids) {
    SetTensor(v1::DTYPE_INT32, {3}, std::vector<std::int32_t>{7, 8, 9},
              call.mutable_positions()->mutable_ids());
  } else {
    call.mutable_positions()->set_start(7);
  }
  SetTensor(v1::DTYPE_FLOAT32, {1, 3, 2, 4}, std::vector<float>(24, 1),
            call.mutable_q());
  SetTensor(v1::DTYPE_FLOAT32, {1, 3, 1, 4}, std::vector<float>(12, 1),
            call.mutable_k());
  return call;
}

TEST_F(RotationStreamTest,
       ALargeMessageIsAnsweredInPiecesOfTheRecommendedSize) {
  v1::ApplyRopeRequest call = Small(false);
  call.clear_k();
  SetTensor(v1::DTYPE_FLOAT32, {1, 20480, 1, 128},
            std::vector<float>(20480 * 128, 1), call.mutable_q());  // 10 MiB
  v1::ApplyRopeResponse expected;
  ASSERT_TRUE(Apply(call, &expected).ok());
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  const auto stream = stub_->ApplyRopeStream(&context);
  stream->Write(
      StreamInPieces<v1::ApplyRopeStreamRequest>(call, 16 << 20).front());
  stream->WritesDone();
  std::string bytes;
  for (v1::ApplyRopeStreamResponse response; stream->Read(&response);) {
    EXPECT_LE(response.data().size(), (4u << 20) - (64u << 10));
    bytes += response.data();
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(bytes == expected.q().data());
}

TEST_F(RotationStreamTest, PositionsOfMoreTokensThanTheBudgetHoldsAreRefused) {
  Start(
      {.limits = {.max_request_bytes = 1 << 20, .in_flight_bytes = 64 << 20}});
  for (const bool ids : {false, true}) {
    SCOPED_TRACE(ids);
    v1::ApplyRopeRequest call = Small(ids);
    call.clear_k();
    call.mutable_q()->clear_data();
    call.mutable_q()->set_shape(1, 1 << 28);
    if (ids) {
      call.mutable_positions()->mutable_ids()->clear_data();
      call.mutable_positions()->mutable_ids()->set_shape(0, 1 << 28);
    }
    std::string bytes;
    const grpc::Status status =
        Stream(StreamOf<v1::ApplyRopeStreamRequest>(call, "", {0}), &bytes);
    EXPECT_EQ(status.error_code(), Status::RESOURCE_EXHAUSTED)
        << status.error_message();
    ExpectNothingInFlight();
  }
}

TEST_F(RotationStreamTest, ACallThatIsCancelledInTheMiddleLeavesNothing) {
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  const auto stream = stub_->ApplyRopeStream(&context);
  stream->Write(
      StreamInPieces<v1::ApplyRopeStreamRequest>(Small(true), 36).front());
  v1::ApplyRopeStreamResponse response;
  EXPECT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.data().size(), 32u);  // two heads, and a quarter is kept
  context.TryCancel();
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), Status::CANCELLED);
  ExpectNothingInFlight();
}

}  // namespace
}  // namespace posenc::server
