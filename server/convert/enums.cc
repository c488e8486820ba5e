// Checks at compile time that enums have the same numbers in core and in the
// contract, because this directory casts one to the other. This file generates
// no code.

#include "core/absolute/add_encoding.h"
#include "core/base/error.h"
#include "core/base/tensor.h"
#include "core/doctor/doctor.h"
#include "core/interpretation/source.h"
#include "core/relative/bias.h"
#include "core/rope/cos_sin_evaluator.h"
#include "core/rope/spec.h"
#include "core/rope/table.h"
#include "core/rotation/apply.h"
#include "core/rotation/quantised_rows.h"
#include "posenc/v1/errors.pb.h"
#include "posenc/v1/service.pb.h"

namespace posenc::server {
namespace {

template <typename Core, typename Contract>
constexpr bool Same(Core core, Contract contract) {
  return static_cast<int>(core) == static_cast<int>(contract);
}

using core::Dtype;
static_assert(Same(Dtype::kFloat32, v1::DTYPE_FLOAT32));
static_assert(Same(Dtype::kFloat16, v1::DTYPE_FLOAT16));
static_assert(Same(Dtype::kBfloat16, v1::DTYPE_BFLOAT16));
static_assert(Same(Dtype::kFloat64, v1::DTYPE_FLOAT64));
static_assert(Same(Dtype::kInt32, v1::DTYPE_INT32));
static_assert(Same(Dtype::kInt64, v1::DTYPE_INT64));
static_assert(Same(Dtype::kFloat8E4m3fn, v1::DTYPE_FLOAT8_E4M3FN));
static_assert(Same(Dtype::kFloat8E5m2, v1::DTYPE_FLOAT8_E5M2));
static_assert(Same(Dtype::kInt8, v1::DTYPE_INT8));
static_assert(v1::Dtype_MAX == v1::DTYPE_INT8);

using core::doctor::InputKind;
static_assert(Same(InputKind::kConfig, v1::DESCRIPTION_KIND_CONFIG));
static_assert(Same(InputKind::kParams, v1::DESCRIPTION_KIND_PARAMS));
static_assert(Same(InputKind::kTokenizer, v1::DESCRIPTION_KIND_TOKENIZER));
static_assert(Same(InputKind::kGguf, v1::DESCRIPTION_KIND_GGUF));
static_assert(Same(InputKind::kSafetensors, v1::DESCRIPTION_KIND_SAFETENSORS));
static_assert(v1::DescriptionKind_MAX == v1::DESCRIPTION_KIND_SAFETENSORS);

using core::doctor::Severity;
static_assert(Same(Severity::kError, v1::SEVERITY_ERROR));
static_assert(Same(Severity::kWarning, v1::SEVERITY_WARNING));
static_assert(Same(Severity::kNote, v1::SEVERITY_NOTE));
static_assert(v1::Severity_MAX == v1::SEVERITY_NOTE);

using core::Saturation;
static_assert(Same(Saturation::kUnspecified, v1::SATURATION_UNSPECIFIED));
static_assert(Same(Saturation::kFinite, v1::SATURATION_FINITE));
static_assert(Same(Saturation::kNone, v1::SATURATION_NONE));
static_assert(v1::Saturation_MAX == v1::SATURATION_NONE);

using core::BlockFormat;
static_assert(Same(BlockFormat::kNone, v1::BLOCK_FORMAT_UNSPECIFIED));
static_assert(Same(BlockFormat::kQ8_0, v1::BLOCK_FORMAT_Q8_0));
static_assert(Same(BlockFormat::kQ4_0, v1::BLOCK_FORMAT_Q4_0));
static_assert(v1::BlockFormat_MAX == v1::BLOCK_FORMAT_Q4_0);

using core::Layout;
static_assert(Same(Layout::kBshd, v1::LAYOUT_BSHD));
static_assert(Same(Layout::kBhsd, v1::LAYOUT_BHSD));
static_assert(Same(Layout::kSbhd, v1::LAYOUT_SBHD));
static_assert(Same(Layout::kThd, v1::LAYOUT_THD));
static_assert(v1::Layout_MAX == v1::LAYOUT_THD);

using core::interpretation::Profile;
static_assert(Same(Profile::kHf, v1::PROFILE_HF));
static_assert(Same(Profile::kVllm, v1::PROFILE_VLLM));
static_assert(Same(Profile::kLlamaCpp, v1::PROFILE_LLAMA_CPP));
static_assert(Same(Profile::kGptOss, v1::PROFILE_GPT_OSS));
static_assert(Same(Profile::kDeepseek, v1::PROFILE_DEEPSEEK));
static_assert(Same(Profile::kMistral, v1::PROFILE_MISTRAL));
static_assert(Same(Profile::kMlx, v1::PROFILE_MLX));
static_assert(v1::Profile_MAX == v1::PROFILE_MLX);

using core::interpretation::ModelPart;
static_assert(Same(ModelPart::kUnspecified, v1::MODEL_PART_UNSPECIFIED));
static_assert(Same(ModelPart::kText, v1::MODEL_PART_TEXT));
static_assert(Same(ModelPart::kVision, v1::MODEL_PART_VISION));
static_assert(Same(ModelPart::kAudio, v1::MODEL_PART_AUDIO));
static_assert(Same(ModelPart::kIndexer, v1::MODEL_PART_INDEXER));
static_assert(v1::ModelPart_MAX == v1::MODEL_PART_INDEXER);

using core::Pairing;
static_assert(Same(Pairing::kUnspecified, v1::PAIRING_UNSPECIFIED));
static_assert(Same(Pairing::kHalfSplit, v1::PAIRING_HALF_SPLIT));
static_assert(Same(Pairing::kInterleaved, v1::PAIRING_INTERLEAVED));
static_assert(v1::Pairing_MAX == v1::PAIRING_INTERLEAVED);

using core::RotarySlice;
static_assert(Same(RotarySlice::kLeading, v1::ROTARY_SLICE_LEADING));
static_assert(Same(RotarySlice::kTrailing, v1::ROTARY_SLICE_TRAILING));
static_assert(v1::RotarySlice_MAX == v1::ROTARY_SLICE_TRAILING);

using core::AnglePrecision;
static_assert(Same(AnglePrecision::kExact, v1::ANGLE_PRECISION_EXACT));
static_assert(Same(AnglePrecision::kFloat32, v1::ANGLE_PRECISION_FLOAT32));
static_assert(v1::AnglePrecision_MAX == v1::ANGLE_PRECISION_FLOAT32);

using core::AxisAssignment;
using Axes = v1::RotaryAxes;
static_assert(Same(AxisAssignment::kUnspecified, Axes::ASSIGNMENT_UNSPECIFIED));
static_assert(Same(AxisAssignment::kSectioned, Axes::ASSIGNMENT_SECTIONED));
static_assert(Same(AxisAssignment::kInterleaved, Axes::ASSIGNMENT_INTERLEAVED));
static_assert(Same(AxisAssignment::kAlternatingTail,
                   Axes::ASSIGNMENT_ALTERNATING_TAIL));
static_assert(Same(AxisAssignment::kPerAxis, Axes::ASSIGNMENT_PER_AXIS));
static_assert(Axes::Assignment_MAX == Axes::ASSIGNMENT_PER_AXIS);

using core::Direction;
static_assert(Same(Direction::kForward, v1::DIRECTION_FORWARD));
static_assert(Same(Direction::kInverse, v1::DIRECTION_INVERSE));
static_assert(Same(Direction::kAdjoint, v1::DIRECTION_ADJOINT));
static_assert(v1::Direction_MAX == v1::DIRECTION_ADJOINT);

using core::TableLayout;
static_assert(Same(TableLayout::kHalf, v1::TABLE_LAYOUT_HALF));
static_assert(Same(TableLayout::kDuplicated, v1::TABLE_LAYOUT_DUPLICATED));
static_assert(Same(TableLayout::kPairRepeated, v1::TABLE_LAYOUT_PAIR_REPEATED));
static_assert(Same(TableLayout::kComplex, v1::TABLE_LAYOUT_COMPLEX));
static_assert(v1::TableLayout_MAX == v1::TABLE_LAYOUT_COMPLEX);

using core::SinusoidalOrder;
static_assert(Same(SinusoidalOrder::kUnspecified,
                   v1::SINUSOIDAL_ORDER_UNSPECIFIED));
static_assert(Same(SinusoidalOrder::kInterleaved,
                   v1::SINUSOIDAL_ORDER_INTERLEAVED));
static_assert(Same(SinusoidalOrder::kSinCos, v1::SINUSOIDAL_ORDER_SIN_COS));
static_assert(Same(SinusoidalOrder::kCosSin, v1::SINUSOIDAL_ORDER_COS_SIN));
static_assert(v1::SinusoidalOrder_MAX == v1::SINUSOIDAL_ORDER_COS_SIN);

using core::Combination;
static_assert(Same(Combination::kAdd, v1::COMBINATION_ADD));
static_assert(Same(Combination::kMultiply, v1::COMBINATION_MULTIPLY));
static_assert(Same(Combination::kConcatenate, v1::COMBINATION_CONCATENATE));
static_assert(v1::Combination_MAX == v1::COMBINATION_CONCATENATE);

using core::KerpleKernel;
static_assert(Same(KerpleKernel::kUnspecified, v1::Kerple::KERNEL_UNSPECIFIED));
static_assert(Same(KerpleKernel::kLogarithmic, v1::Kerple::KERNEL_LOGARITHMIC));
static_assert(Same(KerpleKernel::kPower, v1::Kerple::KERNEL_POWER));
static_assert(v1::Kerple::Kernel_MAX == v1::Kerple::KERNEL_POWER);

using core::ErrorReason;
static_assert(Same(ErrorReason::kFieldRequired,
                   v1::ERROR_REASON_FIELD_REQUIRED));
static_assert(Same(ErrorReason::kFieldInvalid, v1::ERROR_REASON_FIELD_INVALID));
static_assert(Same(ErrorReason::kTensorSizeMismatch,
                   v1::ERROR_REASON_TENSOR_SIZE_MISMATCH));
static_assert(Same(ErrorReason::kShapeMismatch,
                   v1::ERROR_REASON_SHAPE_MISMATCH));
static_assert(Same(ErrorReason::kModelConfigInvalid,
                   v1::ERROR_REASON_MODEL_CONFIG_INVALID));
static_assert(Same(ErrorReason::kPresetUnknown,
                   v1::ERROR_REASON_PRESET_UNKNOWN));
static_assert(Same(ErrorReason::kPositionOutOfRange,
                   v1::ERROR_REASON_POSITION_OUT_OF_RANGE));
static_assert(Same(ErrorReason::kMessageTooLarge,
                   v1::ERROR_REASON_MESSAGE_TOO_LARGE));
static_assert(Same(ErrorReason::kOverloaded, v1::ERROR_REASON_OVERLOADED));
static_assert(Same(ErrorReason::kDraining, v1::ERROR_REASON_DRAINING));
static_assert(Same(ErrorReason::kNotRepositionable,
                   v1::ERROR_REASON_NOT_REPOSITIONABLE));
static_assert(Same(ErrorReason::kFieldUnknown, v1::ERROR_REASON_FIELD_UNKNOWN));
static_assert(Same(ErrorReason::kUnauthenticated,
                   v1::ERROR_REASON_UNAUTHENTICATED));
static_assert(Same(ErrorReason::kPermissionDenied,
                   v1::ERROR_REASON_PERMISSION_DENIED));
static_assert(Same(ErrorReason::kSharedMemoryUnavailable,
                   v1::ERROR_REASON_SHARED_MEMORY_UNAVAILABLE));
static_assert(Same(ErrorReason::kSharedMemoryCut,
                   v1::ERROR_REASON_SHARED_MEMORY_CUT));
static_assert(Same(ErrorReason::kNotRepeatable,
                   v1::ERROR_REASON_NOT_REPEATABLE));
static_assert(v1::ErrorReason_MAX == v1::ERROR_REASON_NOT_REPEATABLE);

}  // namespace
}  // namespace posenc::server
