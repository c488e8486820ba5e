// posencd with each instruction set in turn.

#include <signal.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "posenc/client.h"
#include "tests/fixtures/core/tensor_bytes.h"
#include "tests/fixtures/posencd.h"

namespace posenc {
namespace {

using testing::Each;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

#if defined(__aarch64__)
constexpr char kBaseline[] = "neon";

bool Has(const std::string& isa) { return isa == kBaseline; }
#else
constexpr char kBaseline[] = "sse2";

bool Has(const std::string& isa) {
  if (isa == kBaseline) return true;
  if (isa == "avx2") {  // no CPU with AVX2 lacks F16C
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  }
  return __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") &&
         (isa == "avx512" || __builtin_cpu_supports("avx512bf16"));
}
#endif

const std::vector<std::int64_t> kShape = {1, 48, 8, 128};

// Returns all answers of the server, as bytes.
std::vector<std::string> Answers(const Client& client) {
  std::vector<std::string> out;
  std::mt19937 random(10);
  std::normal_distribution<float> normal;
  std::vector<float> wide(48 * 8 * 128);
  for (float& value : wide) value = normal(random);
  std::vector<std::uint16_t> narrow(wide.size());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, &wide[i], sizeof(bits));
    narrow[i] = static_cast<std::uint16_t>(bits >> 16);
  }
  ApplyRopeArgs args;
  args.rope = FromPreset("llama-3.1-8b");
  args.positions = StartAt((1 << 26) - 5);
  args.layout = v1::LAYOUT_BSHD;
  args.q = View(v1::DTYPE_FLOAT32, kShape, wide);
  args.k = View(v1::DTYPE_BFLOAT16, kShape, narrow);
  const auto rotated = client.ApplyRope(args);
  EXPECT_TRUE(rotated.ok()) << rotated.status();
  v1::BuildTableRequest request;
  *request.mutable_rope() = FromPreset("llama-3.1-8b");
  *request.mutable_positions() = StartAt(99999);
  request.set_rows(257);
  request.set_layout(v1::TABLE_LAYOUT_COMPLEX);
  const auto table = client.BuildTable(request);
  EXPECT_TRUE(table.ok()) << table.status();
  if (rotated.ok()) {
    out.push_back(AsString(rotated->q->bytes));
    out.push_back(AsString(rotated->k->bytes));
  }
  // Any bytes are numbers of FP8, or infinity or NaN.
  std::vector<std::uint8_t> bytes(wide.size());
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  args.q = View(v1::DTYPE_FLOAT8_E4M3FN, kShape, bytes);
  args.k = View(v1::DTYPE_FLOAT8_E5M2, kShape, bytes);
  args.saturation = v1::SATURATION_NONE;
  const auto eights = client.ApplyRope(args);
  EXPECT_TRUE(eights.ok()) << eights.status();
  if (eights.ok()) {
    out.push_back(AsString(eights->q->bytes));
    out.push_back(AsString(eights->k->bytes));
  }
  if (table.ok()) out.push_back(AsString(table->table->bytes));
  // Any bytes are numbers of int8, or blocks with any scale.
  RepositionArgs move;
  move.old_rope = args.rope;
  move.movement.set_shift(-70000);
  move.layout = v1::LAYOUT_BSHD;
  move.saturation = v1::SATURATION_FINITE;
  for (const auto& [format, width] :
       {std::pair{v1::BLOCK_FORMAT_UNSPECIFIED, 128},
        {v1::BLOCK_FORMAT_Q8_0, 4 * 34},
        {v1::BLOCK_FORMAT_Q4_0, 4 * 18}}) {
    std::vector<std::int8_t> quants(48 * 8 * width);
    for (std::int8_t& quant : quants) {
      quant = static_cast<std::int8_t>(random());
    }
    move.block_format = format;
    move.k = ViewOf(absl::MakeConstSpan(quants), {1, 48, 8, width});
    const auto moved = client.Reposition(move);
    EXPECT_TRUE(moved.ok()) << moved.status();
    if (moved.ok()) out.push_back(AsString(moved->tensor.bytes));
  }
  return out;
}

class InstructionSetTest : public server::BinaryTest,
                           public testing::WithParamInterface<const char*> {
 protected:
  // Returns all answers of a server with this instruction set.
  std::vector<std::string> AnswersWith(const std::string& isa) {
    server::Process process(Flags(), "POSENC_FORCE_ISA=" + isa);
    const Client client = Client::Connect({AwaitAddress()});
    const auto info = client.GetServerInfo();
    EXPECT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info.ok() ? info->instruction_set() : "", isa);
    std::vector<std::string> answers = Answers(client);
    process.Signal(SIGTERM);
    EXPECT_EQ(process.Wait(), 0);
    return answers;
  }
};

TEST_P(InstructionSetTest, AnswersWithTheSameBytesAsTheBaseline) {
  if (!Has(GetParam())) GTEST_SKIP() << "this CPU lacks " << GetParam();
  const std::vector<std::string> answers = AnswersWith(GetParam());
  ASSERT_THAT(answers, SizeIs(8));
  EXPECT_THAT(answers, Each(Not(IsEmpty())));
  // EXPECT_EQ would print megabytes.
  EXPECT_TRUE(answers == AnswersWith(kBaseline));
}

TEST_P(InstructionSetTest, OneThatTheCpuLacksIsAnErrorAtStart) {
  if (Has(GetParam())) GTEST_SKIP() << "this CPU has " << GetParam();
  server::Process process(Flags(),
                          std::string("POSENC_FORCE_ISA=") + GetParam());
  EXPECT_EQ(process.Wait(), 2);
}

INSTANTIATE_TEST_SUITE_P(, InstructionSetTest,
                         testing::Values(kBaseline, "avx2", "avx512",
                                         "avx512_bf16"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace posenc
