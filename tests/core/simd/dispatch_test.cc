// Selection of kernels, and refused names of instruction sets.

#include "core/simd/dispatch.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fixtures/core/instruction_sets.h"

namespace posenc::simd {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(SelectKernelsTest, ServesEveryNameItLists) {
  ASSERT_FALSE(SupportedKernels().empty());
  for (const KernelTable* kernels : SupportedKernels()) {
    const auto selected = SelectKernels(kernels->name);
    ASSERT_TRUE(selected.ok()) << selected.status();
    EXPECT_EQ(*selected, kernels);
  }
}

TEST(SelectKernelsTest, TheBaselineIsAlwaysThere) {
  EXPECT_STREQ(SupportedKernels().front()->name,
               reference::kInstructionSets[0]);
}

TEST(SelectKernelsTest, NothingForcedIsTheFastest) {
  const auto selected = SelectKernels("");
  ASSERT_TRUE(selected.ok());
  EXPECT_EQ(*selected, SupportedKernels().back());
}

TEST(SelectKernelsTest, RejectsUnknownNames) {
  for (const char* name : {"avx10", "AVX2", "sse2 ", "avx2,sse2"}) {
    const auto selected = SelectKernels(name);
    ASSERT_EQ(selected.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(selected.status().message());
    EXPECT_THAT(message, StartsWith("POSENC_FORCE_ISA: \"" + std::string(name) +
                                    "\" is unknown; "));
    EXPECT_THAT(message, HasSubstr(std::string("supports ") +
                                   reference::kInstructionSets[0]));
    EXPECT_THAT(message, EndsWith(SupportedKernels().back()->name));
  }
}

TEST(SelectKernelsTest, RejectsInstructionSetsThatThisCpuLacks) {
  bool lacks_any = false;
  for (const std::string name : {"avx2", "avx512", "avx512_bf16"}) {
    bool supported = false;
    for (const KernelTable* kernels : SupportedKernels()) {
      supported = supported || name == kernels->name;
    }
    if (supported) continue;
    lacks_any = true;
    const auto selected = SelectKernels(name);
    ASSERT_EQ(selected.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(selected.status().message()),
                StartsWith("POSENC_FORCE_ISA: \"" + name +
                           "\" is not supported by this CPU"));
  }
  if (!lacks_any) GTEST_SKIP() << "this CPU has every instruction set";
}

TEST(SelectKernelsTest, TablesAreComplete) {
  for (const KernelTable* kernels : SupportedKernels()) {
    for (const auto& dtype : kernels->rotate) {
      for (const auto& in : dtype) {
        for (const RotateKernel kernel : in) EXPECT_NE(kernel, nullptr);
      }
    }
    EXPECT_NE(kernels->trig_row_f32, nullptr);
    EXPECT_NE(kernels->trig_row_f64, nullptr);
    EXPECT_NE(kernels->add_angles, nullptr);
    EXPECT_NE(kernels->add_angles_f64, nullptr);
    EXPECT_NE(kernels->end_streams, nullptr);
  }
}

}  // namespace
}  // namespace posenc::simd
