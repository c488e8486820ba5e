#include "core/rotation/cache_layout.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/base/error.h"
#include "core/base/text.h"

namespace posenc::core {
namespace {

// The layouts of engines, in the order of memory; docs/caches.md has their
// sources.
struct Engine {
  absl::string_view name, dimensions;
};
constexpr Engine kEngines[] = {
    {"llama_cpp", "BHD"},  {"lmcache", "KLBHD"},     {"sglang_hnd", "BHTD"},
    {"sglang_nhd", "BHD"}, {"vllm_packed", "BTHKD"}, {"vllm_split", "KBTHD"},
};

// Cuts `dimensions` in the message, because a request may have a long text
// there.
absl::Status WrongDimensions(absl::string_view dimensions,
                             absl::string_view fact) {
  return FieldInvalid(
      "cache.dimensions",
      absl::StrCat("\"", dimensions.substr(0, 64), "\" ", fact));
}

// Returns the letters of the dimensions.
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
    // EditDistance takes quadratic time, and no engine's name is longer than
    // this.
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
  const absl::Status countable = Prefixed("k", ElementCount(shape).status());
  if (!countable.ok()) return countable;
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
    const CacheDimension dimension = {extents[i], step};
    step *= static_cast<std::size_t>(extents[i]);
    switch (letters[i]) {
      case 'B':
        places->blocks = dimension;
        break;
      case 'T':
        places->tokens = dimension;
        break;
      case 'H':
        places->heads = dimension;
        break;
      case 'K':
        places->parts = dimension;
        break;
      case 'L':
        places->layers = dimension;
        break;
      default:
        places->head_dim = dimension.extent;
    }
  }
  places->outer = letters.substr(0, letters.find('B'));
}

// The extents of a tensor that has a list of numbers for each sequence.
struct Table {
  std::int64_t sequences = 1, width = 0;
};

absl::StatusOr<Table> ReadTable(absl::string_view field,
                                const ConstTensorView& tensor) {
  if (tensor.dtype != Dtype::kInt32 && tensor.dtype != Dtype::kInt64) {
    return FieldInvalid(
        absl::StrCat(field, ".dtype"),
        absl::StrCat(DtypeName(tensor.dtype), "; must be int32 or int64"));
  }
  const std::size_t rank = tensor.shape.size();
  if (rank != 1 && rank != 2) {
    return FieldInvalid(absl::StrCat(field, ".shape"),
                        absl::StrCat(ShapeToString(tensor.shape), " has rank ",
                                     rank, "; must be 1 or 2"));
  }
  const Table table = {rank == 2 ? tensor.shape[0] : 1, tensor.shape.back()};
  // A table without elements could have any number of sequences, even in a
  // request of a few bytes.
  if (table.width == 0 && table.sequences > 1) {
    return FieldInvalid(
        absl::StrCat(field, ".shape"),
        absl::StrCat(ShapeToString(tensor.shape), " has no elements for its ",
                     table.sequences,
                     " sequences; leave out sequences without tokens"));
  }
  return table;
}

// Extends the last of the runs by `run`, if the tokens of `run` continue it;
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

absl::Status OutOfRange(absl::string_view field, std::int64_t index,
                        double value, absl::string_view things,
                        std::int64_t count) {
  return FieldInvalid(
      field, absl::StrCat("element ", index, " is ", PositionText(value),
                          "; k has ", count, " ", things));
}

absl::Status ReadBlockTable(const CacheLayout& layout, CachePlaces* places) {
  constexpr absl::string_view kField = "cache.block_table";
  const absl::StatusOr<Table> table = ReadTable(kField, *layout.block_table);
  if (!table.ok()) return table.status();
  const std::int64_t block_size = places->tokens.extent;
  const std::int64_t blocks = places->blocks.extent;
  const auto given = static_cast<std::int64_t>(layout.lengths.size());
  if (given > 0 && given != table->sequences) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, ErrorReason::kShapeMismatch,
        "cache.lengths",
        absl::StrCat(given, " lengths for ", table->sequences, " sequences"),
        {{"expected", absl::StrCat(table->sequences)},
         {"actual", absl::StrCat(given)}});
  }
  if (given == 0 && table->width > blocks) {
    return FieldInvalid(
        kField, absl::StrCat("names ", table->width,
                             " blocks for a sequence, and k has ", blocks,
                             "; set lengths if it is padded"));
  }
  places->sequences = table->sequences;
  for (std::int64_t s = 0; s < table->sequences; ++s) {
    const std::int64_t length =
        given > 0 ? layout.lengths[s] : table->width * block_size;
    if (length < 0 ||
        (length > 0 && (length - 1) / block_size >= table->width)) {
      return FieldInvalid(
          absl::StrCat("cache.lengths[", s, "]"),
          absl::StrCat(length, " tokens do not fit ", table->width,
                       " blocks of ", block_size));
    }
    places->length = std::max(places->length, length);
    for (std::int64_t token = 0; token < length; token += block_size) {
      const std::int64_t entry = s * table->width + token / block_size;
      const double block = ElementAsDouble(*layout.block_table, entry);
      if (!(block >= 0 && block < static_cast<double>(blocks))) {
        return OutOfRange(kField, entry, block, "blocks", blocks);
      }
      Add({static_cast<std::int64_t>(block) * block_size, s, token,
           std::min(block_size, length - token)},
          &places->runs);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadSlots(const CacheLayout& layout, CachePlaces* places) {
  constexpr absl::string_view kField = "cache.slots";
  const absl::StatusOr<Table> table = ReadTable(kField, *layout.slots);
  if (!table.ok()) return table.status();
  if (!layout.lengths.empty()) {
    return FieldInvalid("cache.lengths",
                        "beside slots; a token without a slot is -1");
  }
  places->sequences = table->sequences;
  places->length = table->width;
  for (std::int64_t i = 0; i < table->sequences * table->width; ++i) {
    const double slot = ElementAsDouble(*layout.slots, i);
    if (slot == -1) continue;
    if (!(slot >= 0 && slot < static_cast<double>(places->slots))) {
      return OutOfRange(kField, i, slot, "slots", places->slots);
    }
    Add({static_cast<std::int64_t>(slot), i / table->width, i % table->width,
         1},
        &places->runs);
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

bool CachePlaces::Moves(std::int64_t layer) const {
  return moved_layers.empty() ||
         std::binary_search(moved_layers.begin(), moved_layers.end(), layer);
}

absl::StatusOr<CachePlaces> FindPlaces(const CacheLayout& layout,
                                       const ConstTensorView& k,
                                       const ReserveFunction& reserve) {
  const absl::StatusOr<std::string> letters = Letters(layout.dimensions);
  if (!letters.ok()) return letters.status();
  const absl::StatusOr<Shape> extents = Extents(*letters, k.shape);
  if (!extents.ok()) return extents.status();
  const bool by_slots = layout.slots.has_value();
  if (by_slots == layout.block_table.has_value()) {
    return by_slots
               ? FieldInvalid("cache.slots", "beside block_table; give one")
               : FieldRequired("cache.block_table",
                               "block_table and slots are both unset; one of "
                               "them must say which tokens k holds");
  }
  CachePlaces places;
  ReadDimensions(*letters, *extents, k.dtype, &places);
  absl::Status status = ReadLayers(layout, &places);
  if (!status.ok()) return status;
  // If an extent is 0, the other extents may be of any size, so the steps below
  // cannot use them.
  if (std::find(extents->begin(), extents->end(), 0) != extents->end()) {
    return places;
  }
  places.slots = places.blocks.extent * places.tokens.extent;
  const Shape& table = (by_slots ? layout.slots : layout.block_table)->shape;
  const absl::StatusOr<std::int64_t> runs = ElementCount(table);
  if (!runs.ok()) {
    return Prefixed(by_slots ? "cache.slots" : "cache.block_table",
                    runs.status());
  }
  if (reserve) {
    status = reserve(*runs * static_cast<std::int64_t>(sizeof(SlotRun)));
    if (!status.ok()) return status;
  }
  // Allocates the runs at once. A vector that grows would need up to three
  // times the memory that was reserved above.
  places.runs.reserve(*runs);
  status =
      by_slots ? ReadSlots(layout, &places) : ReadBlockTable(layout, &places);
  if (status.ok()) {
    status = SortRuns(by_slots ? "cache.slots" : "cache.block_table", &places);
  }
  if (!status.ok()) return status;
  return places;
}

}  // namespace posenc::core
