#include "client/tools/diagnosis/cache_explanations.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace posenc::cli {
namespace {

using core::ResolvedRope;
using core::doctor::LayerGroup;
using core::doctor::Say;

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
  // The rows `id` and "<id>-fix" of core/doctor/rows/says.json have the texts.
  const auto add = [&](const std::string& id,
                       const core::doctor::Values& values, Motion motion) {
    all.push_back(
        {Say(id, values), Say(id + "-fix", values), std::move(motion)});
  };
  add("moved.not", {}, MotionOf(own, head_dim, 0));
  for (std::size_t g = 0; g < ropes.size(); ++g) {
    if (g == group || ropes[g]->spec.nope) continue;
    add("moved.other-layer",
        {BaseText(*ropes[g]), WhoseRope(config, *ropes[g]),
         own.spec.rope_theta ? core::PlainNumber(*own.spec.rope_theta)
                             : core::doctor::DescribeRope(own)},
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
  for (const core::doctor::Reading& reading : config.readings()) {
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

}  // namespace posenc::cli
