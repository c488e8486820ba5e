#include "client/tools/diagnosis/cache_explanations.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace posenc::cli {
namespace {

using core::ResolvedRope;
using core::doctor::LayerGroup;

std::string BaseText(const ResolvedRope& rope) {
  return rope.spec.rope_theta
             ? absl::StrCat("rope_theta ",
                            core::PlainNumber(*rope.spec.rope_theta))
             : core::doctor::DescribeRope(rope);
}

// Returns which layers have this encoding: "the global layers'" if it is the
// encoding of the layers with full attention.
std::string WhoseRope(const core::doctor::ConfigCase& config,
                      const ResolvedRope& rope) {
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

}  // namespace

std::vector<Explanation> ExplanationsOf(const core::doctor::ConfigCase& config,
                                        std::size_t group,
                                        std::int64_t head_dim,
                                        std::int64_t shift) {
  const auto& ropes = config.reference()->ropes;
  const ResolvedRope& own = *ropes[group];
  std::vector<Explanation> all;
  const auto add = [&](std::string did, std::string fix, Motion motion) {
    all.push_back({std::move(did), std::move(fix), std::move(motion)});
  };
  Motion still = MotionOf(own, head_dim, 0);
  add("did not move (no rotation, or keys that were cached before it)",
      "move keys only where the engine caches them after rotation; leave this "
      "layer as it is",
      still);
  for (std::size_t g = 0; g < ropes.size(); ++g) {
    if (g == group || ropes[g]->spec.nope) continue;
    add(absl::StrCat("moved as with ", BaseText(*ropes[g]), " (",
                     WhoseRope(config, *ropes[g]), "), but their own is ",
                     own.spec.rope_theta
                         ? core::PlainNumber(*own.spec.rope_theta)
                         : core::doctor::DescribeRope(own)),
        "give the engine, or Reposition, each layer's own encoding "
        "(layer_index)",
        MotionOf(*ropes[g], head_dim, shift));
  }
  const auto variant = [&](const nlohmann::json& root) {
    const auto other = config.ResolveOther(root);
    return group < other.size() && other[group] ? other[group] : std::nullopt;
  };
  const auto unscaled = variant(config.Changed([&](nlohmann::json* part) {
    part->erase("rope_scaling");
    part->erase("rope_parameters");
    if (own.spec.rope_theta) (*part)["rope_theta"] = *own.spec.rope_theta;
  }));
  if (unscaled && unscaled->inv_freq != own.inv_freq) {
    add("moved without scaling",
        "give the engine the configuration's rope_scaling",
        MotionOf(*unscaled, head_dim, shift));
  }
  for (const core::doctor::Reading& reading : config.readings()) {
    if (!reading.status().ok()) continue;
    const ResolvedRope& theirs = *reading.ropes[group];
    if (theirs.inv_freq == own.inv_freq || theirs.spec.nope) continue;
    add(absl::StrCat("moved as ", reading.reader->title,
                     " reads the configuration"),
        absl::StrCat("resolve the encoding with ", reading.reader->title,
                     "'s profile, or mend the configuration (posenc doctor "
                     "CONFIG says how)"),
        MotionOf(theirs, head_dim, shift));
  }
  Motion paired = MotionOf(own, head_dim, shift);
  paired.layout.interleaved = !paired.layout.interleaved;
  add(absl::StrCat("moved with ",
                   paired.layout.interleaved ? "interleaved" : "half-split",
                   " pairs"),
      "set the pairing that the engine's weights have (rope.spec.pairing)",
      paired);
  for (const double share : {1.0, 0.5, 0.25}) {
    const auto other = variant(config.Changed([&](nlohmann::json* part) {
      (*part)[std::string(config.family().partial_key)] = share;
      (*part)["model_type"] = "stablelm";  // a class that reads the key
    }));
    if (!other || other->spec.rotary_dim == own.spec.rotary_dim ||
        other->spec.rotary_dim > head_dim) {
      continue;
    }
    add(absl::StrCat("moved ", other->spec.rotary_dim,
                     " channels, but their own are ", own.spec.rotary_dim),
        "set the rotated width (partial_rotary_factor) that the engine has",
        MotionOf(*other, head_dim, shift));
  }
  for (const double factor : {own.attention_factor, 1 / own.attention_factor}) {
    if (factor == 1) continue;
    Motion scaled = MotionOf(own, head_dim, shift);
    scaled.amplitude = factor;
    add(absl::StrCat(
            "have the amplitude ",
            absl::StrFormat("%.6g", own.attention_factor),
            factor == own.attention_factor ? " twice" : " divided out"),
        "move keys by a rotation alone: the amplitude is in them already",
        scaled);
  }
  return all;
}

}  // namespace posenc::cli
