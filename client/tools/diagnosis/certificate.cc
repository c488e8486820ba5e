#include "client/tools/diagnosis/certificate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/tools/check/element.h"
#include "client/tools/check/rotated_heads.h"
#include "client/tools/diagnosis/doctor_files.h"
#include "client/tools/diagnosis/key_motion.h"
#include "client/tools/files/file.h"
#include "client/tools/files/safetensors.h"
#include "client/tools/files/status.h"
#include "client/tools/files/tensor_file.h"
#include "core/doctor/config_case.h"
#include "core/interpretation/claimed_length.h"
#include "core/interpretation/content_hash.h"
#include "core/interpretation/source.h"
#include "nlohmann/json.hpp"
#include "openssl/sha.h"

namespace posenc::cli {
namespace {

using core::PlainNumber;
using core::ResolvedRope;
using core::doctor::ConfigCase;
using core::doctor::DescribeRope;
using core::doctor::Finding;
using core::doctor::InputReport;
using core::doctor::LayerGroup;
using core::doctor::Reading;
using core::doctor::Say;
using core::doctor::Values;

// Number of tokens of a layer on which explanations are tried.
constexpr std::int64_t kTriedTokens = 32;
// Noise may change a measured angle by this many radians. A wrong base or a
// wrong shift changes the angle by far more.
constexpr double kMeasuredAngle = 0.05;
// Largest shift that is tried as an explanation.
constexpr std::int64_t kTriedShift = 1 << 17;

constexpr char kDigits[] = "0123456789";

std::string Sha256(absl::Span<const char> bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         digest);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

// Returns the number of the layer whose keys have this name. Without a pattern,
// the number is 3 for names such as "layers.3.k" and "*.3.*key*". With a
// pattern, the name must match; the layer is then the first part between dots
// that is a number, or else the first number in the name. Returns -1 for other
// names.
std::int32_t LayerOf(const std::string& name, const std::string& pattern) {
  if (!pattern.empty() && !Matches(name, {pattern})) return -1;
  const std::vector<std::string> steps = absl::StrSplit(name, '.');
  std::int32_t layer = -1;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!absl::SimpleAtoi(steps[i], &layer) || layer < 0) continue;
    if (!pattern.empty()) return layer;
    for (std::size_t j = i + 1; j < steps.size(); ++j) {
      if (absl::StrContains(steps[j], "key") ||
          (steps[j] == "k" && j + 1 == steps.size())) {
        return layer;
      }
    }
  }
  const std::size_t first = name.find_first_of(kDigits);
  if (pattern.empty() || first == std::string::npos) return -1;
  const std::size_t end = name.find_first_not_of(kDigits, first);
  return absl::SimpleAtoi(name.substr(first, end - first), &layer) ? layer : -1;
}

struct Cache {
  std::string path;
  FileBytes bytes;
  std::map<std::int32_t, SafetensorsEntry> layers;
};

absl::Status ReadKeys(const std::string& pattern, Cache* cache) {
  ASSIGN_OR_RETURN(cache->bytes, FileBytes::Read(cache->path));
  ASSIGN_OR_RETURN(const Safetensors file,
                   ParseSafetensors(cache->bytes.bytes()));
  for (const SafetensorsEntry& entry : file.entries) {
    const std::int32_t layer = LayerOf(entry.name, pattern);
    if (layer < 0) continue;
    const auto [at, is_new] = cache->layers.emplace(layer, entry);
    if (!is_new) {
      return absl::InvalidArgumentError(
          Say("cache.same-layer", {at->second.name, entry.name, layer}));
    }
  }
  return absl::OkStatus();
}

// A wrong move that an engine may have made, and the remedy.
struct Explanation {
  std::string did;
  std::string fix;
  Motion motion;
};

std::string BaseText(const ResolvedRope& rope) {
  return rope.spec.rope_theta
             ? absl::StrCat("rope_theta ", PlainNumber(*rope.spec.rope_theta))
             : DescribeRope(rope);
}

// Returns which layers have this encoding: "the global layers'" if it is the
// encoding of the layers with full attention.
std::string WhoseRope(const ConfigCase& config, const ResolvedRope& rope) {
  for (const auto& [type, name] :
       {std::pair("full_attention", "the global layers'"),
        std::pair("sliding_attention", "the sliding layers'")}) {
    LayerGroup group;
    group.type = type;
    const auto own = core::doctor::Resolve(
        config.root(), *core::interpretation::FindReader("hf"), group,
        config.reach());
    if (own.ok() && own->inv_freq == rope.inv_freq) return name;
  }
  return "other layers'";
}

// Returns the explanations for a layer of this layer group, in the order in
// which the certificate tries them. `config` must have a reference.
std::vector<Explanation> ExplanationsOf(const ConfigCase& config,
                                        std::size_t group,
                                        std::int64_t head_dim,
                                        std::int64_t shift) {
  const auto& ropes = config.reference()->ropes;
  const ResolvedRope& own = *ropes[group];
  std::vector<Explanation> all;
  // The rows `id` and "<id>-fix" of core/doctor/rows/says.json have the texts.
  const auto add = [&](const std::string& id, const Values& values,
                       Motion motion) {
    all.push_back(
        {Say(id, values), Say(id + "-fix", values), std::move(motion)});
  };
  add("moved.not", {}, MotionOf(own, head_dim, 0));
  for (std::size_t g = 0; g < ropes.size(); ++g) {
    if (g == group || ropes[g]->spec.nope) continue;
    add("moved.other-layer",
        {BaseText(*ropes[g]), WhoseRope(config, *ropes[g]),
         own.spec.rope_theta ? PlainNumber(*own.spec.rope_theta)
                             : DescribeRope(own)},
        MotionOf(*ropes[g], head_dim, shift));
  }
  const auto unscaled = config.ResolveChanged([&](nlohmann::json* part) {
    part->erase("rope_scaling");
    part->erase("rope_parameters");
    if (own.spec.rope_theta) (*part)["rope_theta"] = *own.spec.rope_theta;
  })[group];
  if (unscaled.ok() && unscaled->inv_freq != own.inv_freq) {
    add("moved.unscaled", {}, MotionOf(*unscaled, head_dim, shift));
  }
  for (const Reading& reading : config.readings()) {
    if (!reading.status().ok()) continue;
    const ResolvedRope& theirs = *reading.ropes[group];
    if (theirs.inv_freq == own.inv_freq || theirs.spec.nope) continue;
    add("moved.reader", {reading.reader->title},
        MotionOf(theirs, head_dim, shift));
  }
  Motion paired = MotionOf(own, head_dim, shift);
  bool& interleaved = paired.rotation.before.interleaved;
  interleaved = !interleaved;
  paired.rotation.after = paired.rotation.before;
  add("moved.paired", {interleaved ? "interleaved" : "half-split"}, paired);
  for (const double share : {1.0, 0.5, 0.25}) {
    const auto other = config.ResolveChanged([&](nlohmann::json* part) {
      (*part)[std::string(config.family().partial_key)] = share;
      (*part)["model_type"] = "stablelm";  // a class that reads the key
    })[group];
    if (!other.ok() || other->spec.rotary_dim == own.spec.rotary_dim ||
        other->spec.rotary_dim > head_dim) {
      continue;
    }
    add("moved.width", {other->spec.rotary_dim, own.spec.rotary_dim},
        MotionOf(*other, head_dim, shift));
  }
  for (const double factor : {own.attention_factor, 1 / own.attention_factor}) {
    if (factor == 1) continue;
    Motion scaled = MotionOf(own, head_dim, shift);
    scaled.rotation.attention_factor = factor;
    add("moved.amplitude",
        {absl::StrFormat("%.6g", own.attention_factor),
         factor == own.attention_factor ? "twice" : "divided out"},
        scaled);
  }
  return all;
}

// Removes the path from the start of an error of FileBytes.
std::string WithoutPath(absl::string_view error, const std::string& path) {
  return std::string(absl::StripPrefix(error, absl::StrCat(path, ": ")));
}

class Certifier {
 public:
  explicit Certifier(const CertificateFlags& flags)
      : flags_(flags), before_{flags.cache}, after_{flags.after} {}

  absl::StatusOr<Certificate> Run() {
    RETURN_IF_ERROR(CheckFlags());
    result_.measured = flags_.measured;
    Report();
    if (!result_.diagnosis.unreadable()) CertifyLayers();
    return std::move(result_);
  }

 private:
  absl::Status CheckFlags() {
    for (const auto& [flag, missing] :
         {std::pair("--after", flags_.after.empty()),
          std::pair("--config", flags_.config.empty()),
          std::pair("--layout", flags_.layout == v1::LAYOUT_UNSPECIFIED)}) {
      if (missing) return UsageError(Say("cache.needs", {flag}));
    }
    if (!flags_.start || !flags_.shift) {
      return UsageError(
          absl::StrCat(flags_.start ? "--shift" : "--start",
                       ": missing; nothing else says where the keys stand"));
    }
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    if (std::abs(*flags_.start) > kMost || std::abs(*flags_.shift) > kMost) {
      return UsageError("--start, --shift: must be within +-2^31");
    }
    if (flags_.dtype_bound &&
        (!(*flags_.dtype_bound > 0) || !std::isfinite(*flags_.dtype_bound))) {
      return UsageError("--dtype-bound: must be a number of ulps > 0");
    }
    return absl::OkStatus();
  }

  // Returns why the configuration cannot be read; empty if it can be read.
  std::string ReadConfig() {
    const absl::StatusOr<std::string> text = ReadConfigText(flags_.config);
    if (!text.ok()) return std::string(text.status().message());
    std::string fault = core::doctor::JsonFault(*text);
    if (!fault.empty()) return fault;
    nlohmann::json root = nlohmann::json::parse(*text, nullptr, false);
    if (root.is_discarded()) return "has NaN or Infinity";
    std::vector<const core::interpretation::Reader*> readers;
    for (const core::interpretation::Reader& reader :
         core::interpretation::Readers()) {
      readers.push_back(&reader);
    }
    const core::interpretation::RopeSource source = {
        core::interpretation::ConfigJson{*text}};
    const std::int64_t length =
        std::max<std::int64_t>(core::interpretation::ClaimedLength(source), 1);
    config_ = std::make_unique<ConfigCase>(
        flags_.config, std::move(root), readers, core::doctor::Reach{length});
    result_.diagnosis.length = length;
    return config_->reference() != nullptr
               ? ""
               : core::doctor::FactOf(config_->readings()[0].status());
  }

  // Reads the files, and adds their reports.
  void Report() {
    InputReport config;
    config.path = flags_.config;
    config.unreadable = WithoutPath(ReadConfig(), flags_.config);
    if (config_ != nullptr && config_->reference() != nullptr) {
      config.model_type = config_->model_type();
      config.content_hash = core::interpretation::ContentHash(config_->rope());
      config.spec = DescribeRope(config_->rope());
    }
    result_.diagnosis.inputs = {config};
    for (auto [cache, sha256] : {std::pair(&before_, &result_.cache_sha256),
                                 std::pair(&after_, &result_.after_sha256)}) {
      InputReport& input = result_.diagnosis.inputs.emplace_back();
      input.path = cache->path;
      input.kind = core::doctor::InputKind::kSafetensors;
      const absl::Status read = ReadKeys(flags_.layers, cache);
      input.unreadable = WithoutPath(read.message(), cache->path);
      input.spec = absl::StrCat(cache->layers.size(), " layers of keys");
      if (read.ok()) *sha256 = Sha256(cache->bytes.bytes());
    }
  }

  void Add(absl::string_view id, const std::string& path,
           const std::string& fact, const std::string& fix,
           std::vector<std::int32_t> layers) {
    Finding finding = core::doctor::MakeFinding(id, {path, fact, fix});
    finding.inputs = {before_.path, after_.path, flags_.config};
    finding.layers = std::move(layers);
    result_.diagnosis.findings.push_back(std::move(finding));
  }

  // Adds the finding cache.not-certifiable. Its texts are the rows CAUSE and
  // CAUSE-fix of core/doctor/rows/says.json.
  void NotCertifiable(const std::string& path, absl::string_view cause,
                      const Values& values, std::vector<std::int32_t> layers) {
    Add("cache.not-certifiable", path, Say(cause, values),
        Say(absl::StrCat(cause, "-fix"), {}), std::move(layers));
  }

  void CertifyLayers() {
    if (*flags_.shift == 0) {
      return NotCertifiable(flags_.cache, "cache.still", {}, {});
    }
    if (before_.layers.empty()) {
      const bool is_pattern = !flags_.layers.empty();
      return NotCertifiable(
          flags_.cache, is_pattern ? "cache.none-matches" : "cache.none-named",
          {flags_.layers}, {});
    }
    for (const auto& [layer, entry] : before_.layers) {
      CertifyLayer(layer, entry);
    }
    for (const auto& [layer, entry] : after_.layers) {
      if (before_.layers.count(layer) == 0) {
        NotCertifiable(flags_.cache, "cache.no-layer", {layer}, {layer});
      }
    }
    TellMismatches();
  }

  void CertifyLayer(std::int32_t layer, const SafetensorsEntry& entry) {
    const auto found = after_.layers.find(layer);
    if (found == after_.layers.end()) {
      return NotCertifiable(flags_.after, "cache.no-layer", {layer}, {layer});
    }
    const auto before = AsTensor(entry);
    const auto after = AsTensor(found->second);
    if (!before.ok() || !after.ok()) {
      return NotCertifiable(
          before.ok() ? flags_.after : flags_.cache, "cache.dtype",
          {(before.ok() ? after : before).status().message()}, {layer});
    }
    if (before->shape != after->shape || before->dtype != after->dtype) {
      return NotCertifiable(
          flags_.after, "cache.unlike",
          {layer, check::DtypeName(after->dtype),
           check::ShapeText(after->shape), flags_.cache,
           check::DtypeName(before->dtype), check::ShapeText(before->shape)},
          {layer});
    }
    const auto a = check::HeadsView::Of(*before, flags_.layout);
    const auto b = check::HeadsView::Of(*after, flags_.layout);
    if (!a.ok()) {
      return NotCertifiable(flags_.cache, "cache.layout",
                            {layer, a.status().message()}, {layer});
    }
    if (check::SignificandBits(before->dtype) == 0) {
      return NotCertifiable(flags_.cache, "cache.dtype",
                            {absl::StrCat("layer ", layer, " is ",
                                          check::DtypeName(before->dtype))},
                            {layer});
    }
    const std::size_t group = config_->GroupOf(layer).value_or(0);
    const ResolvedRope& rope = *config_->reference()->ropes[group];
    if (rope.spec.rotary_dim > a->index.head_dim || rope.heads > 0 ||
        rope.frequency_axes > 1) {
      return NotCertifiable(flags_.config, "cache.channels",
                            {layer, rope.spec.rotary_dim, a->index.head_dim},
                            {layer});
    }
    if (HasNotFinite(*a) || HasNotFinite(*b)) {
      return NotCertifiable(HasNotFinite(*a) ? flags_.cache : flags_.after,
                            "cache.not-finite", {layer}, {layer});
    }
    Judge(layer, group, rope, *a, *b);
  }

  void Judge(std::int32_t layer, std::size_t group, const ResolvedRope& rope,
             const check::HeadsView& before, const check::HeadsView& after) {
    const std::int64_t head_dim = before.index.head_dim;
    const Motion own = MotionOf(rope, head_dim, *flags_.shift);
    const auto shift = static_cast<double>(*flags_.shift);
    double p_max = 0;  // the largest position
    for (const std::int64_t token : {std::int64_t{0}, before.index.tokens}) {
      const auto p = static_cast<double>(*flags_.start + token);
      p_max = std::max({p_max, std::abs(p), std::abs(p + shift)});
    }
    const v1::Dtype dtype = before.tensor.dtype;
    const Bounds bounds = BoundsOf(dtype);
    const double ulps = flags_.dtype_bound.value_or(bounds.usual);
    const MotionBound bound = BoundOf(dtype, ulps);
    const MotionError error =
        Measure(own, before, after, bound, p_max, before.index.tokens);
    const bool by_angle = flags_.measured && layer > 0;
    const auto fits = [&](const Motion& motion, const MotionBound& within) {
      if (by_angle) {
        return AngleError(motion, MeasuredAngles(motion.rotation.before, before,
                                                 after)) <= kMeasuredAngle;
      }
      return Measure(motion, before, after, within, p_max, kTriedTokens).within;
    };
    const bool certified = by_angle ? fits(own, bound) : error.within;
    result_.layers.push_back(
        {.layer = layer,
         .heads = before.index.heads,
         .elements = check::ElementCount(before.tensor.shape),
         .max_error_ulps = error.max_ulps,
         .bound_ulps = error.max_bound,
         .certified = certified,
         .encoding_hash = core::interpretation::ContentHash(rope)});
    if (certified) return;
    const std::vector<Explanation> explanations =
        ExplanationsOf(*config_, group, head_dim, *flags_.shift);
    // Tries the explanations with a looser bound, too, because an engine with
    // coarser tables may also make one of these mistakes.
    const MotionBound loose = BoundOf(dtype, std::max(ulps, bounds.coarser));
    std::vector<MotionBound> tried = {bound};
    // If only angles are compared, the bounds have no effect.
    if (!by_angle && loose.ulps > ulps) tried.push_back(loose);
    for (const MotionBound& within : tried) {
      if (within.ulps > ulps &&
          Measure(own, before, after, loose, p_max, before.index.tokens)
              .within) {
        const bool float32 = bounds.coarser_dtype == "float32";
        return Mismatch(
            layer,
            Say("moved.coarser", {bounds.coarser, ulps, bounds.coarser_dtype}),
            Say("moved.coarser-fix", {bounds.coarser, bounds.coarser_dtype,
                                      float32 ? "float64" : "float32"}));
      }
      for (const Explanation& one : explanations) {
        if (fits(one.motion, within)) {
          return Mismatch(layer, one.did, one.fix);
        }
      }
    }
    const std::vector<double> angles =
        MeasuredAngles(own.rotation.before, before, after);
    Motion moved = own;
    for (std::int64_t s = 1; s <= kTriedShift; ++s) {
      for (const std::int64_t other : {s, -s}) {
        moved.shift = other;
        if (other != *flags_.shift &&
            AngleError(moved, angles) <= kMeasuredAngle && fits(moved, loose)) {
          return Mismatch(layer, Say("moved.shift", {other, *flags_.shift}),
                          Say("moved.shift-fix", {other}));
        }
      }
    }
    std::size_t pair = 0;
    const double off = AngleError(own, angles, &pair);
    const std::string measured =
        off < kMeasuredAngle
            ? Say("moved.lengths", {})
            : absl::StrFormat("pair %d is off by %.3g rad", pair, off);
    const check::HeadIndex& keys = before.index;
    Mismatch(layer,
             Say("moved.unknown",
                 {measured, error.tokens, keys.batch * keys.tokens, error.heads,
                  keys.heads, error.first_token, error.first_head}),
             Say("moved.unknown-fix", {}));
  }

  void Mismatch(std::int32_t layer, const std::string& did,
                const std::string& fix) {
    auto same = std::ranges::find(mismatches_, did, &Mismatched::did);
    if (same == mismatches_.end()) same = mismatches_.insert(same, {did, fix});
    same->layers.push_back(layer);
  }

  void TellMismatches() {
    for (const auto& [did, fix, layers] : mismatches_) {
      const bool run = layers.back() - layers.front() + 1 ==
                       static_cast<std::int32_t>(layers.size());
      const std::string who =
          layers.size() == 1 ? absl::StrCat("layer ", layers[0])
          : run ? absl::StrCat("layers ", layers.front(), "-", layers.back())
                : absl::StrCat(layers.size(), " layers from ", layers.front(),
                               " to ", layers.back());
      Add("cache.mismatch", flags_.after, absl::StrCat(who, " ", did), fix,
          layers);
    }
  }

  // Layers that an engine moved in the same wrong way.
  struct Mismatched {
    std::string did, fix;
    std::vector<std::int32_t> layers = {};
  };

  const CertificateFlags& flags_;
  Cache before_, after_;
  std::unique_ptr<ConfigCase> config_;
  std::vector<Mismatched> mismatches_;
  Certificate result_;
};

}  // namespace

absl::StatusOr<Certificate> Certify(const CertificateFlags& flags) {
  return Certifier(flags).Run();
}

}  // namespace posenc::cli
