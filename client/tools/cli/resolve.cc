// `posenc resolve`: prints the frequencies, the attention factor and every
// assumption of a model's configuration. If flags name another configuration,
// or another project's interpretation of the same configuration, it also prints
// the difference.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numbers>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/tools/arguments/connection.h"
#include "client/tools/arguments/enum_flags.h"
#include "client/tools/cli/commands.h"
#include "client/tools/files/print.h"
#include "client/tools/files/status.h"
#include "core/base/text.h"
#include "google/protobuf/text_format.h"

namespace posenc::cli {
namespace {

// `compare` may name another encoding, or only another profile, part, layer or
// length of the same encoding (BuildVariant).
struct ResolveFlags {
  SourceFlags source;
  SourceFlags compare;
  std::optional<std::int64_t> kept_to;
};

// Returns the value of one field of a scaling. The function uses reflection, so
// that it also works for new scalings of the contract. Lists are shown by their
// first and last element.
std::string FieldText(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) {
    const int n = reflection.FieldSize(message, &field);
    if (field.cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE ||
        n == 0) {
      return absl::StrCat(n, " values");
    }
    const auto at = [&](int i) {
      return NineDigits(reflection.GetRepeatedDouble(message, &field, i));
    };
    return n == 1 ? absl::StrCat("[", at(0), "]")
                  : absl::StrCat("[", at(0), " ... ", at(n - 1), "] (", n, ")");
  }
  if (field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE) {
    return NineDigits(reflection.GetDouble(message, &field));
  }
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(message, &field, -1,
                                                        &text);
  return text;
}

std::string FieldsText(const google::protobuf::Message& message) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return absl::StrJoin(fields, ", ", [&](std::string* out, const auto* field) {
    absl::StrAppend(out, field->name(), " ", FieldText(message, *field));
  });
}

// Returns the scaling with its fields: "yarn: factor 4, ...".
std::string ScalingText(const v1::RopeSpec& spec) {
  const auto* const scaling =
      v1::RopeSpec::descriptor()->FindOneofByName("scaling");
  const auto* const field =
      spec.GetReflection()->GetOneofFieldDescriptor(spec, scaling);
  if (field == nullptr) return "none";
  return absl::StrCat(
      field->name(), ": ",
      FieldsText(spec.GetReflection()->GetMessage(spec, field)));
}

void PrintFrequencies(const v1::ResolveRopeResponse& response) {
  const int n = response.inv_freq_size();
  absl::PrintF("\n  frequencies of pairs: %s\n", ShownText(n, kShownPairs));
  std::printf("    %5s  %18s  %18s\n", "pair", "radians/position",
              "wavelength");
  for (const int i : Spread(n, kShownPairs)) {
    const double w = response.inv_freq(i);
    absl::PrintF(
        "    %5d  %18.10g  %18s\n", i, w,
        w == 0 ? "still" : NineDigits(2 * std::numbers::pi / std::fabs(w)));
  }
}

// Returns a text such as "90 % of a score is left up to distance 5443, 57 % at
// 131072".
std::string KeptText(const v1::RopeDifference& difference) {
  const double percent = 100 * difference.kept_at_length();
  if (difference.first_distance() < 0) {
    return absl::StrFormat(
        "at least 90 %% of a score is left up to distance %d, %.4g %% there",
        difference.length(), percent);
  }
  return absl::StrFormat(
      "90 %% of a score is left up to distance %d, %.4g %% at %d",
      difference.first_distance(), percent, difference.length());
}

// Prints the difference of two encodings. The explanations in `difference`
// compare the frequencies.
void PrintDifference(const v1::RopeDifference& difference,
                     const std::string& name) {
  std::printf("\n  compared with %s\n", name.c_str());
  if (difference.equal()) {
    std::printf("    the same rotation\n");
  } else {
    absl::PrintF("    amplitude ratio %s\n",
                 NineDigits(difference.amplitude_ratio()));
    absl::PrintF("    %s\n", KeptText(difference));
  }
  for (const std::string& text : difference.explanations()) {
    std::printf("    - %s\n", core::OneLine(text).c_str());
  }
}

// Returns the name of the other encoding: "spec", "llama-3-8b, profile vllm",
// or "length 4096" for the same model at another length.
std::string VariantName(const SourceFlags& flags) {
  std::vector<std::string> parts = flags.details.Texts();
  if (!flags.Empty()) parts.insert(parts.begin(), flags.Name());
  return absl::StrJoin(parts, ", ");
}

void PrintResolved(const v1::ResolveRopeResponse& response,
                   const ResolveFlags& flags) {
  const v1::RopeSpec& spec = response.spec();
  std::printf("%s\n", flags.source.Name().c_str());
  PrintFact("head_dim", absl::StrCat(response.head_dim()));
  if (spec.nope()) {
    PrintFact("encoding", "none (NoPE): tensors come back unchanged");
  } else {
    PrintFact("rotary_dim", absl::StrCat(spec.rotary_dim()));
    std::string pairing = EnumText(spec.pairing());
    if (spec.output_pairing() != v1::PAIRING_UNSPECIFIED &&
        spec.output_pairing() != spec.pairing()) {
      absl::StrAppend(&pairing, "; the result is in ",
                      EnumText(spec.output_pairing()), " order");
    }
    PrintFact("pairing", pairing);
    PrintFact("slice", EnumText(spec.slice()));
    if (spec.has_rope_theta()) {
      PrintFact("rope_theta", NineDigits(spec.rope_theta()));
    }
    PrintFact("scaling", ScalingText(spec));
    if (spec.has_axes()) {
      PrintFact(
          "axes",
          absl::StrCat(
              EnumText(spec.axes().assignment()),
              ", pairs of each: ", absl::StrJoin(spec.axes().sections(), ", "),
              spec.axes().position_axes().empty() ? "" : "; they follow axes ",
              absl::StrJoin(spec.axes().position_axes(), ", ")));
    }
    if (spec.has_xpos()) PrintFact("xpos", FieldsText(spec.xpos()));
    if (spec.reverse()) PrintFact("reverse", "turns by -phi");
    PrintFact("angles", EnumText(spec.angle_precision()));
    PrintFact("amplitude", NineDigits(response.amplitude()));
  }
  PrintFact("softmax multiplier",
            NineDigits(response.softmax_scale_multiplier()));
  PrintFact("query scale", response.has_query_scale()
                               ? FieldsText(response.query_scale())
                               : "none");
  PrintFact("content hash", response.content_hash());
  if (response.inv_freq_size() > 0) PrintFrequencies(response);
  if (response.assumptions_size() > 0) std::printf("\n  assumed\n");
  for (const v1::Assumption& assumption : response.assumptions()) {
    absl::PrintF("    %s = %s (%s)\n", core::OneLine(assumption.field()),
                 core::OneLine(assumption.value()),
                 core::OneLine(assumption.reason()));
  }
  if (response.warnings_size() > 0) std::printf("\n  warnings\n");
  for (const std::string& warning : response.warnings()) {
    std::printf("    %s\n", core::OneLine(warning).c_str());
  }
  if (response.has_difference()) {
    PrintDifference(response.difference(), VariantName(flags.compare));
  }
}

absl::Status RunResolve(const ResolveFlags& flags, const GlobalFlags& globals) {
  v1::ResolveRopeRequest request;
  ASSIGN_OR_RETURN(*request.mutable_rope(), BuildSource(flags.source));
  request.set_head_dim(request.rope().head_dim());
  if (flags.compare.Given()) {
    ASSIGN_OR_RETURN(*request.mutable_compare_with(),
                     BuildVariant(request.rope(), flags.compare));
  } else if (flags.kept_to) {
    return UsageError("--kept-to: belongs to --compare-*");
  }
  request.set_length(flags.kept_to.value_or(0));
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  ASSIGN_OR_RETURN(const v1::ResolveRopeResponse response,
                   connection.client().ResolveRope(request));
  if (globals.json) {
    PrintJson(ToJson(response));
  } else {
    PrintResolved(response, flags);
  }
  return absl::OkStatus();
}

}  // namespace

Command AddResolve(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<ResolveFlags>();
  AddSourceFlags(app, "", "Encoding", &flags->source);
  AddSourceFlags(app, "compare-", "Encoding to compare with", &flags->compare);
  AddFlag(app, "--kept-to", &flags->kept_to, "N",
          "Largest distance to compare (default: the model's length, or 8192)",
          {.range = {{1, std::int64_t{1} << 31}}});
  return [flags, globals] { return RunResolve(*flags, *globals); };
}

}  // namespace posenc::cli
