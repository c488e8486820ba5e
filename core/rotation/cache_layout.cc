#include "core/rotation/cache_layout.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace posenc::core {
namespace {

// The layouts of engines, with the dimensions in the order of memory;
// docs/caches.md has their sources.
struct Engine {
  absl::string_view name, dimensions;
};
constexpr Engine kEngines[] = {
    {"llama_cpp", "BHD"},  {"lmcache", "KLBHD"},     {"sglang_hnd", "BHTD"},
    {"sglang_nhd", "BHD"}, {"vllm_packed", "BTHKD"}, {"vllm_split", "KBTHD"},
};

// Shortens `dimensions` in the message, because a request may contain a long
// text.
absl::Status WrongDimensions(absl::string_view dimensions,
                             absl::string_view fact) {
  return FieldInvalid(
      "cache.dimensions",
      absl::StrCat("\"", dimensions.substr(0, 64), "\" ", fact));
}

absl::StatusOr<std::string> Letters(const std::string& dimensions) {
  if (dimensions.empty()) {
    return FieldRequired("cache.dimensions",
                         "not given; name each dimension of k, as \"BTHD\"");
  }
  for (const Engine& engine : kEngines) {
    if (engine.name == dimensions) return std::string(engine.dimensions);
  }
  const bool known =
      dimensions.find_first_not_of("BTHDKL") == std::string::npos;
  if (!known) {
    // EditDistance takes quadratic time, and no engine's name has more than 64
    // letters.
    const absl::string_view shown = absl::string_view(dimensions).substr(0, 64);
    const Engine* const near = std::min_element(
        std::begin(kEngines), std::end(kEngines),
        [shown](const Engine& a, const Engine& b) {
          return EditDistance(shown, a.name) < EditDistance(shown, b.name);
        });
    return WrongDimensions(
        shown,
        absl::StrCat("is unknown; near: ", near->name,
                     "; use the letters B, T, H, D, K, L, or one of ",
                     absl::StrJoin(kEngines, ", ",
                                   [](std::string* out, const Engine& engine) {
                                     absl::StrAppend(out, engine.name);
                                   })));
  }
  std::string sorted = dimensions;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return WrongDimensions(
        dimensions, absl::StrCat("has ", std::string(1, *twice), " twice"));
  }
  if (!absl::StrContains(dimensions, 'B') || dimensions.back() != 'D') {
    return WrongDimensions(
        dimensions,
        "lacks B, or does not end with D; k has blocks, and the "
        "channels of a head are adjacent");
  }
  if (dimensions.find('T') < dimensions.find('B')) {
    return WrongDimensions(
        dimensions, "has T before B; the tokens of a block stand behind it");
  }
  return dimensions;
}

// Returns the extent of each letter's dimension. If the last dimension holds
// keys and values side by side, it becomes two dimensions.
absl::StatusOr<Shape> Extents(const std::string& letters, const Shape& shape) {
  const std::string text = ShapeToString(shape);
  Shape extents = shape;
  if (absl::EndsWith(letters, "KD") && shape.size() + 1 == letters.size()) {
    if (shape.back() % 2 != 0) {
      return FieldInvalid("k.shape",
                          absl::StrCat(text, " ends with ", shape.back(),
                                       "; keys and values side by side are 2 "
                                       "* head_dim wide"));
    }
    extents.back() = 2;
    extents.push_back(shape.back() / 2);
  }
  if (extents.size() != letters.size()) {
    return FieldInvalid(
        "k.shape", absl::StrCat(text, " has rank ", shape.size(), "; ", letters,
                                " has ", letters.size()));
  }
  RETURN_IF_ERROR(Prefixed("k", ElementCount(shape).status()));
  const std::size_t part = letters.find('K');
  if (part != std::string::npos && extents[part] != 2) {
    return FieldInvalid("k.shape",
                        absl::StrCat(text, " has ", extents[part],
                                     " for K; keys and values are 2"));
  }
  return extents;
}

void ReadDimensions(const std::string& letters, const Shape& extents,
                    Dtype dtype, CachePlaces* places) {
  std::size_t step = DtypeSize(dtype);
  for (std::size_t i = letters.size(); i-- > 0;) {
    places->*DimensionOf(letters[i]) = {extents[i], step};
    step *= static_cast<std::size_t>(extents[i]);
  }
  places->outer = letters.substr(0, letters.find('B'));
}

// If the tokens of `run` continue the last run, adds them to the last run;
// otherwise appends `run`.
void Add(const SlotRun& run, std::vector<SlotRun>* runs) {
  if (!runs->empty()) {
    SlotRun& last = runs->back();
    if (last.sequence == run.sequence && last.slot + last.count == run.slot &&
        last.token + last.count == run.token) {
      last.count += run.count;
      return;
    }
  }
  runs->push_back(run);
}

// Checks the lengths of the sequences of a block table with `width` blocks for
// each of `sequences` sequences.
absl::Status CheckLengths(const CacheLayout& layout, const CachePlaces& places,
                          std::int64_t sequences, std::int64_t width) {
  const auto given = static_cast<std::int64_t>(layout.lengths.size());
  if (given == 0) {
    if (width <= places.blocks.extent) return absl::OkStatus();
    return FieldInvalid(
        "cache.block_table",
        absl::StrCat("names ", width, " blocks for a sequence, and k has ",
                     places.blocks.extent, "; set lengths if it is padded"));
  }
  if (given != sequences) {
    return ShapeMismatch(
        "cache.lengths",
        absl::StrCat(given, " lengths for ", sequences, " sequences"),
        absl::StrCat(sequences), absl::StrCat(given));
  }
  const std::int64_t block_size = places.tokens.extent;
  for (std::int64_t s = 0; s < given; ++s) {
    const std::int64_t length = layout.lengths[s];
    if (length < 0 || (length > 0 && (length - 1) / block_size >= width)) {
      return FieldInvalid(absl::StrCat("cache.lengths[", s, "]"),
                          absl::StrCat(length, " tokens do not fit ", width,
                                       " blocks of ", block_size));
    }
  }
  return absl::OkStatus();
}

// Reads the tensor `field`, which has a list of blocks, or of slots, for each
// sequence.
absl::Status ReadRuns(absl::string_view field, const CacheLayout& layout,
                      CachePlaces* places) {
  const bool by_slots = layout.slots.has_value();
  const ConstTensorView& tensor =
      by_slots ? *layout.slots : *layout.block_table;
  if (tensor.dtype != Dtype::kInt32 && tensor.dtype != Dtype::kInt64) {
    return MustBe(absl::StrCat(field, ".dtype"), DtypeName(tensor.dtype),
                  "int32 or int64");
  }
  const std::string shape_field = absl::StrCat(field, ".shape");
  const std::size_t rank = tensor.shape.size();
  if (rank != 1 && rank != 2) {
    return FieldInvalid(shape_field,
                        absl::StrCat(ShapeToString(tensor.shape), " has rank ",
                                     rank, "; must be 1 or 2"));
  }
  const std::int64_t sequences = rank == 2 ? tensor.shape[0] : 1;
  const std::int64_t width = tensor.shape.back();
  // A table without elements could have any number of sequences, even in a
  // request of a few bytes.
  if (width == 0 && sequences > 1) {
    return FieldInvalid(
        shape_field,
        absl::StrCat(ShapeToString(tensor.shape), " has no elements for its ",
                     sequences,
                     " sequences; leave out sequences without tokens"));
  }
  if (!by_slots) {
    RETURN_IF_ERROR(CheckLengths(layout, *places, sequences, width));
  } else if (!layout.lengths.empty()) {
    return FieldInvalid("cache.lengths",
                        "beside slots; a token without a slot is -1");
  }
  places->sequences = sequences;
  // Each element of the tensor names this many slots, which hold consecutive
  // tokens.
  const std::int64_t size = by_slots ? 1 : places->tokens.extent;
  const std::int64_t count = places->slots / size;
  for (std::int64_t s = 0; s < sequences; ++s) {
    const std::int64_t length =
        layout.lengths.empty() ? width * size : layout.lengths[s];
    places->length = std::max(places->length, length);
    for (std::int64_t token = 0; token < length; token += size) {
      const std::int64_t i = s * width + token / size;
      const double value = ElementAsDouble(tensor, i);
      if (by_slots && value == -1) continue;
      if (!(value >= 0 && value < static_cast<double>(count))) {
        return FieldInvalid(
            field,
            absl::StrCat("element ", i, " is ", PlainNumber(value), "; k has ",
                         count, by_slots ? " slots" : " blocks"));
      }
      Add({static_cast<std::int64_t>(value) * size, s, token,
           std::min(size, length - token)},
          &places->runs);
    }
  }
  return absl::OkStatus();
}

// Sorts the runs. Returns an error if a slot has two tokens.
absl::Status SortRuns(absl::string_view field, CachePlaces* places) {
  std::vector<SlotRun>& runs = places->runs;
  std::sort(runs.begin(), runs.end(), [](const SlotRun& a, const SlotRun& b) {
    return std::tie(a.slot, a.sequence, a.token) <
           std::tie(b.slot, b.sequence, b.token);
  });
  for (std::size_t i = 1; i < runs.size(); ++i) {
    const SlotRun &a = runs[i - 1], &b = runs[i];
    const std::int64_t ahead = b.slot - a.slot;
    if (ahead >= a.count) continue;
    return FieldInvalid(
        field,
        absl::StrCat("block ", b.slot / places->tokens.extent, " holds token ",
                     a.token + ahead, " of sequence ", a.sequence,
                     " and token ", b.token, " of sequence ", b.sequence,
                     " in one slot; a key cannot move twice: give "
                     "one of them a copy of the block"));
  }
  return absl::OkStatus();
}

absl::Status ReadLayers(const CacheLayout& layout, CachePlaces* places) {
  for (std::size_t i = 0; i < layout.layers.size(); ++i) {
    const std::int64_t layer = layout.layers[i];
    if (layer >= 0 && layer < places->layers.extent) continue;
    return FieldInvalid(
        absl::StrCat("cache.layers[", i, "]"),
        absl::StrCat(layer, "; k has ", places->layers.extent, " layers"));
  }
  const auto numbers = static_cast<std::int64_t>(layout.model_layers.size());
  if (numbers > kMaxModelLayers) {
    return FieldInvalid(
        "cache.model_layers",
        absl::StrCat("has ", numbers, " numbers; at most ", kMaxModelLayers));
  }
  if (numbers > 0 && numbers != places->layers.extent) {
    return FieldInvalid("cache.model_layers",
                        absl::StrCat("has ", numbers, " numbers; k has ",
                                     places->layers.extent, " layers"));
  }
  places->moved_layers = layout.layers;
  std::sort(places->moved_layers.begin(), places->moved_layers.end());
  return absl::OkStatus();
}

}  // namespace

CacheDimension CachePlaces::*DimensionOf(char letter) {
  return letter == 'B'   ? &CachePlaces::blocks
         : letter == 'T' ? &CachePlaces::tokens
         : letter == 'H' ? &CachePlaces::heads
         : letter == 'D' ? &CachePlaces::channels
         : letter == 'K' ? &CachePlaces::parts
                         : &CachePlaces::layers;
}

bool CachePlaces::Moves(std::int64_t layer) const {
  return moved_layers.empty() ||
         std::binary_search(moved_layers.begin(), moved_layers.end(), layer);
}

absl::StatusOr<CachePlaces> FindPlaces(const CacheLayout& layout,
                                       const ConstTensorView& k,
                                       const ReserveFunction& reserve) {
  ASSIGN_OR_RETURN(const std::string letters, Letters(layout.dimensions));
  ASSIGN_OR_RETURN(const Shape extents, Extents(letters, k.shape));
  const bool by_slots = layout.slots.has_value();
  if (by_slots == layout.block_table.has_value()) {
    return by_slots
               ? FieldInvalid("cache.slots", "beside block_table; give one")
               : FieldRequired("cache.block_table",
                               "block_table and slots are both unset; one of "
                               "them must say which tokens k holds");
  }
  CachePlaces places;
  ReadDimensions(letters, extents, k.dtype, &places);
  RETURN_IF_ERROR(ReadLayers(layout, &places));
  // If an extent is 0, the other extents may be of any size, so the steps below
  // cannot use them.
  if (std::find(extents.begin(), extents.end(), 0) != extents.end()) {
    return places;
  }
  places.slots = places.blocks.extent * places.tokens.extent;
  const absl::string_view field =
      by_slots ? "cache.slots" : "cache.block_table";
  const absl::StatusOr<std::int64_t> runs =
      ElementCount((by_slots ? layout.slots : layout.block_table)->shape);
  RETURN_IF_ERROR(Prefixed(field, runs.status()));
  if (reserve) {
    RETURN_IF_ERROR(
        reserve(*runs * static_cast<std::int64_t>(sizeof(SlotRun))));
  }
  // Allocates the memory of all runs at once. A vector that grows would need up
  // to three times the memory that was reserved above.
  places.runs.reserve(*runs);
  RETURN_IF_ERROR(ReadRuns(field, layout, &places));
  RETURN_IF_ERROR(SortRuns(field, &places));
  return places;
}

}  // namespace posenc::core
