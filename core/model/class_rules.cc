#include "core/model/class_rules.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/model/profile.h"

namespace posenc::core {
namespace {

using nlohmann::json;

// A rule is LEFT OP RIGHT, OP one of == <= < >=. Either side is computed from
// left to right, with + - * / % of whole numbers, as Python divides. A term is
// a number, a key by its path, or the length of a list (#path), with what the
// class takes for an absent one (=); without it there is no rule then. By the
// validators of transformers 5.23.0; tests/parity/class_rules.py checks them.
struct ClassRule {
  absl::string_view model_types;  // as files spell them, separated by blanks
  absl::string_view rule;
  absl::string_view words = {};  // what the rule wants, where it reads badly
};

constexpr ClassRule kRules[] = {
    {"clip_vision_model", "hidden_size=768 % num_attention_heads=12 == 0"},
    {"unlimited_ocr_vision_encoder",
     "hidden_size=1024 % num_attention_heads=16 == 0"},
    {"dots3_note_vision_encoder",
     "hidden_size=1536 % num_attention_heads=24 == 0"},
    {"dots3_note_audio_encoder",
     "hidden_size=1280 % num_attention_heads=20 == 0"},
    {"nemotron3_5_transcribe_asr_audio",
     "hidden_size=1280 % num_attention_heads=10 == 0"},
    {"nemotron3_diarization_audio",
     "hidden_size=512 % num_attention_heads=8 == 0"},
    {"nemotron3_5_transcribe_word_timestamp",
     "hidden_size=1280 % num_attention_heads=16 == 0"},
    {"dots3_note_vision_encoder", "adapter_in_dim=1536 == hidden_size=1536"},
    {"dots3_note_vision_encoder",
     "adapter_merge_size=2 == spatial_merge_size=2"},
    {"dots3_note_audio_encoder", "adapter_input_size=1280 == hidden_size=1280"},
    {"dots3_note",
     "vision_config.adapter_out_dim=5120 == text_config.hidden_size=5120"},
    {"dots3_note",
     "audio_config.adapter_out_dim=5120 == text_config.hidden_size=5120"},
    {"dots3_note_text", "n_routed_experts=256 % n_group=1 == 0"},
    {"dots3_note_text", "n_routed_experts=256 / n_group=1 >= 2"},
    {"dots3_note_text", "topk_group=1 <= n_group=1"},
    {"dots3_note_text", "qk_rope_head_dim=64 <= index_head_dim=128"},
    {"dots3_note_text", "num_key_value_heads == num_attention_heads"},
    {"granite_docling",
     "vision_config.out_hidden_size=1024 == text_config.hidden_size=1024"},
    {"muse_spark",
     "audio_config.out_hidden_size=8192 == text_config.hidden_size=8192"},
    {"fun_asr_nano",
     "adaptor_config.hidden_size=1024 == text_config.hidden_size=1024"},
    {"fun_asr_nano",
     "text_config.hidden_size=1024 / 4 == "
     "adaptor_config.intermediate_size=256"},
    {"vibevoice_asr",
     "acoustic_tokenizer_chunk_size=1440000 % "
     "acoustic_tokenizer_encoder_config.hop_length=3200 == 0"},
    {"pocket_tts", "flow_head_config.condition_dim=1024 == hidden_size=1024"},
    {"gradium_phonon_tts",
     "flow_head_config.condition_dim=768 == hidden_size=768"},
    {"pocket_tts gradium_phonon_tts",
     "flow_head_config.latent_dim=32 == latent_dim=32"},
    {"t5gemma2",
     "encoder.text_config.hidden_size=2304 == decoder.hidden_size=2304"},
    {"t5gemma2",
     "encoder.text_config.vocab_size=262208 == decoder.vocab_size=262208"},
    {"nemotron3_diarization",
     "head_config.audio_hidden_size=512 == audio_config.hidden_size=512"},
    {"nemotron3_diarization",
     "head_config.subsampling_factor=8 == audio_config.subsampling_factor=8"},
    {"nemotron3_diarization",
     "streaming_config.subsampling_factor=8 == "
     "audio_config.subsampling_factor=8"},
    {"nemotron3_diarization",
     "streaming_config.num_speakers=8 == head_config.num_speakers=8"},
    {"nemotron3_diarization", "chunk_right_context=40 < chunk_length=340"},
    {"nemotron3_diarization",
     "streaming_config.speaker_cache_silence_frames_per_speaker=1 + 1 * "
     "streaming_config.num_speakers=8 <= "
     "streaming_config.speaker_cache_length=264"},
    {"nemotron3_5_transcribe_audio",
     "asr_config.subsampling_factor=8 == "
     "diarization_config.audio_config.subsampling_factor=8"},
    {"nemotron3_5_transcribe_word_timestamp",
     "blank_token_id=23862 < vocab_size=23863"},
    {"mimi mimi_encoder mimi_decoder",
     "num_semantic_quantizers=1 < num_quantizers=32"},
    {"moshi", "num_codebooks=8 <= audio_encoder_config.num_quantizers=32"},
    {"idefics2_perceiver", "num_key_value_heads=4 <= resampler_n_heads=16"},
    {"jetmoe", "num_experts_per_tok=2 <= num_local_experts=8"},
    {"recurrent_gemma", "num_key_value_heads <= num_attention_heads=10"},
    // The class repeats its pattern of blocks a hundred times.
    {"recurrent_gemma", "num_hidden_layers <= #block_types=3 * 100"},
    {"moshi", "ffn_dim=22528 % 2 == 0"},
    {"moshi_depth", "ffn_dim=5632 % 2 == 0"},
    {"kyutai_speech_to_text", "ffn_dim=11264 % 2 == 0"},
    {"phi4_multimodal_audio", "time_reduction=8 % 2 == 0"},
    {"pi0", "dit_config.hidden_size=1024 % 2 == 0"},
    {"zaya", "num_experts_per_tok=1 == 1"},
    {"fast_vlm", "vision_feature_layer=-1 == -1"},
    {"dia", "decoder_config.num_channels=9 == #delay_pattern"},
    {"laguna", "#num_attention_heads_per_layer == num_hidden_layers=40"},
    {"mistral_large4_text", "#kv_source_layers == num_hidden_layers=72"},
    {"muse_spark_audio", "#patch_sizes=4 == num_hidden_layers=4"},
    {"muse_spark_audio", "#hidden_sizes=4 == num_hidden_layers=4"},
    {"muse_spark_audio", "#depths=4 == num_hidden_layers=4"},
    {"gemma3n_text", "#intermediate_size == num_hidden_layers=35"},
    {"gemma3n_text", "#activation_sparsity_pattern == num_hidden_layers=35"},
    {"wav2vec2-conformer", "#conv_stride=7 == num_feat_extract_layers=7"},
    {"wav2vec2-conformer", "#conv_kernel=7 == num_feat_extract_layers=7"},
    {"wav2vec2-conformer", "#conv_dim=7 == num_feat_extract_layers=7"},
    {"csm_depth_decoder_model", "head_dim % 2 * head_dim <= 3",
     "head_dim to be even, or at most 3"},
    {"dots3_note",
     "audio_config.adapter_output_size == text_config.hidden_size=5120"},
    {"dots3_note",
     "audio_config.whisper_adapter_out_dim == text_config.hidden_size=5120"},
    {"dots3_note_audio_encoder", "whisper_adapter_in_dim == hidden_size=1280"},
    {"dots3_note_vision_encoder", "adapter_in_dim=1536 == embed_dim"},
    {"dots3_note_vision_encoder", "hidden_size=1536 % num_heads == 0"},
    {"moshi", "audio_encoder_config.num_codebooks * 0 == 1",
     "no number there, which it computes"},
    {"axk2", "n_routed_experts=128 % n_group == 0"},
    {"axk2", "topk_group <= n_group"},
    {"mellum", "num_mtp_layers <= 1"},
    {"esmfold2",
     "single_inputs_size=451 - atom_encoder.output_dim=384 - 1 == "
     "num_res_types=33 * 2"},
    {"EsmFold2DiffusionModuleConfig",
     "atom_encoder.output_dim=768 == hidden_size=768"},
    {"EsmFold2AtomEncoderConfig",
     "num_spatial_rope_pairs_per_axis=2 * 3 + num_uid_rope_pairs=10 * 2 <= "
     "head_dim"},
    {"qwen4_exp_text", "num_experts_per_tok=10 <= num_experts=512"},
    {"muse_glimmer_vision muse_spark_vision",
     "#layer_types == num_hidden_layers=50"},
    {"deepseek_ocr2_encoder", "#layer_types == num_hidden_layers=32"},
    {"lfm3_vl_vision", "#layer_types == num_hidden_layers=14"},
    {"qwen2_5_omni_talker", "#layer_types == num_hidden_layers=28"},
    {"qwen3_omni_moe_talker_code_predictor",
     "#layer_types == num_hidden_layers=5"},
    {"qwen4_exp_text", "hc_count=4 >= 2"},
    {"qwen4_exp_text", "indexer_kv_heads == 1"},
    {"qwen4_exp_text", "indexer_budget % indexer_compress_ratio == 0"},
};

// Keys that a class takes together or not at all.
struct Together {
  absl::string_view model_type;
  absl::string_view keys;  // separated by blanks
};

constexpr Together kTogether[] = {
    {"axk2", "n_group topk_group"},
    {"qwen4_exp_text",
     "indexer_n_heads indexer_kv_heads indexer_head_dim indexer_budget "
     "indexer_compress_ratio"},
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
    {"molmo2_text", "qk_norm_type", "qwen3 olmo"},
    {"qwen4_exp_text", "output_gate_type", "sigmoid silu"},
};

// What a file says there.
struct Said {
  std::int64_t number = 0;
  std::string text;
};

// Returns nullopt if the value is no integer, or no list if the rule is about a
// list's length: other rules are about values of wrong types.
std::optional<Said> At(const JsonObject& config, absl::string_view path,
                       absl::string_view otherwise) {
  const bool is_length = absl::ConsumePrefix(&path, "#");
  std::optional<Said> absent;
  if (std::int64_t number = 0; absl::SimpleAtoi(otherwise, &number)) {
    absent =
        Said{number, absl::StrCat(config.Path(path), " is absent and then ",
                                  number, is_length ? " elements" : "")};
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
  if (is_length) {
    if (!value->is_array()) return std::nullopt;
    const auto size = static_cast<std::int64_t>(value->size());
    return Said{size,
                absl::StrCat(config.Path(path), " has ", size, " elements")};
  }
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (!value->is_number_integer() ||
      (value->is_number_unsigned() && value->get<std::uint64_t>() > kMost)) {
    return std::nullopt;
  }
  const auto number = value->get<std::int64_t>();
  return Said{number, absl::StrCat(config.Path(path), " is ", number)};
}

// Python's, which round down.
std::int64_t Quotient(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

// One side of a rule, and what the file says of its keys. nullopt if a key has
// no number, or past 64 bits.
struct Side {
  std::int64_t value = 0;
  std::vector<std::string> said;
  std::string text;  // without what is taken for absent keys
  bool fails = false;
};

bool IsSum(absl::string_view text) {
  const absl::string_view::size_type last = text.rfind(')');
  const absl::string_view rest =
      last == absl::string_view::npos ? text : text.substr(last);
  return absl::StrContains(rest, " + ") || absl::StrContains(rest, " - ");
}

std::optional<Side> Evaluate(const JsonObject& config,
                             const std::vector<absl::string_view>& tokens) {
  Side side;
  absl::string_view op = "+";
  for (const absl::string_view token : tokens) {
    if (IsAmong(token, "+ - * / %")) {
      op = token;
      // What follows is of the sum.
      if (IsAmong(op, "* / %") && IsSum(side.text)) {
        side.text = absl::StrCat("(", side.text, ")");
      }
      absl::StrAppend(&side.text, " ", op, " ");
      continue;
    }
    std::int64_t term = 0;
    if (absl::SimpleAtoi(token, &term)) {
      absl::StrAppend(&side.text, token);
    } else {
      const std::pair<absl::string_view, absl::string_view> key =
          absl::StrSplit(token, absl::MaxSplits('=', 1));
      const auto said = At(config, key.first, key.second);
      if (!said) return std::nullopt;
      term = said->number;
      side.said.push_back(said->text);
      const bool is_length = absl::StartsWith(key.first, "#");
      absl::StrAppend(&side.text, is_length ? "elements of " : "",
                      absl::StripPrefix(key.first, "#"));
    }
    const std::int64_t before = side.value;
    bool overflows = false;
    if (op == "+") {
      overflows = __builtin_add_overflow(before, term, &side.value);
    } else if (op == "-") {
      overflows = __builtin_sub_overflow(before, term, &side.value);
    } else if (op == "*") {
      overflows = __builtin_mul_overflow(before, term, &side.value);
    } else if (term == 0) {
      side.fails = true;
    } else if (term == -1) {
      overflows = op == "/" && __builtin_sub_overflow(0, before, &side.value);
      if (op == "%") side.value = 0;
    } else {
      const std::int64_t quotient = Quotient(before, term);
      side.value = op == "/" ? quotient : before - quotient * term;
    }
    if (overflows) return std::nullopt;
  }
  return side;
}

bool Holds(absl::string_view op, std::int64_t left, std::int64_t right) {
  if (op == "==") return left == right;
  if (op == "<=") return left <= right;
  if (op == "<") return left < right;
  return left >= right;
}

void Warn(absl::string_view model_type, absl::string_view said,
          absl::string_view wanted, std::vector<std::string>* warnings) {
  warnings->push_back(absl::StrCat(
      said, ", and transformers' class of model_type ", model_type, " wants ",
      wanted, ": it refuses the file; it has no part in rotation"));
}

// Bamba's and its kin's state-space heads: together they are as wide as the
// layer.
void WarnOfMamba(const JsonObject& config, absl::string_view model_type,
                 std::vector<std::string>* warnings) {
  if (!IsAmong(model_type, "bamba falcon_h1 granitemoehybrid")) return;
  const auto hidden = At(config, "hidden_size", "4096");
  const auto expand = At(config, "mamba_expand", "2");
  const auto heads = At(config, "mamba_n_heads", "128");
  if (!hidden || !expand || !heads) return;
  std::int64_t width = 0;
  if (__builtin_mul_overflow(expand->number, hidden->number, &width)) return;
  const json* own = config.Find("mamba_d_ssm");
  if (model_type == "falcon_h1" && (own == nullptr || !own->is_null())) {
    const auto given = At(config, "mamba_d_ssm", "1024");
    if (!given) return;
    width = given->number;
  }
  const json* head = config.Find("mamba_d_head");
  const bool is_auto = head == nullptr || *head == "auto";
  const auto head_dim = is_auto ? Said{} : At(config, "mamba_d_head", "1");
  if (!head_dim) return;
  std::int64_t together = 0;
  if (heads->number > 0 && width % heads->number == 0 &&
      (is_auto ||
       (!__builtin_mul_overflow(head_dim->number, heads->number, &together) &&
        together == width))) {
    return;
  }
  Warn(model_type,
       absl::StrCat(heads->text,
                    is_auto ? "" : absl::StrCat(", and ", head_dim->text)),
       absl::StrCat("such heads to be ", width, " channels wide together"),
       warnings);
}

// Mimi's codebooks.
void WarnOfCodebook(const JsonObject& config, absl::string_view model_type,
                    std::vector<std::string>* warnings) {
  if (!IsAmong(model_type, "mimi mimi_encoder mimi_decoder")) return;
  const auto size = At(config, "codebook_size", "");
  if (!size || (size->number >= 0 && (size->number & (size->number - 1)) == 0))
    return;
  Warn(model_type, size->text, "a power of 2", warnings);
}

// Kimi Linear's lists of layers, counted from 1, which together name each.
void WarnOfKimiLayers(const JsonObject& config, absl::string_view model_type,
                      std::vector<std::string>* warnings) {
  const json* types = config.Find("layer_types");
  if (model_type != "kimi_linear" || (types != nullptr && !types->is_null())) {
    return;
  }
  const auto layers = At(config, "num_hidden_layers", "27");
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
  Warn(model_type,
       absl::StrCat(config.Path("linear_attn_config"), " names ", count,
                    " layers"),
       absl::StrCat("layers 1 to ", layers->number, " in its two lists"),
       warnings);
}

void WarnOfRule(const JsonObject& config, absl::string_view model_type,
                const ClassRule& row, std::vector<std::string>* warnings) {
  std::vector<absl::string_view> left = absl::StrSplit(row.rule, ' ');
  const auto op = std::find_if(left.begin(), left.end(), [](auto token) {
    return IsAmong(token, "== <= < >=");
  });
  const std::vector<absl::string_view> right(op + 1, left.end());
  const absl::string_view relation = *op;
  left.erase(op, left.end());
  const auto a = Evaluate(config, left);
  const auto b = Evaluate(config, right);
  if (!a || !b) return;
  if (!a->fails && !b->fails && Holds(relation, a->value, b->value)) return;
  std::vector<std::string> said;  // each value once
  for (const std::vector<std::string>& side : {a->said, b->said}) {
    for (const std::string& one : side) {
      if (std::find(said.begin(), said.end(), one) == said.end()) {
        said.push_back(one);
      }
    }
  }
  Warn(model_type, absl::StrJoin(said, ", "),
       row.words.empty() ? absl::StrCat(a->text, " ", relation, " ", b->text)
                         : std::string(row.words),
       warnings);
}

void WarnOfMissing(const JsonObject& config, absl::string_view model_type,
                   absl::string_view keys, std::vector<std::string>* warnings) {
  std::vector<std::string> given, missing;
  for (const absl::string_view key : absl::StrSplit(keys, ' ')) {
    (config.Has(key) ? given : missing).push_back(config.Path(key));
  }
  if (given.empty() || missing.empty()) return;
  Warn(model_type,
       absl::StrCat(absl::StrJoin(given, ", "),
                    given.size() == 1 ? " is given" : " are given", ", and ",
                    absl::StrJoin(missing, ", "),
                    missing.size() == 1 ? " is not" : " are not"),
       "all of them or none", warnings);
}

}  // namespace

void WarnOfClassRules(const JsonObject& config, absl::string_view model_type,
                      std::vector<std::string>* warnings) {
  for (const ClassRule& row : kRules) {
    if (IsAmong(model_type, row.model_types)) {
      WarnOfRule(config, model_type, row, warnings);
    }
  }
  for (const Together& row : kTogether) {
    if (model_type == row.model_type) {
      WarnOfMissing(config, model_type, row.keys, warnings);
    }
  }
  for (const WordRule& row : kWordRules) {
    const json* value = config.Find(row.key);
    if (model_type != row.model_type || value == nullptr ||
        !value->is_string() ||
        IsAmong(value->get_ref<const std::string&>(), row.words)) {
      continue;
    }
    Warn(model_type,
         absl::StrCat(config.Path(row.key), " is ", Shortened(*value)),
         absl::StrReplaceAll(row.words, {{" ", " or "}}), warnings);
  }
  WarnOfMamba(config, model_type, warnings);
  WarnOfCodebook(config, model_type, warnings);
  WarnOfKimiLayers(config, model_type, warnings);
}

}  // namespace posenc::core
