#include "client/tools/load/workload.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/tools/check/element.h"
#include "client/tools/check/random.h"
#include "client/tools/load/units.h"
#include "core/base/status_macros.h"
#include "posenc/wire/frame.h"

namespace posenc::load {
namespace {

constexpr const char* kRpcs[] = {"ApplyRope", "Reposition", "BuildTable",
                                 "AddEncoding", "ResolveRope"};

// The head_dim of most models, and the number of key heads of many models.
// These two numbers are used for ResolveRope, and for tensors without a given
// shape.
constexpr std::int64_t kHeadDim = 128;
constexpr std::int64_t kHeads = 8;
// Position of the first token, so far from 0 that the angles of all pairs
// except the slowest are large. Variants are a million positions apart, so that
// cached cosines and sines of one variant do not serve another variant.
constexpr std::int64_t kStart = 1000;
constexpr std::int64_t kVariantStep = 1 << 20;
constexpr std::int64_t kShift = -700;
constexpr std::size_t kPageBytes = 4096;
// A message of protobuf has at most 2 GiB - 1 bytes. All fields except the
// tensor take much less than 1 MiB.
constexpr std::int64_t kMaxTensorBytes = (std::int64_t{2} << 30) - (1 << 20);

// The places of a request's tensor and of its result in shared memory.
struct Places {
  v1::SharedMemory input, output;
};

// Fills a tensor with random elements in [-1, 1). With `places`, sets the
// tensor's place in shared memory instead of elements.
void FillTensor(v1::Dtype dtype, const std::vector<std::int64_t>& shape,
                check::Random* random, const Places* places,
                v1::Tensor* tensor) {
  tensor->set_dtype(dtype);
  tensor->mutable_shape()->Add(shape.begin(), shape.end());
  if (places != nullptr) {
    *tensor->mutable_shared() = places->input;
    return;
  }
  const std::int64_t elements = check::ElementCount(shape);
  std::string* const data = tensor->mutable_data();
  data->resize(static_cast<std::size_t>(elements) * wire::ElementBytes(dtype));
  for (std::int64_t i = 0; i < elements; ++i) {
    const auto bits = static_cast<std::int32_t>(random->Next() >> 32);
    check::SetElement(dtype, data->data(), i,
                      static_cast<float>(bits) * 0x1p-31f);
  }
}

v1::RopeSource Rope(const WorkloadOptions& options) {
  v1::RopeSource rope;
  if (options.preset.empty()) {
    rope.mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  } else {
    rope.set_preset(options.preset);
  }
  return rope;
}

// Returns the serialized request of `rpc`. `shape` is [B, S, H, D] and
// determines the rows or channels of RPCs without heads; it is empty for
// ResolveRope.
std::string Serialize(const WorkloadOptions& options, const std::string& rpc,
                      v1::Dtype dtype, const std::vector<std::int64_t>& shape,
                      int variant, const Places* places = nullptr) {
  check::Random random(options.seed + static_cast<std::uint64_t>(variant));
  const std::int64_t start = kStart + variant * kVariantStep;
  if (rpc == "ApplyRope") {
    v1::ApplyRopeRequest request;
    *request.mutable_rope() = Rope(options);
    request.mutable_positions()->set_start(start);
    request.set_layout(v1::LAYOUT_BSHD);
    if (check::IsFloat8(dtype)) request.set_saturation(v1::SATURATION_FINITE);
    FillTensor(dtype, shape, &random, places, request.mutable_q());
    if (places != nullptr) *request.mutable_q_output() = places->output;
    return request.SerializeAsString();
  }
  if (rpc == "Reposition") {
    v1::RepositionRequest request;
    *request.mutable_old_rope() = Rope(options);
    request.mutable_movement()->set_shift(kShift - variant);
    request.set_layout(v1::LAYOUT_BSHD);
    if (check::IsFloat8(dtype)) request.set_saturation(v1::SATURATION_FINITE);
    FillTensor(dtype, shape, &random, places, request.mutable_k());
    if (places != nullptr) *request.mutable_k_output() = places->output;
    return request.SerializeAsString();
  }
  if (rpc == "BuildTable") {
    v1::BuildTableRequest request;
    *request.mutable_rope() = Rope(options);
    if (options.preset.empty()) {
      request.mutable_rope()->mutable_spec()->set_rotary_dim(
          static_cast<std::int32_t>(shape[3]));
    }
    request.mutable_positions()->set_start(start);
    request.set_rows(shape[0] * shape[1] * shape[2]);
    request.set_dtype(dtype);
    return request.SerializeAsString();
  }
  if (rpc == "AddEncoding") {
    v1::AddEncodingRequest request;
    v1::Sinusoidal* const sinusoidal =
        request.mutable_encoding()->mutable_sinusoidal();
    sinusoidal->set_dim(static_cast<std::int32_t>(shape[2] * shape[3]));
    sinusoidal->set_order(v1::SINUSOIDAL_ORDER_INTERLEAVED);
    request.mutable_positions()->set_start(start);
    FillTensor(dtype, {shape[0], shape[1], shape[2] * shape[3]}, &random,
               places, request.mutable_x());
    if (places != nullptr) *request.mutable_x_output() = places->output;
    return request.SerializeAsString();
  }
  v1::ResolveRopeRequest request;
  *request.mutable_rope() = Rope(options);
  if (options.preset.empty()) {
    request.set_head_dim(static_cast<std::int32_t>(kHeadDim));
  }
  return request.SerializeAsString();
}

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

absl::StatusOr<std::vector<std::int64_t>> ShapeOf(std::int64_t size,
                                                  v1::Dtype dtype) {
  const auto element = static_cast<std::int64_t>(wire::ElementBytes(dtype));
  const std::int64_t rows = size / (element * kHeadDim);
  if (size % (element * kHeadDim) != 0 || rows == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--size: \"", BytesText(size), "\"; must be a multiple of ",
        element * kHeadDim, " bytes, one head of ", kHeadDim, " channels in ",
        check::DtypeName(dtype)));
  }
  // Takes 8 heads, or the largest smaller power of two that divides the rows.
  std::int64_t heads = kHeads;
  while (rows % heads != 0) heads /= 2;
  return std::vector<std::int64_t>{1, rows / heads, heads, kHeadDim};
}

}  // namespace

absl::StatusOr<std::vector<std::pair<std::string, double>>> ParseMix(
    const std::string& text) {
  std::vector<std::pair<std::string, double>> mix;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> pair = absl::StrSplit(part, ':');
    double weight = 1;
    const auto known = std::find_if(
        std::begin(kRpcs), std::end(kRpcs),
        [&](const char* rpc) { return absl::EqualsIgnoreCase(rpc, pair[0]); });
    if (pair.size() > 2 || known == std::end(kRpcs) ||
        (pair.size() == 2 && (!absl::SimpleAtod(pair[1], &weight) ||
                              !(weight > 0) || weight > 1e9))) {
      return InvalidText(text, absl::StrCat("RPC:WEIGHT,... with an RPC of ",
                                            absl::StrJoin(kRpcs, ", "),
                                            " and a weight above 0"));
    }
    for (const auto& [name, unused] : mix) {
      if (name == *known) {
        return InvalidText(text, absl::StrCat("without ", name, " twice"));
      }
    }
    mix.emplace_back(*known, weight);
  }
  return mix;
}

absl::StatusOr<std::vector<std::vector<std::int64_t>>> ParseShapes(
    const std::string& text) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    std::vector<std::int64_t> shape;
    bool valid = true;
    for (const absl::string_view extent : absl::StrSplit(part, 'x')) {
      std::int64_t value = 0;
      valid &= absl::SimpleAtoi(extent, &value) && value > 0;
      shape.push_back(value);
    }
    if (!valid || shape.size() != 4 || shape[3] % 2 != 0 ||
        check::ElementCount(shape) < 0) {
      return InvalidText(
          text, "BxSxHxD,... above 0 with an even D, such as 1x128x8x128");
    }
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

absl::StatusOr<std::vector<v1::Dtype>> ParseDtypes(const std::string& text) {
  std::vector<v1::Dtype> dtypes;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    v1::Dtype dtype;
    if (!v1::Dtype_Parse(absl::StrCat("DTYPE_", absl::AsciiStrToUpper(part)),
                         &dtype) ||
        (dtype != v1::DTYPE_FLOAT32 && dtype != v1::DTYPE_FLOAT16 &&
         dtype != v1::DTYPE_BFLOAT16 && dtype != v1::DTYPE_FLOAT64 &&
         !check::IsFloat8(dtype))) {
      return InvalidText(text,
                         "of float32, float16, bfloat16, float64, "
                         "float8_e4m3fn, float8_e5m2");
    }
    dtypes.push_back(dtype);
  }
  return dtypes;
}

absl::StatusOr<std::vector<Case>> BuildWorkload(
    const WorkloadOptions& options) {
  std::vector<Case> cases;
  for (const auto& share : options.mix) {
    const std::string& rpc = share.first;
    const double weight = share.second;
    const std::size_t first = cases.size();
    const auto add = [&](v1::Dtype dtype,
                         const std::vector<std::int64_t>& shape) {
      Case& added = cases.emplace_back();
      added.rpc = rpc;
      added.method = absl::StrCat("/posenc.v1.PositionalEncodingService/", rpc);
      added.name = rpc;
      added.dtype = dtype;
      added.shape = shape;
      if (!shape.empty()) {
        added.tensor_bytes =
            check::ElementCount(shape) *
            static_cast<std::int64_t>(wire::ElementBytes(dtype));
        absl::StrAppend(&added.name, " ", check::DtypeName(dtype), " ",
                        options.shapes.empty() ? BytesText(added.tensor_bytes)
                                               : absl::StrJoin(shape, "x"));
      }
      for (int v = 0; v < options.variants; ++v) {
        Request& request = added.requests.emplace_back();
        request.message = BufferOf(Serialize(options, rpc, dtype, shape, v));
        request.bytes = static_cast<std::int64_t>(request.message.Length());
      }
    };
    if (rpc == "ResolveRope") {
      add(v1::DTYPE_UNSPECIFIED, {});
    } else {
      for (const v1::Dtype dtype : options.dtypes) {
        if (check::IsFloat8(dtype) && rpc != "ApplyRope" &&
            rpc != "Reposition") {
          return absl::InvalidArgumentError(
              absl::StrCat("--dtype: ", rpc, " takes no ",
                           check::DtypeName(dtype), "; leave it out of --mix"));
        }
        std::vector<std::vector<std::int64_t>> shapes = options.shapes;
        if (shapes.empty()) {
          for (const std::int64_t size : options.sizes) {
            ASSIGN_OR_RETURN(auto shape, ShapeOf(size, dtype));
            shapes.push_back(std::move(shape));
          }
        }
        for (const std::vector<std::int64_t>& shape : shapes) {
          const std::int64_t elements = check::ElementCount(shape);
          if (elements > kMaxTensorBytes / static_cast<std::int64_t>(
                                               wire::ElementBytes(dtype))) {
            return absl::InvalidArgumentError(absl::StrCat(
                options.shapes.empty() ? "--size: " : "--shape: ",
                check::ShapeText(shape), " of ", check::DtypeName(dtype),
                " does not fit one message; must be at most ", kMaxTensorBytes,
                " bytes"));
          }
          add(dtype, shape);
        }
      }
    }
    for (std::size_t i = first; i < cases.size(); ++i) {
      cases[i].weight = weight / static_cast<double>(cases.size() - first);
    }
  }
  return cases;
}

absl::StatusOr<std::shared_ptr<SharedRegion>> ShareWorkload(
    const Client& client, const WorkloadOptions& options, bool in_place,
    int slots, std::vector<Case>* workload) {
  const auto shares = [](const Case& one) {
    return one.rpc != "ResolveRope" && one.rpc != "BuildTable";
  };
  std::size_t largest = 0;  // in whole pages, so that slots share no page
  for (const Case& one : *workload) {
    if (!shares(one)) continue;
    const auto bytes = static_cast<std::size_t>(one.tensor_bytes);
    largest =
        std::max(largest, (bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
  }
  const std::size_t of_slot = in_place ? largest : 2 * largest;
  ASSIGN_OR_RETURN(
      std::shared_ptr<SharedRegion> region,
      client.MakeRegion(of_slot * static_cast<std::size_t>(slots)));
  if (region->name().empty()) {
    return absl::FailedPreconditionError(
        "--shared-memory: the server shares no memory, or not with callers "
        "from here; see posencd --shared-memory-prefix");
  }
  Places places;
  places.input.set_name(region->name());
  places.output.set_name(region->name());
  for (Case& one : *workload) {
    if (!shares(one)) continue;
    const auto bytes = static_cast<std::size_t>(one.tensor_bytes);
    for (int v = 0; v < options.variants; ++v) {
      Request& request = one.requests[static_cast<std::size_t>(v)];
      // The elements of a tensor come last in a message.
      request.input = BytesOf(request.message);
      request.input.erase(0, request.input.size() - bytes);
      for (int slot = 0; slot < slots; ++slot) {
        const std::size_t in = of_slot * static_cast<std::size_t>(slot);
        const std::size_t out = in_place ? in : in + largest;
        places.input.set_offset(static_cast<std::int64_t>(in));
        places.output.set_offset(static_cast<std::int64_t>(out));
        const SlotRequest& added = request.slots.emplace_back(
            SlotRequest{BufferOf(Serialize(options, one.rpc, one.dtype,
                                           one.shape, v, &places)),
                        region->bytes().subspan(in, bytes),
                        region->bytes().subspan(out, bytes)});
        std::copy(request.input.begin(), request.input.end(),
                  added.input.begin());
      }
    }
  }
  return region;
}

std::string BytesOf(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  // Dump() fails only for compressed messages, which the channel does not
  // accept.
  if (!message.Dump(&slices).ok()) return bytes;
  bytes.reserve(message.Length());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

bool Equals(const grpc::ByteBuffer& message, const std::string& bytes) {
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok()) return false;
  std::size_t at = 0;
  for (const grpc::Slice& slice : slices) {
    if (slice.size() > bytes.size() - at ||
        std::memcmp(slice.begin(), bytes.data() + at, slice.size()) != 0) {
      return false;
    }
    at += slice.size();
  }
  return at == bytes.size();
}

}  // namespace posenc::load
