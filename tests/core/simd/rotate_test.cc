// Rotations by each kernel against the rotation in long double, element by
// element; and bytes around the elements, which must stay.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "core/simd/dispatch.h"
#include "gtest/gtest.h"
#include "tests/fixtures/core/kernels.h"
#include "tests/reference/float_formats.h"

namespace posenc::simd {
namespace {

using reference::Format16;

// A job with its memory: tokens x heads slices with gaps between them, and
// buffers that end with the last slice.
struct Case {
  DtypeIndex dtype;
  PairingIndex in, out;
  std::size_t pairs;
  std::size_t tokens = 1;
  std::size_t heads = 1;
  std::size_t misalignment = 0;  // elements
  std::size_t gap = 0;           // elements between slices
  bool table_per_token = true;
  bool table_per_head = false;
};

bool IsFloat8(DtypeIndex dtype) { return dtype >= kE4m3; }
bool Is16(DtypeIndex dtype) { return dtype == kF16 || dtype == kBf16; }

std::size_t ElementBytes(DtypeIndex dtype) {
  return dtype == kF64 ? 8 : dtype == kF32 ? 4 : Is16(dtype) ? 2 : 1;
}

const reference::Format8& Format8Of(DtypeIndex dtype) {
  return dtype == kE4m3 || dtype == kE4m3Finite ? reference::kE4m3
                                                : reference::kE5m2;
}

using Bytes = std::vector<unsigned char>;

template <class T>
T Get(const unsigned char* bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}

double Decode(DtypeIndex dtype, const unsigned char* bytes, std::size_t index) {
  switch (dtype) {
    case kF32:
      return Get<float>(bytes, index);
    case kF64:
      return Get<double>(bytes, index);
    case kF16:
      return Decode16(reference::kFloat16, Get<std::uint16_t>(bytes, index));
    case kBf16:
      return Decode16(reference::kBfloat16, Get<std::uint16_t>(bytes, index));
    default:
      return Decode8(Format8Of(dtype), bytes[index]);
  }
}

void Encode(DtypeIndex dtype, double x, unsigned char* bytes,
            std::size_t index) {
  if (IsFloat8(dtype)) {
    bytes[index] = Encode8(Format8Of(dtype), x, false);
    return;
  }
  const float f = static_cast<float>(x);
  const std::uint16_t h =
      Encode16(dtype == kF16 ? reference::kFloat16 : reference::kBfloat16, x);
  const std::size_t size = ElementBytes(dtype);
  std::memcpy(bytes + index * size,
              dtype == kF64   ? static_cast<const void*>(&x)
              : dtype == kF32 ? static_cast<const void*>(&f)
                              : &h,
              size);
}

// Indices in a slice of the two elements of pair i.
std::size_t FirstOf(PairingIndex pairing, std::size_t, std::size_t i) {
  return pairing == kHalf ? i : 2 * i;
}
std::size_t SecondOf(PairingIndex pairing, std::size_t pairs, std::size_t i) {
  return pairing == kHalf ? i + pairs : 2 * i + 1;
}

class Data {
 public:
  Data(const Case& c, unsigned seed) : c_(c), random_(seed) {
    slice_ = 2 * c.pairs + c.gap;
    elements_ = slice_ * c.tokens * c.heads - c.gap;
    src_.resize((c.misalignment + elements_) * ElementBytes(c.dtype));
    for (std::size_t i = 0; i < c.misalignment + elements_; ++i) {
      Encode(c.dtype, Value(), src_.data(), i);
    }
    // Rows are one element farther apart than needed.
    row_ = 2 * c.pairs + 1;
    const std::size_t rows =
        (c.table_per_token ? c.tokens : 1) * (c.table_per_head ? c.heads : 1);
    const DtypeIndex real = c.dtype == kF64 ? kF64 : kF32;
    table_.resize((rows * row_ - 1) * ElementBytes(real));
    for (std::size_t i = 0; i < rows * row_ - 1; ++i) {
      Encode(real, Value(), table_.data(), i);
    }
  }

  void SetSource(std::size_t index, double x) {
    Encode(c_.dtype, x, src_.data(), c_.misalignment + index);
  }

  void SetSourceBits(std::size_t index, unsigned char byte, std::size_t size) {
    std::memset(src_.data() + (c_.misalignment + index) * size, byte, size);
  }

  // Returns dst after the rotation, with the canaries before the slices and in
  // the gaps.
  Bytes Run(const KernelTable& kernels, bool in_place) const {
    const std::size_t size = src_.size();
    // Arrays of the exact size, not vectors, so that sanitizers check their
    // ends.
    const std::unique_ptr<unsigned char[]> src(new unsigned char[size]);
    const std::unique_ptr<unsigned char[]> dst(new unsigned char[size]);
    std::memcpy(src.get(), src_.data(), size);
    std::memset(dst.get(), kCanary, size);
    unsigned char* const target = in_place ? src.get() : dst.get();
    const std::size_t offset = c_.misalignment * ElementBytes(c_.dtype);

    RotateJob job = {};
    job.src = src.get() + offset;
    job.dst = target + offset;
    job.tokens = c_.tokens;
    job.heads = c_.heads;
    job.pairs = c_.pairs;
    job.head_stride = static_cast<std::ptrdiff_t>(slice_);
    job.token_stride = static_cast<std::ptrdiff_t>(c_.heads * slice_);
    job.table = table_.data();
    job.table_token_stride = static_cast<std::ptrdiff_t>(TokenRows() * row_);
    job.table_head_stride =
        c_.table_per_head ? static_cast<std::ptrdiff_t>(row_) : 0;
    job.table_sine_offset = static_cast<std::ptrdiff_t>(c_.pairs);
    kernels.rotate[c_.dtype][c_.in][c_.out](job);
    if (!in_place) {
      EXPECT_EQ(std::memcmp(src.get(), src_.data(), size), 0);
    }
    return Bytes(target, target + size);
  }

  void ExpectRotated(const Bytes& dst) const {
    for (std::size_t token = 0; token < c_.tokens; ++token) {
      for (std::size_t head = 0; head < c_.heads; ++head) {
        const std::size_t slice =
            c_.misalignment + (token * c_.heads + head) * slice_;
        const std::size_t row =
            (token * TokenRows() + (c_.table_per_head ? head : 0)) * row_;
        for (std::size_t i = 0; i < c_.pairs; ++i) {
          const long double x = Source(slice + FirstOf(c_.in, c_.pairs, i));
          const long double y = Source(slice + SecondOf(c_.in, c_.pairs, i));
          const long double cosine = Table(row + i);
          const long double sine = Table(row + c_.pairs + i);
          ExpectSum(x * cosine, -(y * sine), dst,
                    slice + FirstOf(c_.out, c_.pairs, i));
          ExpectSum(x * sine, y * cosine, dst,
                    slice + SecondOf(c_.out, c_.pairs, i));
        }
      }
    }
  }

  // Ignores the gaps.
  void ExpectSameSlices(const Bytes& a, const Bytes& b) const {
    const std::size_t size = ElementBytes(c_.dtype);
    for (std::size_t i = 0; i < elements_; ++i) {
      if (i % slice_ >= 2 * c_.pairs) continue;
      const std::size_t at = (c_.misalignment + i) * size;
      ASSERT_EQ(std::memcmp(a.data() + at, b.data() + at, size), 0) << i;
    }
  }

  // Bytes before and between the slices must equal those of `untouched`, or the
  // canary if it is null.
  void ExpectGapsUntouched(const Bytes& dst, const Bytes* untouched) const {
    const std::size_t size = ElementBytes(c_.dtype);
    for (std::size_t i = 0; i < c_.misalignment + elements_; ++i) {
      const bool gap =
          i < c_.misalignment || (i - c_.misalignment) % slice_ >= 2 * c_.pairs;
      if (!gap) continue;
      for (std::size_t b = i * size; b < (i + 1) * size; ++b) {
        ASSERT_EQ(dst[b], untouched != nullptr ? (*untouched)[b] : kCanary);
      }
    }
  }

  const Bytes& src() const { return src_; }
  double Result(const Bytes& dst, std::size_t index) const {
    return Decode(c_.dtype, dst.data(), c_.misalignment + index);
  }

 private:
  static constexpr unsigned char kCanary = 0xa5;

  double Value() {
    return std::ldexp(static_cast<double>(random_() % 2000001) - 1e6,
                      -static_cast<int>(random_() % 8) - 18);
  }
  std::size_t TokenRows() const {
    return c_.table_per_token ? (c_.table_per_head ? c_.heads : 1) : 0;
  }
  double Source(std::size_t index) const {
    return Decode(c_.dtype, src_.data(), index);
  }
  double Table(std::size_t index) const {
    return Decode(c_.dtype == kF64 ? kF64 : kF32, table_.data(), index);
  }

  // dst[index] is a + b with each product and the sum rounded once in the
  // arithmetic's precision, and the result once more to 16 or 8 bits. No result
  // overflows.
  void ExpectSum(long double a, long double b, const Bytes& dst,
                 std::size_t index) const {
    const long double u = c_.dtype == kF64 ? 0x1p-53L : 0x1p-24L;
    // Sums are rounded relative to the computed value, which (1 + u) covers.
    // 2^-149 is the absolute error of subnormal products.
    const long double exact = a + b;
    const long double products = u * (std::fabs(a) + std::fabs(b));
    long double bound =
        products + u * (std::fabs(exact) + products) + 0x1p-149L;
    const double largest = static_cast<double>(std::fabs(exact) + bound);
    if (Is16(c_.dtype)) {
      bound += HalfUlp16(
          c_.dtype == kF16 ? reference::kFloat16 : reference::kBfloat16,
          largest);
    } else if (IsFloat8(c_.dtype)) {
      bound += HalfUlp8(Format8Of(c_.dtype), largest);
    }
    const double actual = Decode(c_.dtype, dst.data(), index);
    ASSERT_LE(std::fabs(actual - exact), bound)
        << "element " << index << " is " << actual << ", exactly "
        << static_cast<double>(exact);
  }

  const Case c_;
  std::mt19937 random_;
  std::size_t slice_, elements_, row_;
  Bytes src_, table_;
};

class RotateTest
    : public reference::KernelTest<std::tuple<const char*, DtypeIndex>> {
 protected:
  void Check(Case c) const {
    c.dtype = std::get<1>(GetParam());
    for (const PairingIndex in : {kHalf, kInterleaved}) {
      for (const PairingIndex out : {kHalf, kInterleaved}) {
        c.in = in;
        c.out = out;
        SCOPED_TRACE(testing::Message() << "pairs " << c.pairs << " pairing "
                                        << in << " to " << out << " misaligned "
                                        << c.misalignment << " gap " << c.gap);
        const Data data(c, static_cast<unsigned>(c.pairs));
        const Bytes dst = data.Run(*kernels_, false);
        data.ExpectRotated(dst);
        data.ExpectGapsUntouched(dst, nullptr);
        if (kernels_ != SupportedKernels().front()) {
          ASSERT_EQ(dst, data.Run(*SupportedKernels().front(), false));
        }
        if (in == out) {
          const Bytes in_place = data.Run(*kernels_, true);
          data.ExpectSameSlices(in_place, dst);
          data.ExpectGapsUntouched(in_place, &data.src());
        }
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_P(RotateTest, EveryWidthAtEveryAlignment) {
  // 67 pairs are four AVX-512 vectors of floats, and a tail.
  for (std::size_t pairs = 1; pairs <= 67; ++pairs) {
    for (const std::size_t misalignment : {0, 1, 3}) {
      Check({.pairs = pairs, .misalignment = misalignment});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(RotateTest, LargeWidths) {
  for (const std::size_t pairs : {128, 129, 2048}) Check({.pairs = pairs});
}

TEST_P(RotateTest, TokensAndHeadsWithGaps) {
  for (const std::size_t pairs : {1, 2, 5, 8, 13, 16, 32, 35}) {
    for (const bool per_token : {false, true}) {
      for (const bool per_head : {false, true}) {
        for (const std::size_t gap : {0, 1, 6}) {
          Check({.pairs = pairs,
                 .tokens = 3,
                 .heads = 4,
                 .misalignment = 1,
                 .gap = gap,
                 .table_per_token = per_token,
                 .table_per_head = per_head});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// For dtypes that have infinities and keep them; float8_test.cc covers the
// other dtypes.
class InfinityTest : public RotateTest {};

TEST_P(InfinityTest, NansAndInfinitiesStayInTheirPairs) {
  const DtypeIndex dtype = std::get<1>(GetParam());
  for (const PairingIndex pairing : {kHalf, kInterleaved}) {
    for (const std::size_t pairs : {3, 21, 64}) {
      const Case c = {
          .dtype = dtype, .in = pairing, .out = pairing, .pairs = pairs};
      const Bytes finite = Data(c, 7).Run(*kernels_, false);
      for (std::size_t special = 0; special < pairs; ++special) {
        // Encode() cannot make a NaN. Below, infinity - infinity makes one.
        Data data(c, 7);
        data.SetSource(FirstOf(pairing, pairs, special), INFINITY);
        data.SetSource(SecondOf(pairing, pairs, special), 0);
        const Bytes dst = data.Run(*kernels_, false);
        for (std::size_t i = 0; i < pairs; ++i) {
          const std::size_t first = FirstOf(pairing, pairs, i);
          const std::size_t second = SecondOf(pairing, pairs, i);
          if (i == special) {
            ASSERT_TRUE(std::isinf(data.Result(dst, first)));
            ASSERT_TRUE(std::isinf(data.Result(dst, second)));
          } else {
            ASSERT_EQ(data.Result(dst, first), data.Result(finite, first));
            ASSERT_EQ(data.Result(dst, second), data.Result(finite, second));
          }
        }
        // If both are infinite, either the difference or the sum has no value,
        // for any signs in the table.
        data.SetSource(SecondOf(pairing, pairs, special), INFINITY);
        const Bytes both = data.Run(*kernels_, false);
        const double x = data.Result(both, FirstOf(pairing, pairs, special));
        const double y = data.Result(both, SecondOf(pairing, pairs, special));
        ASSERT_NE(std::isnan(x), std::isnan(y));
      }
    }
  }
}

TEST_P(RotateTest, NanInputsMakeNanPairs) {
  const DtypeIndex dtype = std::get<1>(GetParam());
  const Case c = {
      .dtype = dtype, .in = kHalf, .out = kInterleaved, .pairs = 19};
  const std::size_t size = ElementBytes(dtype);
  for (std::size_t special = 0; special < c.pairs; ++special) {
    Data data(c, 8);
    // All bits below the sign are ones: wrong rounding carries this NaN into
    // another number.
    data.SetSourceBits(special, 0xff, size);
    const Bytes dst = data.Run(*kernels_, false);
    for (std::size_t i = 0; i < c.pairs; ++i) {
      ASSERT_EQ(std::isnan(data.Result(dst, 2 * i)), i == special);
      ASSERT_EQ(std::isnan(data.Result(dst, 2 * i + 1)), i == special);
    }
  }
}

TEST_P(RotateTest, EmptyJobsTouchNothing) {
  const DtypeIndex dtype = std::get<1>(GetParam());
  // Each slice has 64 elements, and its first 19 pairs are rotated.
  constexpr std::size_t kTokens = 3, kHeads = 2, kStride = 64, kPairs = 19;
  const std::size_t size = kTokens * kHeads * kStride * ElementBytes(dtype);
  // All slices use one row of cosines and sines.
  const Bytes src(size, 0x5a), table(kStride * 8, 0x3c), canaries(size, 0xa5);
  for (const PairingIndex in : {kHalf, kInterleaved}) {
    for (const PairingIndex out : {kHalf, kInterleaved}) {
      Bytes dst = canaries;
      RotateJob job = {};
      job.src = src.data();
      job.dst = dst.data();
      job.tokens = kTokens;
      job.heads = kHeads;
      job.pairs = kPairs;
      job.head_stride = kStride;
      job.token_stride = kHeads * kStride;
      job.table = table.data();
      job.table_sine_offset = kPairs;
      const RotateKernel rotate = kernels_->rotate[dtype][in][out];
      for (std::size_t RotateJob::*const extent :
           {&RotateJob::tokens, &RotateJob::heads, &RotateJob::pairs}) {
        RotateJob nothing = job;
        nothing.*extent = 0;
        rotate(nothing);
        EXPECT_EQ(dst, canaries);
      }
      // The same job with slices writes to dst.
      rotate(job);
      EXPECT_NE(dst, canaries);
    }
  }
}

std::string TestName(
    const testing::TestParamInfo<RotateTest::ParamType>& info) {
  constexpr const char* kDtypes[] = {"float32", "float16",    "bfloat16",
                                     "float64", "e4m3",       "e4m3_finite",
                                     "e5m2",    "e5m2_finite"};
  return std::string(std::get<0>(info.param)) + "_" +
         kDtypes[std::get<1>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(
    InstructionSets, RotateTest,
    testing::Combine(testing::ValuesIn(reference::kInstructionSets),
                     testing::Values(kF32, kF16, kBf16, kF64, kE4m3,
                                     kE4m3Finite, kE5m2, kE5m2Finite)),
    TestName);
INSTANTIATE_TEST_SUITE_P(
    InstructionSets, InfinityTest,
    testing::Combine(testing::ValuesIn(reference::kInstructionSets),
                     testing::Values(kF32, kF16, kBf16, kF64, kE5m2)),
    TestName);

}  // namespace
}  // namespace posenc::simd
