// `posenc positions`: the position ids of a packed, padded, split or multimodal
// batch, a grid, a cache with attention sinks, or the patches of a vision
// tower.

#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/tools/arguments/connection.h"
#include "client/tools/arguments/field_flags.h"
#include "client/tools/arguments/options.h"
#include "client/tools/cli/commands.h"
#include "client/tools/files/print.h"
#include "client/tools/files/status.h"
#include "client/tools/files/tensor_file.h"

namespace posenc::cli {
namespace {

constexpr FieldFlag kSchemes[] = {
    {"--packed", "packed.lengths", "LIST",
     "Sequences one after the other, of these lengths: 5,3"},

    {"--padded", "padded.lengths", "LIST", "One row per sequence: 5,3"},
    {"--padded-length", "padded.padded_length", "N", "Length of a row",
     "--padded", true},
    {"--left", "padded.left", nullptr, "The padding is in front", "--padded"},
    {"--padding-position", "padded.padding_position", "P",
     "Position of padding", "--padded"},

    {"--context-parallel", "context_parallel.lengths", "LIST",
     "One device's tokens of sequences of these lengths: chunks RANK and "
     "2 SIZE - 1 - RANK of each"},
    {"--size", "context_parallel.size", "N", "Devices", "--context-parallel",
     true},
    {"--rank", "context_parallel.rank", "N", "Device, from 0",
     "--context-parallel", true},

    {"--grid", "grid.extents", "EXTENTS", "Coordinates of grid cells: 2x4x4"},
    {"--offsets", "grid.offsets", "LIST", "Offset per axis: 0,0.5", "--grid"},
    {"--steps", "grid.steps", "LIST", "Step between cells, per axis: 1,0.5",
     "--grid"},
    {"--merge-size", "grid.merge_size", "N",
     "Orders by blocks of N x N cells of the last two axes", "--grid"},

    {"--multimodal", nullptr, "SPANS",
     "Text and images of one sequence: text:5,image:1x4x4/2,text:3 "
     "(time x height x width / merge @ time step)"},

    {"--sinks", "attention_sinks.sinks", "N",
     "First tokens that a cache keeps"},
    {"--window", "attention_sinks.window", "N",
     "Last tokens that the cache keeps", "--sinks", true},
    {"--length", "attention_sinks.length", "N", "Tokens so far", "--sinks",
     true},

    {"--vision", nullptr, "GRIDS",
     "Patches of images and videos for the tower of --tower-config: "
     "4x6,2x8x8 (height x width, or time in front)"},
    {"--tower-config", nullptr, "FILE",
     "A config.json with a vision_config, or a tower's own (-: stdin)",
     "--vision", true},
    {"--tower-merge", "vision.merge_size", "N",
     "Orders by blocks of N x N patches (default: the tower's)", "--vision"},
    {"--text", "vision.text_tokens", "N",
     "Text tokens before the patches (FLUX, Lumina 2, Qwen-Image)", "--vision"},
};

struct PositionsFlags {
  FieldFlags scheme{v1::BuildPositionsRequest::descriptor()};
  std::string out;
};

// Parses one span: "text:5" (5 tokens), or "video:4x8x8/2@2.5": time x height x
// width/merge@time_step. Blocks of merge x merge cells are one token, and
// time_step is the number of positions between frames; both are optional.
// "image:" and "video:" mean the same.
absl::Status SetSpan(absl::string_view text,
                     v1::MultimodalPositions::Span* span) {
  const absl::Status malformed = UsageError(
      absl::StrCat("--multimodal: '", text,
                   "' is no span; write text:TOKENS or "
                   "image:TIMExHEIGHTxWIDTH/MERGE@TIME_STEP (the last two as "
                   "needed)"));
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "text:")) {
    std::int64_t tokens;
    if (!absl::SimpleAtoi(rest, &tokens)) return malformed;
    span->set_text_tokens(tokens);
    return absl::OkStatus();
  }
  if (!absl::ConsumePrefix(&rest, "image:") &&
      !absl::ConsumePrefix(&rest, "video:")) {
    return malformed;
  }
  v1::MultimodalPositions::VisionGrid* const grid = span->mutable_vision();
  if (const std::size_t at = rest.find('@'); at != rest.npos) {
    double time_step;
    if (!absl::SimpleAtod(rest.substr(at + 1), &time_step)) return malformed;
    grid->set_time_step(time_step);
    rest = rest.substr(0, at);
  }
  if (const std::size_t slash = rest.find('/'); slash != rest.npos) {
    std::int32_t merge;
    if (!absl::SimpleAtoi(rest.substr(slash + 1), &merge)) return malformed;
    grid->set_spatial_merge_size(merge);
    rest = rest.substr(0, slash);
  }
  const absl::StatusOr<std::vector<std::int32_t>> extents =
      ParseExtents("--multimodal", std::string(rest));
  if (!extents.ok() || extents->size() != 3) return malformed;
  grid->set_time((*extents)[0]);
  grid->set_height((*extents)[1]);
  grid->set_width((*extents)[2]);
  return absl::OkStatus();
}

// Parses grids of patches, "4x6,2x8x8": height x width, or time x height x
// width.
absl::Status SetVision(const PositionsFlags& flags,
                       v1::VisionPositions* vision) {
  SourceFlags tower;
  tower.config = flags.scheme.Text("--tower-config");
  ASSIGN_OR_RETURN(*vision->mutable_rope(), BuildSource(tower));
  vision->mutable_rope()->set_part(v1::MODEL_PART_VISION);
  for (const absl::string_view text :
       absl::StrSplit(flags.scheme.Text("--vision"), ',')) {
    ASSIGN_OR_RETURN(const std::vector<std::int32_t> extents,
                     ParseExtents("--vision", std::string(text)));
    const std::size_t count = extents.size();
    if (count != 2 && count != 3) {
      return UsageError(absl::StrCat("--vision: '", text,
                                     "' is no grid; write HEIGHTxWIDTH or "
                                     "TIMExHEIGHTxWIDTH"));
    }
    v1::VisionPositions::Grid* const grid = vision->add_grids();
    if (count == 3) grid->set_time(extents[0]);
    grid->set_height(extents[count - 2]);
    grid->set_width(extents[count - 1]);
  }
  return absl::OkStatus();
}

absl::Status RunPositions(const PositionsFlags& flags,
                          const GlobalFlags& globals) {
  RETURN_IF_ERROR(CheckOut(flags.out));
  v1::BuildPositionsRequest request;
  RETURN_IF_ERROR(flags.scheme.Read(&request));
  if (flags.scheme.Given("--multimodal")) {
    for (const absl::string_view span :
         absl::StrSplit(flags.scheme.Text("--multimodal"), ',')) {
      RETURN_IF_ERROR(SetSpan(span, request.mutable_multimodal()->add_spans()));
    }
  } else if (flags.scheme.Given("--vision")) {
    RETURN_IF_ERROR(SetVision(flags, request.mutable_vision()));
  }
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  ASSIGN_OR_RETURN(const v1::BuildPositionsResponse response,
                   connection.client().BuildPositions(request));
  const TensorView ids = ViewOf(response.positions().ids());
  if (!flags.out.empty()) {
    RETURN_IF_ERROR(WriteTensor(flags.out, "ids", ids));
  }
  // With these schemes the next position is not the number of tokens. The next
  // position is printed, because generation continues there.
  const bool goes_on =
      request.has_multimodal() || request.has_attention_sinks();
  if (globals.json) {
    nlohmann::ordered_json json;
    json["ids"] = TensorJson(ids);
    if (flags.out.empty()) RETURN_IF_ERROR(AddValues(ids, &json["ids"]));
    if (goes_on) json["next_position"] = response.next_position();
    if (request.has_multimodal()) json["delta"] = response.delta();
    PrintJson(json);
    return absl::OkStatus();
  }
  PrintTensor("ids", ids, kShownRows);
  if (goes_on) {
    PrintFact("next position", absl::StrCat(response.next_position()));
  }
  if (request.has_multimodal()) {
    PrintFact("delta", absl::StrCat(response.delta()));
  }
  return absl::OkStatus();
}

}  // namespace

Command AddPositions(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<PositionsFlags>();
  flags->scheme.Add(app, "", kSchemes);
  flags::ShowDefault(app, "--padding-position", "0");
  AddFlag(app, "--out", &flags->out, "FILE",
          "An .npy, or .safetensors with the tensor ids");
  return [flags, globals] { return RunPositions(*flags, *globals); };
}

}  // namespace posenc::cli
