// `posenc positions`: the position ids of a batch that is packed, padded, split
// over devices, a grid, multimodal, a cache with attention sinks, or the
// patches of a vision tower.

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/commands.h"
#include "client/cli/connection.h"
#include "client/cli/options.h"
#include "client/cli/print.h"
#include "client/cli/status.h"
#include "client/cli/tensor_file.h"

namespace posenc::cli {
namespace {

// One of the seven schemes is given; the fields after it are its details.
struct PositionsFlags {
  std::string packed;
  std::string padded;
  std::int64_t padded_length = 0;
  bool left = false;
  std::int64_t padding_position = 0;
  std::string context_parallel;
  std::int32_t size = 0;
  std::int32_t rank = 0;
  std::string grid;
  std::string offsets;
  std::string steps;
  std::int32_t merge_size = 0;
  std::string multimodal;
  std::optional<std::int64_t> sinks;
  std::int64_t window = 0;
  std::int64_t length = 0;
  std::string vision;
  SourceFlags tower;
  std::int32_t vision_merge = 0;
  std::int64_t text_tokens = 0;
  std::string out;
};

absl::Status SetIntegers(const char* flag, const std::string& text,
                         google::protobuf::RepeatedField<std::int64_t>* field) {
  const absl::StatusOr<std::vector<std::int64_t>> values =
      ParseIntegers(flag, text);
  if (values.ok()) field->Assign(values->begin(), values->end());
  return values.status();
}

absl::Status SetGrid(const PositionsFlags& flags, v1::GridPositions* grid) {
  const absl::StatusOr<std::vector<std::int32_t>> extents =
      ParseExtents("--grid", flags.grid);
  if (!extents.ok()) return extents.status();
  grid->mutable_extents()->Assign(extents->begin(), extents->end());
  grid->set_merge_size(flags.merge_size);
  absl::Status status =
      ParseNumbers("--offsets", flags.offsets, grid->mutable_offsets());
  if (status.ok()) {
    status = ParseNumbers("--steps", flags.steps, grid->mutable_steps());
  }
  return status;
}

// Parses one span: "text:5" (5 tokens), or "image:" and "video:" with time x
// height x width, then, both optional, "/merge" (blocks of merge x merge cells
// are one token) and "@time_step" (positions between frames):
// "video:4x8x8/2@2.5". An image is a video of one frame; the two words mean the
// same.
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

// Parses grids of patches, "4x6,2x8x8": height x width, or time in front.
absl::Status SetVision(const PositionsFlags& flags,
                       v1::VisionPositions* vision) {
  const absl::StatusOr<v1::RopeSource> tower = BuildSource(flags.tower);
  if (!tower.ok()) return tower.status();
  *vision->mutable_rope() = *tower;
  for (const absl::string_view text : absl::StrSplit(flags.vision, ',')) {
    const absl::StatusOr<std::vector<std::int32_t>> extents =
        ParseExtents("--vision", std::string(text));
    if (!extents.ok()) return extents.status();
    const std::size_t count = extents->size();
    if (count != 2 && count != 3) {
      return UsageError(absl::StrCat("--vision: '", text,
                                     "' is no grid; write HEIGHTxWIDTH or "
                                     "TIMExHEIGHTxWIDTH"));
    }
    v1::VisionPositions::Grid* const grid = vision->add_grids();
    if (count == 3) grid->set_time((*extents)[0]);
    grid->set_height((*extents)[count - 2]);
    grid->set_width((*extents)[count - 1]);
  }
  vision->set_merge_size(flags.vision_merge);
  vision->set_text_tokens(flags.text_tokens);
  return absl::OkStatus();
}

absl::StatusOr<v1::BuildPositionsRequest> BuildRequest(
    const PositionsFlags& flags) {
  v1::BuildPositionsRequest request;
  absl::Status status;
  if (!flags.packed.empty()) {
    status = SetIntegers("--packed", flags.packed,
                         request.mutable_packed()->mutable_lengths());
  } else if (!flags.padded.empty()) {
    v1::PaddedPositions* const padded = request.mutable_padded();
    status = SetIntegers("--padded", flags.padded, padded->mutable_lengths());
    padded->set_padded_length(flags.padded_length);
    padded->set_left(flags.left);
    padded->set_padding_position(flags.padding_position);
  } else if (!flags.context_parallel.empty()) {
    v1::ContextParallelPositions* const parallel =
        request.mutable_context_parallel();
    status = SetIntegers("--context-parallel", flags.context_parallel,
                         parallel->mutable_lengths());
    parallel->set_size(flags.size);
    parallel->set_rank(flags.rank);
  } else if (!flags.grid.empty()) {
    status = SetGrid(flags, request.mutable_grid());
  } else if (!flags.multimodal.empty()) {
    for (const absl::string_view span : absl::StrSplit(flags.multimodal, ',')) {
      status = SetSpan(span, request.mutable_multimodal()->add_spans());
      if (!status.ok()) return status;
    }
  } else if (flags.sinks) {
    v1::AttentionSinkPositions* const sinks = request.mutable_attention_sinks();
    sinks->set_sinks(*flags.sinks);
    sinks->set_window(flags.window);
    sinks->set_length(flags.length);
  } else if (!flags.vision.empty()) {
    status = SetVision(flags, request.mutable_vision());
  } else {
    status = UsageError(
        "one of --packed, --padded, --context-parallel, --grid, --multimodal, "
        "--sinks and --vision is required");
  }
  if (!status.ok()) return status;
  return request;
}

absl::Status RunPositions(const PositionsFlags& flags,
                          const GlobalFlags& globals) {
  const absl::Status out = CheckOut(flags.out);
  if (!out.ok()) return out;
  const absl::StatusOr<v1::BuildPositionsRequest> request = BuildRequest(flags);
  if (!request.ok()) return request.status();
  const absl::StatusOr<Connection> connection = Connection::Open(globals);
  if (!connection.ok()) return connection.status();
  const absl::StatusOr<v1::BuildPositionsResponse> response =
      connection->client().BuildPositions(*request);
  if (!response.ok()) return response.status();
  const TensorView ids = ViewOf(response->positions().ids());
  if (!flags.out.empty()) {
    const absl::Status written = WriteTensor(flags.out, "ids", ids);
    if (!written.ok()) return written;
  }
  // After these schemes a position is not the number of tokens before it, so
  // that who goes on generating must be told the next one.
  const bool goes_on =
      request->has_multimodal() || request->has_attention_sinks();
  if (globals.json) {
    nlohmann::ordered_json json;
    json["ids"] = TensorJson(ids);
    if (flags.out.empty()) {
      const absl::Status status = AddValues(ids, &json["ids"]);
      if (!status.ok()) return status;
    }
    if (goes_on) json["next_position"] = response->next_position();
    if (request->has_multimodal()) json["delta"] = response->delta();
    PrintJson(json);
    return absl::OkStatus();
  }
  PrintTensor("ids", ids, kShownRows);
  if (goes_on) {
    PrintFact("next position", absl::StrCat(response->next_position()));
  }
  if (request->has_multimodal()) {
    PrintFact("delta", absl::StrCat(response->delta()));
  }
  return absl::OkStatus();
}

}  // namespace

Command AddPositions(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<PositionsFlags>();
  const auto add = [&](const char* names, auto* value, const char* text,
                       const char* type) {
    return app->add_option(names, *value, text)->type_name(type);
  };
  CLI::Option* const packed =
      add("--packed", &flags->packed,
          "Sequences one after the other, of these lengths: 5,3", "LIST");

  CLI::Option* const padded =
      add("--padded", &flags->padded, "One row per sequence: 5,3", "LIST");
  padded->needs(add("--to,--padded-length", &flags->padded_length,
                    "Length of a row", "N"));
  app->get_option("--to")->needs(padded);
  app->add_flag("--left", flags->left, "The padding is in front")
      ->needs(padded);
  add("--padding-position", &flags->padding_position, "What padding gets", "P")
      ->needs(padded)
      ->capture_default_str();

  CLI::Option* const parallel =
      add("--context-parallel", &flags->context_parallel,
          "One device's tokens of sequences of these lengths: chunks RANK and "
          "2 SIZE - 1 - RANK of each",
          "LIST");
  parallel->needs(add("--size", &flags->size, "Devices", "N"));
  parallel->needs(add("--rank", &flags->rank, "Which of them", "N"));
  app->get_option("--size")->needs(parallel);
  app->get_option("--rank")->needs(parallel);

  CLI::Option* const grid = add("--grid", &flags->grid,
                                "Coordinates of grid cells: 2x4x4", "EXTENTS");
  add("--offsets", &flags->offsets, "Of each axis: 0,0.5", "LIST")->needs(grid);
  add("--steps", &flags->steps, "Between cells of each axis: 1,0.5", "LIST")
      ->needs(grid);
  add("--merge,--merge-size", &flags->merge_size,
      "In blocks of N x N cells of the last two axes", "N")
      ->needs(grid);

  CLI::Option* const multimodal =
      add("--multimodal", &flags->multimodal,
          "Text and images of one sequence: text:5,image:1x4x4/2,text:3 "
          "(time x height x width / merge @ time step)",
          "SPANS");

  CLI::Option* const sinks =
      add("--sinks", &flags->sinks, "First tokens that a cache keeps", "N");
  sinks->needs(
      add("--window", &flags->window, "Last tokens that it keeps", "N"));
  sinks->needs(add("--length", &flags->length, "Tokens so far", "N"));
  app->get_option("--window")->needs(sinks);
  app->get_option("--length")->needs(sinks);

  CLI::Option* const vision =
      add("--vision", &flags->vision,
          "Patches of images and videos, as the tower of --tower-config or "
          "--tower-preset has them: 4x6,2x8x8 (height x width, or time in "
          "front)",
          "GRIDS");
  AddSourceFlags(app, "tower-", "Vision tower, for --vision", &flags->tower);
  add("--tower-merge", &flags->vision_merge,
      "In blocks of N x N patches (default: the tower's)", "N")
      ->needs(vision);
  add("--text", &flags->text_tokens,
      "Text tokens before the patches (FLUX, Lumina 2, Qwen-Image)", "N")
      ->needs(vision);

  const std::initializer_list<CLI::Option*> schemes = {
      packed, padded, parallel, grid, multimodal, sinks, vision};
  for (CLI::Option* a : schemes) {
    for (CLI::Option* b : schemes) {
      if (a != b) a->excludes(b);
    }
  }
  add("--out", &flags->out, "An .npy, or .safetensors with the tensor ids",
      "FILE");
  return [flags, globals] { return RunPositions(*flags, *globals); };
}

}  // namespace posenc::cli
