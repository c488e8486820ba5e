#include "core/interpretation/formats/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/angle/wide.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/formats/gguf_format.h"
#include "core/interpretation/rope/rope_config.h"
#include "core/rope/scaling.h"

namespace posenc::core::interpretation {
namespace {

// Number of elements in rope.dimension_sections.
constexpr std::size_t kSections = 4;

// kLocalBase: architectures in which layers with a sliding window have base
// 10000 unless a key gives another base. kUnscaledSliding: architectures in
// which these layers are not scaled.
constexpr absl::string_view kLocalBase =
    "gemma3 gemma3n gemma4 gemma-embedding mimo2 modern-bert plamo3 step35";
constexpr absl::string_view kUnscaledSliding =
    "gemma3 gemma3n gemma4 gemma4-assistant gemma-embedding laguna mellum "
    "mimo2 "
    "olmo2 plamo3 step35";

// kReadsBetas: architectures whose loader reads yarn_beta_fast and
// yarn_beta_slow. kReadsFactors: architectures whose loader reads
// yarn_ext_factor and yarn_attn_factor. The converter writes the betas for
// every architecture; the common loader reads none of these keys.
constexpr absl::string_view kReadsBetas = "deepseek4 grok laguna mistral3";
constexpr absl::string_view kReadsFactors = "grok laguna";

// Architectures, other than DeepSeek's, for which the converter writes a tenth
// of mscale_all_dim as yarn_log_multiplier. The loader of these architectures
// divides the value by 0.1.
constexpr absl::string_view kTenthOfMultiplier = "mistral4";

// Architectures whose loader reads rope.scaling.alpha: base * alpha^(d / (d -
// 2)), for the width d of a head.
constexpr absl::string_view kReadsAlpha = "hunyuan_vl hunyuan-dense";

// kFullFactors: architectures whose layers with a sliding window use no
// factors. kWidestFactors: architectures whose tensor of factors has a value
// for each pair of the widest layer. Narrower layers use the first values.
constexpr absl::string_view kFullFactors = "gemma4 laguna step35";
constexpr absl::string_view kWidestFactors = "laguna step35";

constexpr const char* kFactors[] = {"rope_freqs.weight",
                                    "rope_factors_long.weight",
                                    "rope_factors_short.weight"};

// Architectures and the pairing of their rows.
struct GgufRow {
  absl::string_view architectures;  // separated by blanks
  GgufPairing pairing;
  bool if_sections = false;  // only for files that have sections
};
constexpr GgufRow kGgufRows[] = {
#include "gguf.inc"
};

struct Reads {
  const GgufFile& file;
  GgufRope* rope;
  absl::Status status = {};

  std::string Key(absl::string_view name) const { return rope->Key(name); }
  std::optional<double> Number(absl::string_view name) {
    const auto value = file.Number(Key(name), &status);
    if (value && !Holds<double>(name)) {
      Mistyped(name, "an integer", "a float32");
    }
    return value;
  }
  std::optional<std::string> Text(absl::string_view name) {
    return file.Text(Key(name), &status);
  }
  std::vector<double> Numbers(absl::string_view name) {
    return file.Numbers(Key(name), &status);
  }
  // Reads a width or length in [0, 2^31).
  std::optional<std::int64_t> Extent(absl::string_view name) {
    const auto value = file.Integer(Key(name), &status);
    if (value && (*value < 0 || *value >= std::int64_t{1} << 31)) {
      Fail(name, "is ", *value, "; it must be in [0, 2^31)");
      return std::nullopt;
    }
    if (value && !Holds<std::uint64_t>(name)) {
      Mistyped(name, Holds<double>(name) ? "a float" : "a signed integer",
               "a uint32");
    }
    return value;
  }
  template <typename T>
  bool Holds(absl::string_view name) const {
    return std::holds_alternative<T>(file.keys.at(Key(name)));
  }
  void Mistyped(absl::string_view name, const char* is, const char* wanted) {
    rope->mistyped.push_back({Key(name), is, wanted});
  }
  template <typename... Facts>
  void Fail(absl::string_view name, const Facts&... facts) {
    status.Update(Malformed("key ", Key(name), " ", facts...));
  }
};

void ReadShape(Reads* reads, GgufRope* rope) {
  rope->context_length = reads->Extent("context_length");
  rope->block_count = reads->Extent("block_count");
  rope->embedding_length = reads->Extent("embedding_length");
  // In some files this key has a number for each layer. The number of layer 0
  // counts.
  const std::vector<double> heads = reads->Numbers("attention.head_count");
  if (!heads.empty() && heads[0] >= 1 && heads[0] < 0x1p31) {
    rope->head_count = static_cast<std::int64_t>(heads[0]);
  }
  const auto listed = reads->file.keys.find(reads->Key("attention.head_count"));
  if (rope->block_count && listed != reads->file.keys.end() &&
      std::holds_alternative<std::vector<double>>(listed->second) &&
      heads.size() != static_cast<std::size_t>(*rope->block_count)) {
    reads->Fail("attention.head_count", "has ", heads.size(),
                " elements, and block_count is ", *rope->block_count,
                "; llama.cpp refuses that");
  }
  rope->key_length = reads->Extent("attention.key_length");
  rope->key_length_swa = reads->Extent("attention.key_length_swa");
  rope->sliding_window = reads->Extent("attention.sliding_window");
  rope->dimension_count = reads->Extent("rope.dimension_count");
  rope->dimension_count_swa = reads->Extent("rope.dimension_count_swa");
  if (rope->architecture == "step35" && rope->dimension_count) {
    // Step 3.5's layers with full attention rotate half of dimension_count.
    if (!rope->dimension_count_swa) {
      rope->dimension_count_swa = rope->dimension_count;
    }
    *rope->dimension_count /= 2;
  }
}

void ReadScaling(Reads* reads, GgufRope* rope) {
  rope->freq_base = reads->Number("rope.freq_base");
  rope->freq_base_swa = reads->Number("rope.freq_base_swa");
  rope->scaling_type = reads->Text("rope.scaling.type");
  rope->factor = reads->Number("rope.scaling.factor");
  if (!rope->factor) rope->factor = reads->Number("rope.scale_linear");
  rope->original_context_length =
      reads->Extent("rope.scaling.original_context_length");
  rope->attn_factor = reads->Number("rope.scaling.attn_factor");
  rope->yarn_log_multiplier = reads->Number("rope.scaling.yarn_log_multiplier");
  const bool is_unknown =
      PairingOf(rope->architecture, false) == GgufPairing::kUnknown;
  if (is_unknown || IsAmong(rope->architecture, kReadsFactors)) {
    rope->yarn_ext_factor = reads->Number("rope.scaling.yarn_ext_factor");
    rope->yarn_attn_factor = reads->Number("rope.scaling.yarn_attn_factor");
  }
  if (is_unknown || IsAmong(rope->architecture, kReadsBetas)) {
    rope->yarn_beta_fast = reads->Number("rope.scaling.yarn_beta_fast");
    rope->yarn_beta_slow = reads->Number("rope.scaling.yarn_beta_slow");
  }
  if (IsAmong(rope->architecture, kReadsAlpha)) {
    rope->alpha = reads->Number("rope.scaling.alpha");
  }
  for (const auto& [name, base] :
       {std::pair("rope.freq_base", rope->freq_base),
        std::pair("rope.freq_base_swa", rope->freq_base_swa)}) {
    if (base && !(*base > 1)) {
      reads->Fail(name, "is ", PlainNumber(*base), "; it must be > 1");
    }
  }
  // llama.cpp treats a factor of 0 as absent.
  if (rope->factor && *rope->factor == 0) rope->factor.reset();
  if (rope->factor && !(*rope->factor > 0)) {
    reads->Fail("rope.scaling.factor", "is ", PlainNumber(*rope->factor),
                "; it must be > 0");
  }
  const std::string type = rope->ScalingType();
  if (!IsAmong(type, "none linear yarn longrope")) {
    reads->Fail("rope.scaling.type", "is \"", type.substr(0, 40),
                "\"; known are none, linear, yarn, longrope");
  }
}

double Amplitude(const GgufRope& gguf, double factor) {
  const double multiplier = gguf.attn_factor.value_or(1);
  const double ext = gguf.yarn_ext_factor.value_or(-1);
  // With a ramp, llama.cpp replaces yarn_attn_factor.
  if (gguf.ScalingType() != "yarn" || ext == 0) {
    return multiplier * gguf.yarn_attn_factor.value_or(1);
  }
  Wide amplitude = YarnMscale(factor, 1);
  double m = gguf.yarn_log_multiplier.value_or(0);
  if (IsAmong(gguf.architecture, kTenthOfMultiplier)) {
    // The file has m / 10 as a float32. The rounding restores m's decimals.
    m = std::round(m * 1e6) / 1e5;
  }
  if (m != 0) {
    amplitude = absl::StartsWith(gguf.architecture, "deepseek")
                    ? 1
                    : amplitude / YarnMscale(factor, m);
  }
  return (amplitude * multiplier).high;
}

// Returns an error for factors that llama.cpp refuses, or that are fewer than
// the n pairs of a layer.
absl::Status CheckFactors(const GgufRope& gguf, std::size_t n) {
  const std::size_t pairs = gguf.FactorCount();
  for (const auto& [name, factors] :
       {std::pair(kFactors[0], &gguf.rope_freqs),
        std::pair(kFactors[1], &gguf.factors_long),
        std::pair(kFactors[2], &gguf.factors_short)}) {
    if (factors->empty() || (factors->size() == pairs && pairs >= n)) continue;
    return Malformed("tensor ", name, " has ", factors->size(), " values, and ",
                     std::max(pairs, n),
                     " pairs turn; llama.cpp refuses the "
                     "file");
  }
  return absl::OkStatus();
}

// Adds assumptions about absent keys, for which llama.cpp has defaults, and
// about the layers that rotate.
void AddAssumptions(const GgufRope& gguf, bool sliding, ResolvedRope* rope) {
  if (const std::string without = gguf.LayersWithoutRope();
      !sliding && !without.empty()) {
    rope->assumptions.push_back(
        {"layers", "those that rotate",
         absl::StrCat("llama.cpp does not rotate ", without)});
  }
  if (gguf.pairing == GgufPairing::kUnknown) {
    rope->assumptions.push_back(
        {"pairing", "half_split",
         absl::StrCat("architecture ", gguf.architecture, " is not known")});
  }
  const bool is_local = sliding && IsAmong(gguf.architecture, kLocalBase);
  if (!(sliding && gguf.freq_base_swa) && (is_local || !gguf.freq_base)) {
    rope->assumptions.push_back(
        {gguf.Key(sliding ? "rope.freq_base_swa" : "rope.freq_base"), "10000",
         "absent; llama.cpp's default"});
  }
}

// Returns ggml's axis of pair i; 3 is the fourth axis.
int AxisOfPair(const std::vector<double>& sections, bool interleaved,
               std::int32_t i) {
  if (interleaved) return i < 3 * sections[i % 3] ? i % 3 : 3;
  int axis = 0;
  for (double end = sections[0]; axis < 3 && i >= end; end += sections[axis]) {
    ++axis;
  }
  return axis;
}

}  // namespace

GgufPairing PairingOf(const std::string& architecture, bool has_sections) {
  for (const GgufRow& row : kGgufRows) {
    if ((has_sections || !row.if_sections) &&
        IsAmong(architecture, row.architectures)) {
      return row.pairing;
    }
  }
  return absl::StartsWith(architecture, "rwkv") ||
                 absl::StartsWith(architecture, "nemotron_h")
             ? GgufPairing::kNone
             : GgufPairing::kUnknown;
}

std::int64_t GgufRope::HeadDim() const {
  if (key_length && *key_length > 0) return *key_length;
  if (embedding_length && head_count && *head_count > 0) {
    return *embedding_length / *head_count;
  }
  return 0;
}

std::int64_t GgufRope::RotaryDim() const {
  return dimension_count ? *dimension_count : HeadDim();
}

double GgufRope::Base() const {
  const double base = freq_base.value_or(10000);
  const auto d = static_cast<double>(HeadDim());
  if (!(alpha.value_or(0) > 0) || d <= 2) return base;
  return base * std::pow(*alpha, d / (d - 2));
}

double GgufRope::SlidingBase() const {
  if (freq_base_swa) return *freq_base_swa;
  return IsAmong(architecture, kLocalBase) ? 10000 : Base();
}

std::size_t GgufRope::FactorCount() const {
  const std::int64_t full = RotaryDim();
  const bool widest = IsAmong(architecture, kWidestFactors);
  return static_cast<std::size_t>(
             widest ? std::max(full, dimension_count_swa.value_or(0)) : full) /
         2;
}

std::string GgufRope::Key(absl::string_view name) const {
  return absl::StrCat(architecture, ".", name);
}

std::string GgufRope::Describe() const {
  std::string text =
      absl::StrCat("base ", PlainNumber(Base()), freq_base ? "" : " (absent)",
                   ", ", RotaryDim(), " channels");
  if (factor || scaling_type) {
    absl::StrAppend(&text, ", ", ScalingType());
    if (factor) absl::StrAppend(&text, " by ", PlainNumber(*factor));
  }
  if (!rope_freqs.empty()) absl::StrAppend(&text, ", rope_freqs");
  if (!factors_long.empty()) absl::StrAppend(&text, ", long and short factors");
  return text;
}

bool IsFactorTensor(absl::string_view name) {
  return std::find(std::begin(kFactors), std::end(kFactors), name) !=
         std::end(kFactors);
}

absl::Status SetFactors(absl::string_view name, std::vector<double> values,
                        GgufRope* rope) {
  for (const double f : values) {
    if (!(f > 0 && std::isfinite(f))) {
      return Malformed("tensor ", name, " has a value ", PlainNumber(f),
                       "; factors are finite and > 0");
    }
  }
  (name == kFactors[0]   ? rope->rope_freqs
   : name == kFactors[1] ? rope->factors_long
                         : rope->factors_short) = std::move(values);
  return absl::OkStatus();
}

absl::StatusOr<GgufRope> ReadGgufRope(const GgufFile& file,
                                      const ByteSource& source) {
  GgufRope rope;
  absl::Status status;
  rope.architecture = file.Text("general.architecture", &status).value_or("");
  RETURN_IF_ERROR(status);
  if (rope.architecture.empty()) {
    return Malformed(
        "key general.architecture is missing; nothing says what the other "
        "keys are called");
  }
  Reads reads{file, &rope};
  ReadShape(&reads, &rope);
  ReadScaling(&reads, &rope);
  rope.sections = reads.Numbers("rope.dimension_sections");
  const auto given = file.keys.find(rope.Key("rope.dimension_sections"));
  if (given != file.keys.end() && !rope.sections.empty() &&
      !std::holds_alternative<std::vector<double>>(given->second)) {
    // In llama.cpp a single number applies to all sections.
    rope.sections.resize(kSections, rope.sections[0]);
  }
  rope.pairing = PairingOf(rope.architecture, !rope.sections.empty());
  rope.rope_pattern = reads.Numbers("attention.rope_pattern");
  if (rope.HasSwitch()) {
    rope.rotates = file.Flag(rope.Key("rope.scaling.finetuned"), &reads.status)
                       .value_or(true);
  }
  const std::int64_t head = rope.HeadDim();
  if (rope.dimension_count && head > 0 && *rope.dimension_count != head &&
      IsAmong(rope.architecture, "llama llama-embed deci falcon")) {
    reads.Fail("rope.dimension_count", "is ", *rope.dimension_count,
               ", and a head has ", head,
               " channels; llama.cpp refuses that for ", rope.architecture);
  }
  RETURN_IF_ERROR(reads.status);
  for (const char* name : kFactors) {
    const GgufTensor* const tensor = file.FindTensor(name);
    if (tensor == nullptr) continue;
    for (std::size_t i = 1; i < tensor->shape.size(); ++i) {
      if (tensor->shape[i] == 1) continue;
      return Malformed("tensor ", name,
                       " has more than one row; llama.cpp "
                       "wants a value for each pair and refuses the file");
    }
    ASSIGN_OR_RETURN(std::vector<double> values,
                     ReadGgufTensor(source, *tensor));
    RETURN_IF_ERROR(SetFactors(name, std::move(values), &rope));
  }
  return rope;
}

absl::StatusOr<ResolvedRope> ResolveGguf(const GgufRope& gguf,
                                         std::int64_t length, bool sliding) {
  RopeSpec spec;
  std::int64_t head = gguf.HeadDim();
  std::int64_t d = gguf.RotaryDim();
  double base = gguf.Base();
  const bool has_sliding = gguf.sliding_window.value_or(0) > 0 ||
                           gguf.key_length_swa || gguf.dimension_count_swa ||
                           gguf.freq_base_swa;
  sliding = sliding && has_sliding;
  if (sliding) {
    base = gguf.SlidingBase();
    if (gguf.key_length_swa) head = *gguf.key_length_swa;
    if (gguf.dimension_count_swa) d = *gguf.dimension_count_swa;
  }
  if (d == 0 && !gguf.dimension_count) {
    return Malformed("keys ", gguf.Key("rope.dimension_count"), ", ",
                     gguf.Key("attention.key_length"), " and ",
                     gguf.Key("attention.head_count"), " or ",
                     gguf.Key("embedding_length"),
                     " are missing or 0; nothing says the width of a head");
  }
  if (d <= 0 || d % 2 != 0 || d > kMaxRotaryDim) {
    return Malformed(
        "key ",
        gguf.Key(gguf.dimension_count ? "rope.dimension_count"
                 : gguf.key_length    ? "attention.key_length"
                                      : "embedding_length"),
        gguf.dimension_count || gguf.key_length ? " is " : " gives heads of ",
        d, "; it must be even and in [2, ", kMaxRotaryDim, "]");
  }
  const std::size_t n = static_cast<std::size_t>(d) / 2;
  const bool scaled =
      !(sliding && IsAmong(gguf.architecture, kUnscaledSliding));
  const std::string type = scaled ? gguf.ScalingType() : "none";
  const double factor = type == "none" ? 1 : gguf.factor.value_or(1);
  const std::int64_t original =
      gguf.original_context_length.value_or(gguf.context_length.value_or(0));
  const bool has_factors =
      !(sliding && IsAmong(gguf.architecture, kFullFactors));
  RETURN_IF_ERROR(CheckFactors(gguf, has_factors ? n : 0));
  const std::vector<double>& f = !gguf.rope_freqs.empty() ? gguf.rope_freqs
                                 : original > 0 && length > original
                                     ? gguf.factors_long
                                     : gguf.factors_short;
  const bool yarn = type == "yarn" && factor != 1;
  const double ext =
      gguf.yarn_ext_factor.value_or(-1) < 0 ? 1 : *gguf.yarn_ext_factor;
  RampBounds ramp;
  if (yarn && original > 0) {
    ramp = YarnRampBounds({.original_max_position_embeddings = original,
                           .beta_fast = gguf.yarn_beta_fast,
                           .beta_slow = gguf.yarn_beta_slow},
                          base, static_cast<std::int32_t>(n));
  }
  ExplicitFrequencies frequencies;
  const std::vector<Wide> powers =
      Powers(Exp(-Log(base) / static_cast<double>(n)), n);
  for (std::size_t i = 0; i < n; ++i) {
    const Wide w = powers[i] / (has_factors && !f.empty() ? f[i] : 1);
    Wide scaled_w = w / factor;
    if (yarn && original > 0) {
      const Wide share = (Wide(static_cast<double>(i)) - ramp.low) /
                         std::max(0.001, ramp.high - ramp.low);
      const Wide mix = (1 - std::clamp(share, Wide(0), Wide(1))) * ext;
      scaled_w = scaled_w * (1 - mix) + w * mix;
    }
    frequencies.values.push_back(scaled_w.high);
  }
  spec.rotary_dim = static_cast<std::int32_t>(d);
  spec.pairing = gguf.pairing == GgufPairing::kInterleaved
                     ? Pairing::kInterleaved
                     : Pairing::kHalfSplit;
  spec.scaling = frequencies;
  spec.attention_factor = scaled ? Amplitude(gguf, factor) : 1;
  absl::StatusOr<ResolvedRope> rope = ResolveSpec(
      spec, std::max(head, d), std::nullopt, MissingLength::kAssumeOriginal);
  if (rope.ok()) AddAssumptions(gguf, sliding, &*rope);
  return rope;
}

absl::Status SetGgufAxes(const GgufRope& gguf, ResolvedRope* rope) {
  const bool interleaved = gguf.pairing == GgufPairing::kInterleavedSections;
  if (!interleaved && gguf.pairing != GgufPairing::kSections) {
    return absl::OkStatus();
  }
  const auto fail = [&gguf](const auto&... facts) {
    return Malformed("key ", gguf.Key("rope.dimension_sections"), " ",
                     facts...);
  };
  if (gguf.sections.empty()) {
    return fail(
        "is absent or empty, and llama.cpp wants 4 "
        "elements for ",
        gguf.architecture, " and refuses the file");
  }
  if (gguf.sections.size() != kSections) {
    return fail("has ", gguf.sections.size(),
                " elements; llama.cpp wants 4 and refuses the "
                "file: the fourth is 0 for text and images");
  }
  const auto pairs = static_cast<std::int32_t>(rope->inv_freq.size());
  double sum = 0;
  for (const double section : gguf.sections) {
    if (!(section >= 0 && section <= pairs) || section != std::floor(section)) {
      return fail("has an element ", PlainNumber(section),
                  "; sections are numbers of pairs");
    }
    sum += section;
  }
  if (gguf.sections[0] + gguf.sections[1] + gguf.sections[2] == 0) {
    return fail(
        "gives none of the first three axes a pair, and ggml stops on that");
  }
  // After the last section ggml begins again with the first one, which
  // RotaryAxes cannot express.
  if (!interleaved && sum < pairs) {
    return fail("gives ", PlainNumber(sum), " of the ", pairs,
                " pairs an axis");
  }
  RotaryAxes axes = {.assignment = interleaved ? AxisAssignment::kInterleaved
                                               : AxisAssignment::kSectioned,
                     .sections = std::vector<std::int32_t>(3)};
  for (std::int32_t i = 0; i < pairs; ++i) {
    int axis = AxisOfPair(gguf.sections, interleaved, i);
    if (axis == 3) {
      rope->inv_freq[i] = 0;
      axis = interleaved ? 0 : 2;
    }
    ++axes.sections[axis];
  }
  rope->spec.scaling = ExplicitFrequencies{.values = rope->inv_freq};
  rope->spec.axes = std::move(axes);
  return absl::OkStatus();
}

}  // namespace posenc::core::interpretation
