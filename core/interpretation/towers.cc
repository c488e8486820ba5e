#include "core/interpretation/towers.h"

#include "core/interpretation/profile.h"

namespace posenc::core::interpretation {
namespace {

constexpr Tower kTowers[] = {
#include "towers.inc"
};

// Encoders of images, of videos' frames and of sound whose tokens have one
// position.
constexpr absl::string_view kSequenceTowers =
    "deepseek_ocr2_encoder pe_video_encoder pe_audio_encoder "
    "pe_audio_video_encoder dia_encoder dots3_note_audio_encoder "
    "glmasr_encoder lasr_encoder mimi mimi_encoder "
    "nemotron3_5_transcribe_asr_audio nemotron3_diarization_audio "
    "voxtral_realtime_encoder pocket_tts_audio_tokenizer "
    "pocket_tts_audio_tokenizer_encoder wav2vec2-conformer wav2vec2-bert "
    "seamless_m4t seamless_m4t_v2 moonshine_streaming_encoder";

}  // namespace

const Tower* FindTower(absl::string_view model_type) {
  if (model_type.empty()) return nullptr;
  for (const Tower& tower : kTowers) {
    if (IsAmong(model_type, tower.model_types)) return &tower;
  }
  return nullptr;
}

const Tower* FindTowerOfParent(absl::string_view parent, bool typed) {
  if (parent.empty()) return nullptr;
  for (const Tower& tower : kTowers) {
    if (IsAmong(parent, tower.parents)) return &tower;
    if (!typed && IsAmong(parent, tower.default_of)) return &tower;
  }
  return nullptr;
}

bool IsSequenceTower(absl::string_view model_type) {
  return !model_type.empty() && IsAmong(model_type, kSequenceTowers);
}

bool IsNoRotation(absl::string_view model_type, absl::string_view* why) {
  if (model_type != "vjepa2") return false;
  *why =
      "tiles its table over interleaved pairs, so that the two channels of a "
      "pair turn by different angles: no rotation has such a table";
  return true;
}

}  // namespace posenc::core::interpretation
