// The kernels, written once. Each kernels_<isa>.cc defines a struct Isa with
//   Arch                       xsimd's architecture
//   Load/StoreF16, LoadBf16    one batch of floats from or to 16-bit values
//   StoreHigh16                the upper halves of 32-bit words
//   RoundBf16                  floats to bfloat16, in the upper halves
// in its unnamed namespace and then includes this file. Nothing here may be
// visible outside, or depend on anything but xsimd and kernels.h: an inline
// function compiled for AVX-512 must never stand in for the baseline's.

#include "core/simd/kernels_angles.inl"
#include "core/simd/kernels_convert.inl"
#include "core/simd/kernels_rotate.inl"
#include "core/simd/kernels_trig.inl"

namespace posenc::simd {
namespace {

template <class Isa>
constexpr KernelTable MakeKernels(const char* name) {
  return {name,
          // In the order of DtypeIndex.
          {{{&Rotate<F32<Isa>, kHalf, kHalf>,
             &Rotate<F32<Isa>, kHalf, kInterleaved>},
            {&Rotate<F32<Isa>, kInterleaved, kHalf>,
             &Rotate<F32<Isa>, kInterleaved, kInterleaved>}},
           {{&Rotate<F16<Isa>, kHalf, kHalf>,
             &Rotate<F16<Isa>, kHalf, kInterleaved>},
            {&Rotate<F16<Isa>, kInterleaved, kHalf>,
             &Rotate<F16<Isa>, kInterleaved, kInterleaved>}},
           {{&Rotate<Bf16<Isa>, kHalf, kHalf>,
             &Rotate<Bf16<Isa>, kHalf, kInterleaved>},
            {&Rotate<Bf16<Isa>, kInterleaved, kHalf>,
             &Rotate<Bf16<Isa>, kInterleaved, kInterleaved>}},
           {{&Rotate<F64<Isa>, kHalf, kHalf>,
             &Rotate<F64<Isa>, kHalf, kInterleaved>},
            {&Rotate<F64<Isa>, kInterleaved, kHalf>,
             &Rotate<F64<Isa>, kInterleaved, kInterleaved>}}},
          &TrigRows<Isa, float>,
          &TrigRows<Isa, double>,
          &AddAngles<Isa>,
          &Widen<F16<Isa>>,
          &Widen<Bf16<Isa>>,
          &Narrow<F16<Isa>>,
          &Narrow<Bf16<Isa>>};
}

}  // namespace
}  // namespace posenc::simd
