#include "client/tools/diagnosis/certificate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/tools/check/element.h"
#include "client/tools/diagnosis/cache_explanations.h"
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

using core::ResolvedRope;
using core::doctor::Finding;

// Number of tokens of a layer on which explanations are tried.
constexpr std::int64_t kTriedTokens = 32;
// Noise may change a measured angle by this many radians. Other bases and
// shifts change it by far more.
constexpr double kMeasuredAngle = 0.05;
// Bounds on a pair's error, in ulps. They depend on the engine's tables of
// cosines and sines: tables finer than the keys, tables of the keys' dtype, or
// float32 tables with float64 keys (4 ulps of float32).
constexpr double kFinerTables = 2;
constexpr double kOwnTables = 4;
constexpr double kFloat32ForFloat64 = 4 * 0x1p29;
constexpr int kFloat32Bits = 24;
// Largest shift that is tried as an explanation.
constexpr std::int64_t kTriedShift = 1 << 17;

constexpr char kDigits[] = "0123456789";

std::string Sha256(absl::Span<const char> bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         digest);
  std::string text;
  for (const unsigned char byte : digest) {
    absl::StrAppendFormat(&text, "%02x", byte);
  }
  return text;
}

// Returns the number of the layer whose keys have this name. Without a pattern,
// this is 3 for names such as "layers.3.k" and "*.3.*key*". With a pattern, the
// name must match; the layer is then the first part between dots that is a
// number, or else the first number in the name. Returns -1 for other names.
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
  std::string path, unreadable;
  FileBytes bytes;
  std::map<std::int32_t, SafetensorsEntry> layers;
};

void ReadCache(const std::string& path, const std::string& pattern,
               Cache* cache) {
  cache->path = path;
  auto bytes = FileBytes::Read(path);
  if (!bytes.ok()) {
    cache->unreadable = std::string(bytes.status().message());
    return;
  }
  cache->bytes = *std::move(bytes);
  const auto file = ParseSafetensors(cache->bytes.bytes());
  if (!file.ok()) {
    cache->unreadable = std::string(file.status().message());
    return;
  }
  for (const SafetensorsEntry& entry : file->entries) {
    const std::int32_t layer = LayerOf(entry.name, pattern);
    if (layer < 0) continue;
    const auto [at, is_new] = cache->layers.emplace(layer, entry);
    if (!is_new) {
      cache->unreadable = absl::StrCat(
          at->second.name, " and ", entry.name, " would both be layer ", layer,
          "; give --layers a pattern that only the keys of layers match");
      return;
    }
  }
}

// Returns the bound without --dtype-bound, for engines that compute cosines and
// sines in float32, or in float64 if the keys are float64.
double UsualUlps(v1::Dtype dtype) {
  return check::SignificandBits(dtype) < kFloat32Bits ? kFinerTables
                                                      : kOwnTables;
}

// Returns the bound for engines that compute float64 tables from float64
// angles, and all other tables from float32 angles.
MotionBound BoundOf(v1::Dtype dtype, double ulps) {
  const bool float64 =
      check::SignificandBits(dtype) > kFloat32Bits && ulps < kFloat32ForFloat64;
  return {ulps, float64 ? 0x1p-53 : 0x1p-24};
}

// Tables of an engine that have less precision than the usual tables for these
// keys: their dtype, and the bound for keys that were rotated with them.
struct CoarserTables {
  double ulps;
  std::string dtype;
};

CoarserTables CoarserTablesOf(v1::Dtype dtype) {
  if (check::SignificandBits(dtype) > kFloat32Bits) {
    return {kFloat32ForFloat64, "float32"};
  }
  return {kOwnTables, check::DtypeName(dtype)};
}

class Certifier {
 public:
  explicit Certifier(const CertificateFlags& flags) : flags_(flags) {}

  absl::StatusOr<Certificate> Run() {
    RETURN_IF_ERROR(CheckFlags());
    result_.measured = flags_.measured;
    ReadCache(flags_.cache, flags_.layers, &before_);
    ReadCache(flags_.after, flags_.layers, &after_);
    config_unreadable_ = ReadConfig();
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
      if (missing) {
        return UsageError(
            absl::StrCat(flag,
                         ": missing; --cache needs --after, --config, "
                         "--layout, --start and --shift"));
      }
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
    config_ = std::make_unique<core::doctor::ConfigCase>(
        flags_.config, std::move(root), readers, core::doctor::Reach{length});
    result_.diagnosis.length = length;
    return config_->reference() != nullptr
               ? ""
               : core::doctor::FactOf(config_->readings()[0].status());
  }

  void Report() {
    const auto add = [&](const std::string& path, core::doctor::InputKind kind,
                         const std::string& unreadable,
                         std::string spec) -> core::doctor::InputReport& {
      core::doctor::InputReport& input =
          result_.diagnosis.inputs.emplace_back();
      input.path = path;
      input.kind = kind;
      // Removes the path, with which the errors of FileBytes begin.
      input.unreadable =
          std::string(absl::StripPrefix(unreadable, absl::StrCat(path, ": ")));
      input.spec = std::move(spec);
      return input;
    };
    core::doctor::InputReport& config =
        add(flags_.config, core::doctor::InputKind::kConfig, config_unreadable_,
            "");
    if (config_ != nullptr && config_->reference() != nullptr) {
      config.model_type = config_->model_type();
      config.content_hash = core::interpretation::ContentHash(config_->rope());
      config.spec = core::doctor::DescribeRope(config_->rope());
    }
    for (auto [cache, sha256] : {std::pair(&before_, &result_.cache_sha256),
                                 std::pair(&after_, &result_.after_sha256)}) {
      add(cache->path, core::doctor::InputKind::kSafetensors, cache->unreadable,
          absl::StrCat(cache->layers.size(), " layers of keys"));
      if (cache->unreadable.empty()) *sha256 = Sha256(cache->bytes.bytes());
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

  void NotCertifiable(const std::string& path, const std::string& fact,
                      const std::string& fix,
                      std::vector<std::int32_t> layers) {
    Add("cache.not-certifiable", path, fact, fix, std::move(layers));
  }

  std::size_t GroupOf(std::int32_t layer) const {
    for (std::size_t g = 0; g < config_->groups().size(); ++g) {
      const auto& layers = config_->groups()[g].layers;
      if (std::find(layers.begin(), layers.end(), layer) != layers.end()) {
        return g;
      }
    }
    return 0;
  }

  void CertifyLayers() {
    if (*flags_.shift == 0) {
      return NotCertifiable(
          flags_.cache, "--shift is 0: nothing moves, and nothing is shown",
          "record the same tokens at another start; 1 and 1021 together show "
          "every angle",
          {});
    }
    if (before_.layers.empty()) {
      return NotCertifiable(
          flags_.cache,
          flags_.layers.empty()
              ? "no tensor is named as a layer's keys (layers.3.k, *.3.*key*)"
              : absl::StrCat("no tensor with a number in its name matches "
                             "--layers ",
                             flags_.layers),
          "name the tensors so, or give another --layers PATTERN", {});
    }
    for (const auto& [layer, entry] : before_.layers) {
      CertifyLayer(layer, entry);
    }
    for (const auto& [layer, entry] : after_.layers) {
      if (before_.layers.count(layer) == 0) {
        NotCertifiable(flags_.cache,
                       absl::StrCat("has no keys of layer ", layer),
                       "record the same layers in both files", {layer});
      }
    }
    TellMismatches();
  }

  void CertifyLayer(std::int32_t layer, const SafetensorsEntry& entry) {
    const auto found = after_.layers.find(layer);
    if (found == after_.layers.end()) {
      return NotCertifiable(flags_.after,
                            absl::StrCat("has no keys of layer ", layer),
                            "record the same layers in both files", {layer});
    }
    const auto before = AsTensor(entry);
    const auto after = AsTensor(found->second);
    if (!before.ok() || !after.ok()) {
      return NotCertifiable(
          before.ok() ? flags_.after : flags_.cache,
          std::string((before.ok() ? after : before).status().message()),
          "record keys as float32, float16 or bfloat16", {layer});
    }
    if (before->shape != after->shape || before->dtype != after->dtype) {
      return NotCertifiable(
          flags_.after,
          absl::StrCat("layer ", layer, " is ", check::DtypeName(after->dtype),
                       " ", check::ShapeText(after->shape), ", and ",
                       flags_.cache, " has ", check::DtypeName(before->dtype),
                       " ", check::ShapeText(before->shape)),
          "record the same tokens in both files", {layer});
    }
    const auto a = check::HeadsView::Of(*before, flags_.layout);
    const auto b = check::HeadsView::Of(*after, flags_.layout);
    if (!a.ok()) {
      return NotCertifiable(
          flags_.cache,
          absl::StrCat("layer ", layer, ": ", a.status().message()),
          "give the --layout that the file has", {layer});
    }
    if (check::SignificandBits(before->dtype) == 0) {
      return NotCertifiable(flags_.cache,
                            absl::StrCat("layer ", layer, " is ",
                                         check::DtypeName(before->dtype)),
                            "record keys as float32, float16 or bfloat16",
                            {layer});
    }
    const std::size_t group = GroupOf(layer);
    const ResolvedRope& rope = *config_->reference()->ropes[group];
    if (rope.spec.rotary_dim > a->index.head_dim || rope.heads > 0 ||
        rope.frequency_axes > 1) {
      return NotCertifiable(
          flags_.config,
          absl::StrCat("layer ", layer, " rotates ", rope.spec.rotary_dim,
                       " channels; its keys have ", a->index.head_dim),
          "give the --layout and the configuration that belong to these keys",
          {layer});
    }
    if (HasNotFinite(*a) || HasNotFinite(*b)) {
      return NotCertifiable(
          HasNotFinite(*a) ? flags_.cache : flags_.after,
          absl::StrCat("layer ", layer, " holds NaN or infinity"),
          "record finite keys", {layer});
    }
    Judge(layer, group, rope, *a, *b);
  }

  void Judge(std::int32_t layer, std::size_t group, const ResolvedRope& rope,
             const check::HeadsView& before, const check::HeadsView& after) {
    const std::int64_t head_dim = before.index.head_dim;
    const Motion own = MotionOf(rope, head_dim, *flags_.shift);
    const double first = static_cast<double>(*flags_.start);
    const double last = first + static_cast<double>(before.index.tokens);
    const double shift = static_cast<double>(*flags_.shift);
    const double p_max =
        std::max({std::abs(first), std::abs(last), std::abs(first + shift),
                  std::abs(last + shift)});
    const v1::Dtype dtype = before.tensor.dtype;
    const double ulps = flags_.dtype_bound.value_or(UsualUlps(dtype));
    const MotionBound bound = BoundOf(dtype, ulps);
    const MotionError error =
        Measure(own, before, after, bound, p_max, before.index.tokens);
    LayerCertificate certificate;
    certificate.layer = layer;
    certificate.heads = before.index.heads;
    certificate.elements = check::ElementCount(before.tensor.shape);
    certificate.max_error_ulps = error.max_ulps;
    certificate.bound_ulps = error.max_bound;
    certificate.encoding_hash = core::interpretation::ContentHash(rope);
    const bool by_angle = flags_.measured && layer > 0;
    const auto fits = [&](const Motion& motion, const MotionBound& within) {
      if (by_angle) {
        return AngleError(motion, MeasuredAngles(motion.layout, before,
                                                 after)) <= kMeasuredAngle;
      }
      return Measure(motion, before, after, within, p_max, kTriedTokens).within;
    };
    certificate.certified = by_angle ? fits(own, bound) : error.within;
    result_.layers.push_back(certificate);
    if (certificate.certified) return;
    const std::vector<Explanation> explanations =
        ExplanationsOf(*config_, group, head_dim, *flags_.shift);
    const auto explained = [&](const MotionBound& within) {
      const auto one = std::find_if(
          explanations.begin(), explanations.end(),
          [&](const Explanation& it) { return fits(it.motion, within); });
      if (one == explanations.end()) return false;
      Mismatch(layer, one->did, one->fix);
      return true;
    };
    if (explained(bound)) return;
    const CoarserTables coarser = CoarserTablesOf(dtype);
    const MotionBound loose = BoundOf(dtype, std::max(ulps, coarser.ulps));
    if (!by_angle && ulps < coarser.ulps &&
        Measure(own, before, after, loose, p_max, before.index.tokens).within) {
      return Mismatch(
          layer,
          absl::StrCat("moved by their own angles, to within ",
                       core::PlainNumber(coarser.ulps), " ulps and not ",
                       core::PlainNumber(ulps),
                       ": as with cosines and sines of ", coarser.dtype),
          absl::StrCat("give --dtype-bound ", core::PlainNumber(coarser.ulps),
                       " if the engine's tables are ", coarser.dtype,
                       ", as transformers' are; else compute them in ",
                       coarser.dtype == "float32" ? "float64" : "float32"));
    }
    // An engine with coarser tables may, in addition, make one of the mistakes
    // of `explanations`.
    if (ulps < coarser.ulps && explained(loose)) return;
    const std::vector<double> angles =
        MeasuredAngles(own.layout, before, after);
    for (std::int64_t s = 1; s <= kTriedShift; ++s) {
      for (const std::int64_t other : {s, -s}) {
        if (other == *flags_.shift) continue;
        Motion moved = own;
        moved.shift = other;
        if (AngleError(moved, angles) <= kMeasuredAngle && fits(moved, loose)) {
          return Mismatch(
              layer,
              absl::StrCat("moved by ", other, ", not by ", *flags_.shift),
              absl::StrCat("give --shift ", other,
                           ", or record the keys that far apart"));
        }
      }
    }
    Mismatch(layer,
             absl::StrCat("moved like no tried encoding: ",
                          Measured(own, angles), "; ", Where(error, before)),
             "compare the engine's rotary module with the configuration; keys "
             "with another left context are not comparable at all");
  }

  // Describes the pair with the largest error of its angle.
  static std::string Measured(const Motion& own,
                              const std::vector<double>& angles) {
    std::size_t worst = 0;
    double most = -1;
    for (std::size_t i = 0; i < angles.size(); ++i) {
      Motion one = own;
      one.frequencies = {own.frequencies[i]};
      const double off = AngleError(one, {angles[i]});
      if (off > most) {
        most = off;
        worst = i;
      }
    }
    if (most < kMeasuredAngle) {
      return "all pairs turned by their angles, and lengths or other channels "
             "differ";
    }
    return absl::StrFormat("pair %d is off by %.3g rad", worst, most);
  }

  // Returns "beyond the bound: 1 of 512 tokens and 8 of 8 heads, first token 0
  // of head 0".
  static std::string Where(const MotionError& error,
                           const check::HeadsView& keys) {
    return absl::StrCat("beyond the bound: ", error.tokens, " of ",
                        keys.index.batch * keys.index.tokens, " tokens and ",
                        error.heads, " of ", keys.index.heads,
                        " heads, first token ", error.first_token, " of head ",
                        error.first_head);
  }

  void Mismatch(std::int32_t layer, const std::string& did,
                const std::string& fix) {
    for (auto& [facts, layers] : mismatches_) {
      if (facts.first == did) {
        layers.push_back(layer);
        return;
      }
    }
    mismatches_.push_back({{did, fix}, {layer}});
  }

  void TellMismatches() {
    for (const auto& [facts, layers] : mismatches_) {
      const bool run = layers.back() - layers.front() + 1 ==
                       static_cast<std::int32_t>(layers.size());
      const std::string who =
          layers.size() == 1 ? absl::StrCat("layer ", layers[0])
          : run ? absl::StrCat("layers ", layers.front(), "-", layers.back())
                : absl::StrCat(layers.size(), " layers from ", layers.front(),
                               " to ", layers.back());
      Add("cache.mismatch", flags_.after, absl::StrCat(who, " ", facts.first),
          facts.second, layers);
    }
  }

  const CertificateFlags& flags_;
  Cache before_, after_;
  std::unique_ptr<core::doctor::ConfigCase> config_;
  std::string config_unreadable_;
  std::vector<
      std::pair<std::pair<std::string, std::string>, std::vector<std::int32_t>>>
      mismatches_;
  Certificate result_;
};

}  // namespace

absl::StatusOr<Certificate> Certify(const CertificateFlags& flags) {
  return Certifier(flags).Run();
}

std::string CertificateJson(const Certificate& certificate) {
  using Json = nlohmann::ordered_json;
  Json root = Json::parse(core::doctor::DiagnosisJson(certificate.diagnosis),
                          nullptr, false);
  root["made"] = certificate.measured ? "two prefills" : "one key";
  root["certificate"] = Json::array();
  for (const LayerCertificate& layer : certificate.layers) {
    root["certificate"].push_back(
        {{"layer", layer.layer},
         {"heads", layer.heads},
         {"elements", layer.elements},
         {"max_error_ulps", layer.max_error_ulps},
         {"bound_ulps", layer.bound_ulps},
         {"verdict", layer.certified ? "certified" : "mismatch"},
         {"encoding_hash", layer.encoding_hash}});
  }
  const auto or_null = [](const std::string& text) {
    return text.empty() ? Json() : Json(text);
  };
  root["files"] = {{"cache_sha256", or_null(certificate.cache_sha256)},
                   {"after_sha256", or_null(certificate.after_sha256)}};
  return root.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace posenc::cli
