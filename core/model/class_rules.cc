#include "core/model/class_rules.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/model/profile.h"

namespace posenc::core {
namespace {

using nlohmann::json;

enum class Rule { kEqual, kMultiple, kEven, kBelow, kAtMost };

// Of two numbers of a file, or lengths of lists, each by its path, and what the
// class takes for an absent one; 0: without it there is no rule. By the
// validators of transformers 5.23.0.
struct ClassRule {
  absl::string_view model_types;  // as files spell them, separated by blanks
  absl::string_view left;
  std::int64_t left_default;
  Rule rule;
  absl::string_view right = {};
  std::int64_t right_default = 0;
};

constexpr ClassRule kRules[] = {
    {"clip_vision_model", "hidden_size", 768, Rule::kMultiple,
     "num_attention_heads", 12},
    {"unlimited_ocr_vision_encoder", "hidden_size", 1024, Rule::kMultiple,
     "num_attention_heads", 16},
    {"dots3_note_vision_encoder", "hidden_size", 1536, Rule::kMultiple,
     "num_attention_heads", 24},
    {"dots3_note_vision_encoder", "adapter_in_dim", 1536, Rule::kEqual,
     "hidden_size", 1536},
    {"dots3_note_vision_encoder", "adapter_merge_size", 2, Rule::kEqual,
     "spatial_merge_size", 2},
    {"dots3_note_audio_encoder", "adapter_input_size", 1280, Rule::kEqual,
     "hidden_size", 1280},
    {"dots3_note", "vision_config.adapter_out_dim", 5120, Rule::kEqual,
     "text_config.hidden_size", 5120},
    {"dots3_note", "audio_config.adapter_out_dim", 5120, Rule::kEqual,
     "text_config.hidden_size", 5120},
    {"granite_docling", "vision_config.out_hidden_size", 1024, Rule::kEqual,
     "text_config.hidden_size", 1024},
    {"muse_spark", "audio_config.out_hidden_size", 8192, Rule::kEqual,
     "text_config.hidden_size", 8192},
    {"fun_asr_nano", "adaptor_config.hidden_size", 1024, Rule::kEqual,
     "text_config.hidden_size", 1024},
    {"vibevoice", "diffusion_head_config.hidden_size", 4096, Rule::kEqual,
     "text_config.hidden_size", 4096},
    {"vibevoice", "diffusion_head_config.latent_size", 64, Rule::kEqual,
     "audio_config.hidden_size", 64},
    {"vibevoice_asr", "acoustic_tokenizer_chunk_size", 1440000, Rule::kMultiple,
     "acoustic_tokenizer_encoder_config.hop_length", 3200},
    {"pocket_tts", "flow_head_config.condition_dim", 1024, Rule::kEqual,
     "hidden_size", 1024},
    {"gradium_phonon_tts", "flow_head_config.condition_dim", 768, Rule::kEqual,
     "hidden_size", 768},
    {"pocket_tts gradium_phonon_tts", "flow_head_config.latent_dim", 32,
     Rule::kEqual, "latent_dim", 32},
    {"t5gemma2", "encoder.text_config.hidden_size", 2304, Rule::kEqual,
     "decoder.hidden_size", 2304},
    {"t5gemma2", "encoder.text_config.vocab_size", 262208, Rule::kEqual,
     "decoder.vocab_size", 262208},
    {"nemotron3_diarization", "head_config.audio_hidden_size", 512,
     Rule::kEqual, "audio_config.hidden_size", 512},
    {"nemotron3_diarization", "head_config.subsampling_factor", 8, Rule::kEqual,
     "audio_config.subsampling_factor", 8},
    {"nemotron3_diarization", "streaming_config.num_speakers", 8, Rule::kEqual,
     "head_config.num_speakers", 8},
    {"nemotron3_diarization", "chunk_right_context", 40, Rule::kBelow,
     "chunk_length", 340},
    {"mimi mimi_encoder mimi_decoder", "num_semantic_quantizers", 1,
     Rule::kBelow, "num_quantizers", 32},
    {"moshi", "num_codebooks", 8, Rule::kAtMost,
     "audio_encoder_config.num_quantizers", 32},
    {"idefics2_perceiver", "num_key_value_heads", 4, Rule::kAtMost,
     "resampler_n_heads", 16},
    {"jetmoe", "num_experts_per_tok", 2, Rule::kAtMost, "num_local_experts", 8},
    {"recurrent_gemma", "num_key_value_heads", 1, Rule::kAtMost,
     "num_attention_heads", 10},
    {"moshi", "ffn_dim", 22528, Rule::kEven},
    {"moshi_depth", "ffn_dim", 5632, Rule::kEven},
    {"kyutai_speech_to_text", "ffn_dim", 11264, Rule::kEven},
    {"phi4_multimodal_audio", "time_reduction", 8, Rule::kEven},
    {"pi0", "dit_config.hidden_size", 1024, Rule::kEven},
    {"pi0", "dit_config.head_dim", 256, Rule::kEven},
    {"zaya", "num_experts_per_tok", 1, Rule::kEqual, "", 1},
    {"fast_vlm", "vision_feature_layer", -1, Rule::kEqual, "", -1},
    {"dia", "decoder_config.num_channels", 9, Rule::kEqual, "delay_pattern", 9},
    {"laguna", "num_attention_heads_per_layer", 0, Rule::kEqual,
     "num_hidden_layers", 40},
    {"mistral_large4_text", "kv_source_layers", 0, Rule::kEqual,
     "num_hidden_layers", 72},
    {"muse_spark_audio", "patch_sizes", 4, Rule::kEqual, "num_hidden_layers",
     4},
    {"muse_spark_audio", "hidden_sizes", 4, Rule::kEqual, "num_hidden_layers",
     4},
    {"muse_spark_audio", "depths", 4, Rule::kEqual, "num_hidden_layers", 4},
};

// Words that a class takes for a key, fewer than its kin.
struct WordRule {
  absl::string_view model_type;
  absl::string_view key;
  absl::string_view words;  // separated by blanks
};

constexpr WordRule kWordRules[] = {
    {"fast_vlm", "vision_feature_select_strategy", "full"},
    {"aya_vision", "vision_feature_select_strategy", "default full"},
};

// What a file says there.
struct Said {
  std::int64_t number = 0;
  std::string text;
};

// nullopt for another value than an integer or a list: other rules are about
// it.
std::optional<Said> At(const JsonObject& config, absl::string_view path,
                       std::int64_t otherwise) {
  std::optional<Said> absent;
  if (otherwise != 0) {
    absent =
        Said{otherwise, absl::StrCat(path, " is absent and then ", otherwise)};
  }
  JsonObject part = config;
  std::vector<std::string> keys = absl::StrSplit(path, '.');
  for (; keys.size() > 1; keys.erase(keys.begin())) {
    const json* inner = part.Find(keys[0]);
    if (inner == nullptr || inner->is_null()) return absent;
    if (!inner->is_object()) return std::nullopt;
    part = part.PeekObject(keys[0]);
  }
  const json* value = part.Find(keys[0]);
  if (value == nullptr) return absent;
  if (value->is_array()) {
    const auto size = static_cast<std::int64_t>(value->size());
    return Said{size, absl::StrCat(path, " has ", size, " elements")};
  }
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (!value->is_number_integer() ||
      (value->is_number_unsigned() && value->get<std::uint64_t>() > kMost)) {
    return std::nullopt;
  }
  const auto number = value->get<std::int64_t>();
  return Said{number, absl::StrCat(path, " is ", number)};
}

bool Holds(Rule rule, std::int64_t left, std::int64_t right) {
  switch (rule) {
    case Rule::kEqual:
      return left == right;
    case Rule::kMultiple:
      return right > 0 && left % right == 0;
    case Rule::kEven:
      return left % 2 == 0;
    case Rule::kBelow:
      return left < right;
    case Rule::kAtMost:
      return left <= right;
  }
  return true;
}

absl::string_view InWords(Rule rule) {
  switch (rule) {
    case Rule::kEqual:
      return "the two equal";
    case Rule::kMultiple:
      return "the former a multiple of the latter";
    case Rule::kEven:
      return "an even number";
    case Rule::kBelow:
      return "the former below the latter";
    case Rule::kAtMost:
      return "the former at most the latter";
  }
  return "";
}

void Warn(const JsonObject& config, absl::string_view model_type,
          absl::string_view said, absl::string_view wanted,
          std::vector<std::string>* warnings) {
  warnings->push_back(absl::StrCat(
      config.Path().empty() ? "" : absl::StrCat(config.Path(), "."), said,
      ", and transformers' class of model_type ", model_type, " wants ", wanted,
      ": it refuses the file; it has no part in rotation"));
}

// Bamba's and its kin's state-space heads: together they are as wide as the
// layer.
void WarnOfMamba(const JsonObject& config, absl::string_view model_type,
                 std::vector<std::string>* warnings) {
  if (!IsAmong(model_type, "bamba falcon_h1 granitemoehybrid")) return;
  const auto hidden = At(config, "hidden_size", 4096);
  const auto expand = At(config, "mamba_expand", 2);
  const auto heads = At(config, "mamba_n_heads", 128);
  if (!hidden || !expand || !heads) return;
  std::int64_t width = 0;
  if (__builtin_mul_overflow(expand->number, hidden->number, &width)) return;
  const json* own = config.Find("mamba_d_ssm");
  if (model_type == "falcon_h1" && (own == nullptr || !own->is_null())) {
    const auto given = At(config, "mamba_d_ssm", 1024);
    if (!given) return;
    width = given->number;
  }
  const json* head = config.Find("mamba_d_head");
  const bool is_auto = head == nullptr || *head == "auto";
  const auto head_dim = is_auto ? Said{} : At(config, "mamba_d_head", 1);
  if (!head_dim) return;
  std::int64_t together = 0;
  if (heads->number > 0 && width % heads->number == 0 &&
      (is_auto ||
       (!__builtin_mul_overflow(head_dim->number, heads->number, &together) &&
        together == width))) {
    return;
  }
  Warn(config, model_type,
       absl::StrCat(heads->text,
                    is_auto ? "" : absl::StrCat(", and ", head_dim->text)),
       absl::StrCat("such heads to be ", width, " channels wide together"),
       warnings);
}

// Kimi Linear's lists of layers, counted from 1, which together name each.
void WarnOfKimiLayers(const JsonObject& config, absl::string_view model_type,
                      std::vector<std::string>* warnings) {
  const json* types = config.Find("layer_types");
  if (model_type != "kimi_linear" || (types != nullptr && !types->is_null())) {
    return;
  }
  const auto layers = At(config, "num_hidden_layers", 27);
  const json* part = config.Find("linear_attn_config");
  if (!layers || part == nullptr || !part->is_object()) return;
  std::set<std::int64_t> named;
  for (const char* key : {"full_attn_layers", "kda_layers"}) {
    const auto list = part->find(key);
    if (list == part->end() || !list->is_array()) return;
    for (const json& layer : *list) {
      if (layer.is_number_integer()) named.insert(layer.get<std::int64_t>());
    }
  }
  const auto count = static_cast<std::int64_t>(named.size());
  if (count == layers->number &&
      (count == 0 || (*named.begin() == 1 && *named.rbegin() == count))) {
    return;
  }
  Warn(config, model_type,
       absl::StrCat("linear_attn_config names ", count, " layers"),
       absl::StrCat("layers 1 to ", layers->number, " in its two lists"),
       warnings);
}

}  // namespace

void WarnOfClassRules(const JsonObject& config, absl::string_view model_type,
                      std::vector<std::string>* warnings) {
  for (const ClassRule& row : kRules) {
    if (!IsAmong(model_type, row.model_types)) continue;
    const auto left = At(config, row.left, row.left_default);
    const bool is_alone = row.right.empty();
    const auto right = is_alone ? std::optional(Said{row.right_default, ""})
                                : At(config, row.right, row.right_default);
    if (!left || !right || Holds(row.rule, left->number, right->number)) {
      continue;
    }
    Warn(config, model_type,
         is_alone ? left->text : absl::StrCat(left->text, ", ", right->text),
         is_alone && row.rule == Rule::kEqual ? absl::StrCat(right->number)
                                              : InWords(row.rule),
         warnings);
  }
  for (const WordRule& row : kWordRules) {
    const json* value = config.Find(row.key);
    if (model_type != row.model_type || value == nullptr ||
        !value->is_string() ||
        IsAmong(value->get_ref<const std::string&>(), row.words)) {
      continue;
    }
    Warn(config, model_type, absl::StrCat(row.key, " is ", Shortened(*value)),
         absl::StrReplaceAll(row.words, {{" ", " or "}}), warnings);
  }
  WarnOfMamba(config, model_type, warnings);
  WarnOfKimiLayers(config, model_type, warnings);
}

}  // namespace posenc::core
