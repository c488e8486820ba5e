// The kernels, written once for all instruction sets. Each kernels_<isa>.cc
// defines a struct Isa in its unnamed namespace, and then includes this file.
// Isa has
//   Arch, Floats, Doubles, Words, Ints  the types of its base class Batches
//   kRegisters                 the number of vector registers
//   kConvertsBf16              true if there are instructions that convert to
//                              bfloat16; NarrowBf16, StoreTwoBf16 and
//                              StorePairsBf16 then use these instructions
//   SwapPairs                  y0 x0 y1 x1 from a vector x0 y0 x1 y1
//   NarrowDoubles              two batches of doubles as one batch of floats
//   LowWords                   the lower words of two batches of doubles
//   Load/StoreF16, LoadBf16    one batch of floats from or to 16-bit values
//   StoreHigh16                the upper halves of 32-bit words
//   UpperHalves, UpperPairs    upper halves of two batches, in one vector
//   StoreWords                 stores such a vector
//   TwoF16                     two batches of floats as one vector of float16
//   LoadBytes, StoreBytes      one batch of 32-bit words from or to bytes
//   Stream, StreamLine         non-temporal stores, if there are such stores
//   EndStreams                 orders streamed stores, if that is needed
// Isa may have
//   Bf16Rounding               rounds quickly, and says whether the result is
//                              right
//   LoadTwoBf16                two batches of floats from bfloat16
//   RoundBf16                  floats to bfloat16, in the upper halves
//   MulAdd, MulSub             products and sums that are rounded once
//   LoadHalves, StoreHalves    a vector of bytes from or to two places; for
//                              kernels_float8_slice.inl
//   Lanes, kAllLanes, HasAny, LesserMagnitudes, AllAtLeast  for
//                              kernels_doubt.inl
//
// The kernels must be invisible to other files, and depend only on xsimd and
// kernels.h. Otherwise code for the baseline could be linked with an inline
// function that was compiled for AVX-512.

#include "core/simd/kernels_angles.inl"
#include "core/simd/kernels_convert.inl"
#include "core/simd/kernels_float8.inl"
#include "core/simd/kernels_rotate.inl"
#include "core/simd/kernels_trig.inl"

namespace posenc::simd {
namespace {

template <class Dtype>
constexpr void SetDtype(DtypeIndex dtype, KernelTable* table) {
  auto& rotate = table->rotate[dtype];
  rotate[kHalf][kHalf] = &Rotate<Dtype, kHalf, kHalf>;
  rotate[kHalf][kInterleaved] = &Rotate<Dtype, kHalf, kInterleaved>;
  rotate[kInterleaved][kHalf] = &Rotate<Dtype, kInterleaved, kHalf>;
  rotate[kInterleaved][kInterleaved] =
      &Rotate<Dtype, kInterleaved, kInterleaved>;
  if constexpr (std::is_same_v<typename Dtype::Real, float>) {
    table->widen[dtype] = &Widen<Dtype>;
    table->narrow[dtype] = &Narrow<Dtype>;
  }
}

template <class Isa>
constexpr KernelTable MakeKernels(const char* name) {
  KernelTable table = {};
  table.name = name;
  SetDtype<F32<Isa>>(kF32, &table);
  SetDtype<F16<Isa>>(kF16, &table);
  SetDtype<Bf16<Isa>>(kBf16, &table);
  SetDtype<F64<Isa>>(kF64, &table);
  SetDtype<E4m3<Isa, false>>(kE4m3, &table);
  SetDtype<E4m3<Isa, true>>(kE4m3Finite, &table);
  SetDtype<E5m2<Isa, false>>(kE5m2, &table);
  SetDtype<E5m2<Isa, true>>(kE5m2Finite, &table);
  table.trig_row_f32 = &TrigRows<Isa, float>;
  table.trig_row_f64 = &TrigRowsF64<Isa>;
  table.add_angles = &AddAngles<Isa>;
  table.add_angles_f64 = &AddAnglesF64<Isa>;
  table.end_streams = &Isa::EndStreams;
  return table;
}

}  // namespace
}  // namespace posenc::simd
