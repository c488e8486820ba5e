// Ten thousand random rotations: the bytes do not depend on instruction set,
// alignment, place in the batch, order of memory, or whether they are in place.
// rotate_test.cc says that they are right.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/simd/dispatch.h"
#include "gtest/gtest.h"
#include "tests/reference/float_formats.h"

namespace posenc::simd {
namespace {

constexpr int kJobs = 10000;
constexpr unsigned char kCanary = 0xa5;

// Memory of the exact size, so that sanitizers watch its end, and a canary in
// front of it. Aligned to a cache line but for `shift` bytes.
class Block {
 public:
  Block(std::size_t size, std::size_t shift)
      : size_(size),
        shift_(shift),
        memory_(static_cast<unsigned char*>(
            ::operator new (shift + size, std::align_val_t{64}))) {
    std::memset(memory_.get(), kCanary, shift + size);
  }
  unsigned char* data() const { return memory_.get() + shift_; }
  bool FrontIsUntouched() const {
    return std::all_of(memory_.get(), data(),
                       [](unsigned char c) { return c == kCanary; });
  }
  std::vector<unsigned char> bytes() const { return {data(), data() + size_}; }

 private:
  struct Free {
    void operator()(unsigned char* p) const {
      ::operator delete (p, std::align_val_t{64});
    }
  };
  std::size_t size_, shift_;
  std::unique_ptr<unsigned char, Free> memory_;
};

struct Shape {
  DtypeIndex dtype;
  PairingIndex in, out;
  std::size_t lines, tokens, heads, pairs, pass, gap;
  bool pass_in_front, row_for_each_head;

  std::size_t element() const {
    return dtype == kF64                     ? 8
           : dtype == kF32                   ? 4
           : dtype == kF16 || dtype == kBf16 ? 2
                                             : 1;
  }
  std::size_t width() const { return 2 * pairs + pass + gap; }
  std::size_t slices() const { return tokens * heads; }
  std::size_t bytes() const { return lines * slices() * width() * element(); }
  // Of the first slice, behind what passes in front of it.
  std::size_t first() const { return pass_in_front ? pass : 0; }
};

// How a shape is worked on; nothing of it may show in the bytes.
struct Way {
  const KernelTable* kernels;
  Memory memory;
  std::size_t pages;
  std::size_t src_shift, dst_shift;  // bytes
  bool in_place;
  std::size_t cut;  // tokens of a first job, the others have one of their own
};

class RandomJob {
 public:
  explicit RandomJob(unsigned seed) : random_(seed) {
    shape_.dtype = static_cast<DtypeIndex>(Below(8));
    shape_.in = static_cast<PairingIndex>(Below(2));
    shape_.out =
        Below(3) == 0 ? static_cast<PairingIndex>(Below(2)) : shape_.in;
    shape_.lines = 1 + Below(3);
    // Widths of models, and any other.
    constexpr std::size_t kWidths[] = {8, 16, 24, 32, 40, 48, 64, 128};
    shape_.pairs = Below(2) == 0 ? kWidths[Below(8)] : 1 + Below(70);
    // Often enough slices for groups of four pages, and seldom more.
    const std::size_t slices =
        1 + Below(Below(8) == 0 ? 20000 / shape_.pairs : 12);
    shape_.heads = 1 + Below(5);
    shape_.tokens = 1 + slices / shape_.heads;
    constexpr std::size_t kPasses[] = {0, 0, 16, 32, 64, 96, 3, 33};
    shape_.pass = kPasses[Below(8)];
    shape_.pass_in_front = Below(2) == 0;
    shape_.gap = Below(4) == 0 ? Below(9) : 0;
    shape_.row_for_each_head = Below(4) == 0;

    src_.resize(shape_.bytes());
    for (std::size_t i = 0; i < src_.size(); i += shape_.element()) {
      Element(src_.data() + i);
    }
    const std::size_t rows =
        shape_.tokens * (shape_.row_for_each_head ? shape_.heads : 1);
    const std::size_t values = rows * 2 * shape_.pairs;
    for (std::size_t i = 0; i < values; ++i) {
      const double x = std::cos(static_cast<double>(random_()));
      if (shape_.dtype == kF64) {
        Append(x);
      } else {
        Append(static_cast<float>(x));
      }
    }
  }

  const Shape& shape() const { return shape_; }

  Way RandomWay(const KernelTable* kernels) {
    Way way = {};
    way.kernels = kernels;
    way.memory = static_cast<Memory>(Below(3));
    way.pages = std::size_t{1} << Below(3);
    way.src_shift = Shift();
    way.dst_shift = Shift();
    way.in_place = shape_.in == shape_.out && Below(2) == 0;
    way.cut = Below(shape_.tokens + 1);
    return way;
  }

  // dst after the rotation. What is neither rotated nor copied is of src, as it
  // is after a rotation in place.
  std::vector<unsigned char> Run(const Way& way) const {
    const Block src(src_.size(), way.src_shift);
    const Block dst(src_.size(), way.dst_shift);
    std::memcpy(src.data(), src_.data(), src_.size());
    std::memcpy(dst.data(), src_.data(), src_.size());
    if (!way.in_place) Spoil(dst.data());
    RotateJob job = {};
    job.src = way.in_place ? dst.data() : src.data();
    job.dst = dst.data();
    Rotate(way, 0, way.cut, job);
    Rotate(way, way.cut, shape_.tokens - way.cut, job);
    EXPECT_TRUE(dst.FrontIsUntouched());
    EXPECT_EQ(src.bytes(), src_);
    return dst.bytes();
  }

  std::string Name(const Way& way) const {
    std::ostringstream out;
    out << way.kernels->name << " dtype " << shape_.dtype << " pairing "
        << shape_.in << " to " << shape_.out << " lines " << shape_.lines
        << " tokens " << shape_.tokens << " heads " << shape_.heads << " pairs "
        << shape_.pairs << " pass " << shape_.pass
        << (shape_.pass_in_front ? " in front" : " behind") << " gap "
        << shape_.gap << " memory " << static_cast<int>(way.memory) << " pages "
        << way.pages << " shifts " << way.src_shift << " " << way.dst_shift
        << (way.in_place ? " in place" : "") << " cut " << way.cut;
    return out.str();
  }

 private:
  std::size_t Below(std::size_t n) { return random_() % n; }
  std::size_t Shift() {
    return Below(2) == 0 ? 0 : Below(2) == 0 ? 1 + Below(63) : 16 * Below(4);
  }

  template <class T>
  void Append(T value) {
    const std::size_t at = table_.size();
    table_.resize(at + sizeof(T));
    std::memcpy(table_.data() + at, &value, sizeof(T));
  }

  // Numbers of all magnitudes: of 16 bits any pattern but the NaNs, whose
  // payloads are nobody's promise, and of 8 bits any at all. Subnormals and
  // zeros are more frequent than chance has them.
  void Element(unsigned char* to) {
    std::uint64_t bits = random_();
    const std::uint64_t kind = random_() % 16;
    const bool tiny = kind == 0, zero = kind == 1;
    switch (shape_.dtype) {
      case kF16:
        bits &= tiny ? 0x83ff : zero ? 0x8000 : 0xfbff;
        break;
      case kBf16:
        bits &= tiny ? 0x807f : zero ? 0x8000 : 0xff7f;
        break;
      case kF32:
        bits &= tiny ? 0x807fffff : zero ? 0x80000000 : 0xff7fffff;
        break;
      case kF64:
        bits &= tiny   ? 0x800fffffffffffff
                : zero ? 0x8000000000000000
                       : 0xffefffffffffffff;
        break;
      default:
        bits &= tiny ? 0x87 : zero ? 0x80 : 0xff;
        break;
    }
    std::memcpy(to, &bits, shape_.element());
  }

  // All that a rotation out of place must write.
  void Spoil(unsigned char* dst) const {
    const std::size_t size = shape_.element();
    for (std::size_t i = 0; i < shape_.lines * shape_.slices(); ++i) {
      std::memset(dst + i * shape_.width() * size, kCanary,
                  (2 * shape_.pairs + shape_.pass) * size);
    }
  }

  void Rotate(const Way& way, std::size_t token, std::size_t tokens,
              RotateJob job) const {
    const auto signed_of = [](std::size_t n) {
      return static_cast<std::ptrdiff_t>(n);
    };
    const std::size_t offset =
        (token * shape_.heads * shape_.width() + shape_.first()) *
        shape_.element();
    job.src = static_cast<const unsigned char*>(job.src) + offset;
    job.dst = static_cast<unsigned char*>(job.dst) + offset;
    job.lines = shape_.lines;
    job.tokens = tokens;
    job.heads = shape_.heads;
    job.pairs = shape_.pairs;
    job.src_stride = job.dst_stride = signed_of(shape_.width());
    job.src_line_stride = job.dst_line_stride =
        signed_of(shape_.slices() * shape_.width());
    const std::size_t row = 2 * shape_.pairs;
    const std::size_t rows = shape_.row_for_each_head ? shape_.heads : 1;
    const std::size_t real = shape_.dtype == kF64 ? 8 : 4;
    job.table = table_.data() + token * rows * row * real;
    job.table_token_stride = signed_of(rows * row);
    job.table_head_stride = shape_.row_for_each_head ? signed_of(row) : 0;
    job.table_sine_offset = signed_of(shape_.pairs);
    job.pass_offset = shape_.pass_in_front ? -signed_of(shape_.pass)
                                           : signed_of(2 * shape_.pairs);
    job.pass_width = shape_.pass;
    job.memory = way.memory;
    job.pages = way.pages;
    way.kernels->rotate[shape_.dtype][shape_.in][shape_.out](job);
  }

  std::mt19937 random_;
  Shape shape_;
  std::vector<unsigned char> src_, table_;
};

// By sixteenths, so that ctest may run them side by side.
class RandomJobsTest : public testing::TestWithParam<int> {};

TEST_P(RandomJobsTest, BytesDependOnTheNumbersAlone) {
  for (int i = GetParam(); i < kJobs; i += 16) {
    RandomJob job(static_cast<unsigned>(i));
    Way plain = {};
    plain.kernels = SupportedKernels().front();
    plain.memory = Memory::kCached;
    plain.pages = 1;
    const std::vector<unsigned char> expected = job.Run(plain);
    for (const KernelTable* kernels : SupportedKernels()) {
      for (int again = 0; again < 2; ++again) {
        const Way way = job.RandomWay(kernels);
        ASSERT_EQ(job.Run(way), expected) << i << ": " << job.Name(way);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sixteenths, RandomJobsTest, testing::Range(0, 16));

}  // namespace
}  // namespace posenc::simd
