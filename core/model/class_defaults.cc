// Written by tests/parity/class_defaults.py, of transformers 5.23.0.

#include "core/model/class_defaults.h"

#include "core/model/profile.h"

namespace posenc::core {
namespace {

constexpr ClassDefaults kRows[] = {
    {"EvollaModel evolla falcon_h1", 4096, 32, 32, 8192, 0},
    {"afmoe", 2048, 16, 32, 16384, 128, false, false, "output_router_logits"},
    {"apertus", 4096, 32, 32, 65536, 0, false, false, "attention_dropout"},
    {"arcee", 2560, 32, 32, 4096, 0, true, false, "attention_dropout"},
    {"aria llama", 4096, 32, 32, 2048, 0, true},
    {"axk1", 7168, 64, 61, 32768, 0, false, false,
     "num_key_value_heads v_head_dim qk_rope_head_dim qk_nope_head_dim "
     "num_experts_per_tok n_group topk_group q_lora_rank output_router_logits"},
    {"axk2", 2048, 32, 48, 131072, 64, false, true,
     "num_key_value_heads head_dim v_head_dim qk_rope_head_dim "
     "qk_nope_head_dim num_experts_per_tok q_lora_rank attention_dropout "
     "output_router_logits"},
    {"bailing_hybrid", 2560, 32, 42, 262144, 128, false, true,
     "head_dim v_head_dim qk_rope_head_dim qk_nope_head_dim "
     "num_experts_per_tok num_local_experts n_group topk_group "
     "first_k_dense_replace attention_dropout output_router_logits",
     "model_max_length=max_position_embeddings"},
    {"bamba", 4096, 32, 32, 262144, 0},
    {"beam", 5120, 48, 52, 8192, 128, false, false,
     "num_key_value_heads head_dim num_experts_per_tok num_experts "
     "attention_dropout output_router_logits"},
    {"bitnet", 2560, 20, 30, 2048, 0},
    {"blt_global_transformer", 2048, 16, 25, 4096, 0},
    {"blt_local_decoder", 1024, 16, 9, 24576, 0},
    {"blt_local_encoder", 1024, 16, 1, 24576, 0},
    {"blt_patcher", 768, 12, 14, 8192, 0},
    {"chameleon", 4096, 32, 32, 4096, 0},
    {"clvp_encoder", 768, 12, 20, 0, 0, false, true, "attention_dropout"},
    {"codegen gptj", 4096, 16, 28, 2048, 0, false, true, "rotary_dim",
     "n_embd=hidden_size n_head=num_attention_heads n_layer=num_hidden_layers "
     "n_positions=max_position_embeddings"},
    {"cohere", 8192, 64, 40, 8192, 0},
    {"cohere2 cohere_compass", 8192, 64, 40, 8192, 0, false, false,
     "attention_dropout"},
    {"cohere2_moe", 8192, 64, 40, 8192, 128, false, false,
     "head_dim num_experts_per_tok num_experts attention_dropout "
     "output_router_logits"},
    {"cosmos3_edge", 2048, 16, 28, 131072, 128, true, false,
     "head_dim attention_dropout"},
    {"csm diffllama", 2048, 32, 16, 2048, 0},
    {"csm_depth_decoder_model", 1024, 8, 4, 33, 0},
    {"cwm", 6144, 48, 64, 131072, 128, true, false,
     "num_key_value_heads head_dim sliding_window bos_token_id pretraining_tp "
     "attention_dropout"},
    {"dbrx", 2048, 16, 24, 2048, 0, false, false, "",
     "d_model=hidden_size max_seq_len=max_position_embeddings "
     "n_heads=num_attention_heads n_layers=num_hidden_layers"},
    {"deepseek_ocr2", 4096, 32, 32, 2048, 0, true, true,
     "output_router_logits"},
    {"deepseek_v2", 4096, 32, 32, 2048, 0, true, true,
     "v_head_dim qk_rope_head_dim qk_nope_head_dim first_k_dense_replace "
     "output_router_logits"},
    {"deepseek_v3", 7168, 128, 61, 4096, 0, false, false,
     "qk_rope_head_dim qk_nope_head_dim output_router_logits"},
    {"deepseek_v32", 7168, 128, 61, 163840, 64, false, true,
     "num_key_value_heads head_dim v_head_dim qk_rope_head_dim "
     "qk_nope_head_dim num_experts_per_tok n_group topk_group "
     "first_k_dense_replace q_lora_rank attention_dropout "
     "output_router_logits"},
    {"deepseek_v4", 4096, 64, 43, 1048576, 512, false, false,
     "num_key_value_heads head_dim sliding_window num_experts_per_tok "
     "q_lora_rank attention_dropout output_router_logits"},
    {"dia_decoder", 2048, 16, 18, 3072, 128, false, false,
     "num_key_value_heads head_dim"},
    {"dia_encoder", 1024, 16, 12, 1024, 128, false, false,
     "num_key_value_heads head_dim"},
    {"diffusion_gemma gemma4", 2304, 8, 30, 131072, 256, false, false,
     "num_key_value_heads head_dim sliding_window"},
    {"doge", 1024, 8, 32, 2048, 0, false, false,
     "num_experts_per_tok num_experts output_router_logits"},
    {"dots1", 4608, 32, 62, 2048, 0, false, false,
     "output_router_logits max_window_layers"},
    {"dots3_note", 5120, 128, 46, 524288, 256, false, true,
     "num_key_value_heads head_dim v_head_dim qk_rope_head_dim "
     "qk_nope_head_dim num_experts_per_tok n_group topk_group q_lora_rank "
     "attention_dropout output_router_logits"},
    {"dots3_note_audio_encoder", 1280, 20, 32, 6000, 0, true, true,
     "attention_dropout"},
    {"embedding_gemma2", 512, 4, 24, 262144, 256, false, false,
     "num_key_value_heads head_dim sliding_window"},
    {"emu3_text_model", 4096, 32, 32, 9216, 0, false, false,
     "pad_token_id bos_token_id attention_dropout"},
    {"ernie4_5 paddleocr_vl", 1024, 16, 18, 131072, 128},
    {"ernie4_5_moe ernie4_5_vl_moe", 2560, 20, 28, 131072, 0},
    {"esm", 768, 12, 12, 1026, 0, false, true},
    {"esmc", 2560, 40, 80, 2048, 0, true},
    {"eurobert", 768, 12, 12, 8192, 0, true, false,
     "pretraining_tp attention_dropout"},
    {"exaone4", 4096, 32, 32, 2048, 0, false, false,
     "num_key_value_heads sliding_window attention_dropout"},
    {"exaone_moe", 4096, 32, 32, 2048, 0, false, false,
     "num_key_value_heads sliding_window num_experts_per_tok num_experts "
     "n_group topk_group first_k_dense_replace attention_dropout "
     "output_router_logits"},
    {"falcon", 4544, 71, 32, 2048, 0},
    {"flex_olmo", 4096, 32, 32, 4096, 0, false, false,
     "num_experts_per_tok num_experts output_router_logits"},
    {"flint", 2048, 32, 49, 262144, 128, false, false,
     "num_key_value_heads head_dim sliding_window num_experts_per_tok "
     "num_experts attention_dropout output_router_logits"},
    {"gemma", 3072, 16, 28, 8192, 256, false, false,
     "num_key_value_heads head_dim attention_dropout"},
    {"gemma2 t5_gemma_module vaultgemma", 2304, 8, 26, 8192, 256, true, false,
     "num_key_value_heads head_dim"},
    {"gemma3 t5gemma2 t5gemma2_decoder", 2304, 8, 26, 131072, 256, true, false,
     "num_key_value_heads head_dim"},
    {"gemma3n", 2048, 8, 35, 32768, 256, true, false,
     "num_key_value_heads head_dim sliding_window"},
    {"gemma4_unified", 2304, 8, 30, 262144, 256, false, false,
     "num_key_value_heads head_dim sliding_window"},
    {"glm", 4096, 32, 40, 131072, 128},
    {"glm4", 4096, 32, 40, 131072, 128, false, false,
     "num_key_value_heads head_dim attention_dropout"},
    {"glm4_moe", 4096, 96, 46, 131072, 0, false, false,
     "num_key_value_heads num_experts_per_tok n_group topk_group "
     "first_k_dense_replace attention_dropout output_router_logits"},
    {"glm4_moe_lite", 2048, 20, 47, 202752, 64, false, false,
     "num_key_value_heads v_head_dim qk_rope_head_dim qk_nope_head_dim "
     "rope_interleave num_experts_per_tok n_group topk_group pretraining_tp "
     "attention_dropout output_router_logits",
     "qk_rope_head_dim=head_dim"},
    {"glm4v", 4096, 32, 40, 32768, 0, false, false, "attention_dropout"},
    {"glm4v_moe", 4096, 96, 46, 65536, 0, false, false,
     "num_key_value_heads num_experts_per_tok n_group topk_group "
     "first_k_dense_replace attention_dropout output_router_logits"},
    {"glm_image", 4096, 32, 40, 131072, 0, false, false,
     "pad_token_id attention_dropout"},
    {"glm_moe_dsa", 6144, 64, 78, 202752, 64, false, true,
     "num_key_value_heads head_dim v_head_dim qk_rope_head_dim "
     "qk_nope_head_dim num_experts_per_tok n_group topk_group "
     "first_k_dense_replace q_lora_rank attention_dropout "
     "output_router_logits"},
    {"glm_ocr", 1024, 16, 16, 131072, 0, false, false,
     "num_key_value_heads attention_dropout"},
    {"glmasr_encoder", 1280, 20, 32, 1500, 0, false, false,
     "attention_dropout"},
    {"gpt_neox", 6144, 64, 44, 2048, 0, true, false, "attention_dropout"},
    {"gpt_neox_japanese", 2560, 32, 32, 2048, 0, false, false,
     "attention_dropout"},
    {"gpt_oss", 2880, 64, 36, 131072, 64, false, false,
     "num_key_value_heads head_dim num_experts_per_tok num_local_experts "
     "attention_dropout output_router_logits"},
    {"gradium_phonon_tts", 768, 12, 6, 8192, 0, true, false,
     "pad_token_id attention_dropout"},
    {"granite granite4_vision olmo olmo2 olmo3", 4096, 32, 32, 2048, 0, false,
     false, "attention_dropout"},
    {"granite_docling", 1024, 16, 28, 32768, 0, false, false,
     "attention_dropout"},
    {"granite_swa", 2560, 20, 24, 8192, 0, false, false, "attention_dropout"},
    {"granitemoe granitemoe_swa granitemoehybrid granitemoeshared idefics",
     4096, 32, 32, 2048, 0},
    {"gte", 768, 12, 12, 8192, 0},
    {"helium", 2560, 20, 24, 4096, 128, false, false,
     "num_key_value_heads head_dim attention_dropout"},
    {"higgs_audio_v2", 3072, 24, 28, 2048, 128, true, false,
     "num_key_value_heads"},
    {"hrm", 1536, 12, 16, 2048, 128, true, false, "head_dim"},
    {"hunyuan_v1_dense", 4096, 32, 32, 2048, 0, false, false,
     "pretraining_tp attention_dropout"},
    {"hunyuan_v1_moe", 4096, 32, 32, 2048, 0, false, false,
     "num_experts pretraining_tp attention_dropout output_router_logits"},
    {"hunyuan_vl", 4096, 32, 32, 2048, 0, false, false,
     "pretraining_tp attention_dropout", "attention_head_dim=head_dim"},
    {"hy_v3", 4096, 64, 80, 131072, 128, false, false,
     "num_key_value_heads head_dim attention_dropout output_router_logits"},
    {"hy_v4", 2816, 32, 34, 262144, 256, false, true,
     "num_key_value_heads head_dim v_head_dim qk_rope_head_dim "
     "qk_nope_head_dim num_experts_per_tok n_group topk_group q_lora_rank "
     "attention_dropout output_router_logits"},
    {"hyperclovax", 4096, 32, 32, 2048, 0, true, false, "attention_dropout"},
    {"jais2", 3328, 26, 32, 8192, 0, true},
    {"jetmoe", 2048, 0, 12, 4096, 128, false, false,
     "num_key_value_heads kv_channels num_experts_per_tok num_local_experts "
     "attention_dropout output_router_logits",
     "kv_channels=head_dim"},
    {"jina_embeddings_v3", 1024, 16, 24, 8194, 0},
    {"kolibri1", 2560, 48, 50, 262144, 128, false, false,
     "num_key_value_heads head_dim sliding_window num_experts_per_tok "
     "num_experts attention_dropout output_router_logits"},
    {"kyutai_speech_to", 2048, 32, 48, 750, 0, false, false,
     "sliding_window attention_dropout"},
    {"laguna", 2048, 48, 40, 131072, 128, false, false,
     "num_key_value_heads head_dim sliding_window num_experts_per_tok "
     "num_experts attention_dropout output_router_logits"},
    {"lasr_encoder", 512, 8, 17, 10000, 0, false, false, "attention_dropout"},
    {"lfm2", 2560, 32, 32, 128000, 0, false, false, "num_key_value_heads"},
    {"lfm2_moe", 2048, 32, 32, 128000, 0, false, false,
     "num_key_value_heads num_experts_per_tok num_experts "
     "output_router_logits"},
    {"lfm3", 2048, 16, 24, 128000, 128, false, false,
     "num_key_value_heads head_dim attention_dropout"},
    {"llama4", 5120, 40, 48, 131072, 128, false, false,
     "num_key_value_heads head_dim no_rope_layer_interval num_experts_per_tok "
     "num_local_experts attention_dropout output_router_logits"},
    {"longcat_flash", 6144, 64, 0, 131072, 64, false, false,
     "head_dim v_head_dim qk_rope_head_dim qk_nope_head_dim q_lora_rank "
     "attention_dropout output_router_logits",
     "num_layers=num_hidden_layers"},
    {"mellum", 2304, 32, 28, 131072, 128, false, false,
     "num_key_value_heads head_dim num_experts_per_tok num_experts "
     "attention_dropout output_router_logits"},
    {"mimi mimi_decoder mimi_encoder", 512, 8, 8, 8000, 0, false, false,
     "num_key_value_heads sliding_window attention_dropout"},
    {"mimo_v2_flash", 4096, 64, 48, 131072, 192, false, false,
     "num_key_value_heads head_dim sliding_window v_head_dim "
     "num_experts_per_tok n_group topk_group attention_dropout "
     "output_router_logits"},
    {"minicpm3", 2560, 40, 62, 32768, 0, true, true,
     "qk_rope_head_dim qk_nope_head_dim"},
    {"minimax mixtral phimoe", 4096, 32, 32, 131072, 0, false, false,
     "num_key_value_heads num_experts_per_tok num_local_experts "
     "attention_dropout output_router_logits"},
    {"minimax_m2", 3072, 48, 62, 196608, 128, false, false,
     "num_key_value_heads head_dim num_experts_per_tok num_local_experts "
     "attention_dropout output_router_logits"},
    {"minimax_m3_vl", 6144, 64, 60, 524288, 128, false, false,
     "num_key_value_heads head_dim rotary_dim num_experts_per_tok "
     "num_local_experts attention_dropout output_router_logits"},
    {"ministral mistral voxtral_realtime", 4096, 32, 32, 131072, 0, false,
     false, "num_key_value_heads attention_dropout"},
    {"ministral3", 4096, 32, 34, 262144, 128, false, false,
     "num_key_value_heads head_dim attention_dropout"},
    {"mistral4", 4096, 32, 36, 1048576, 0, false, false,
     "qk_rope_head_dim qk_nope_head_dim output_router_logits"},
    {"mistral_large4", 6144, 64, 72, 1048576, 64, false, true,
     "num_key_value_heads head_dim v_head_dim qk_rope_head_dim "
     "qk_nope_head_dim num_experts_per_tok n_group topk_group "
     "first_k_dense_replace attention_dropout output_router_logits"},
    {"mllama_text_model", 4096, 32, 40, 131072, 0, false, false,
     "num_key_value_heads bos_token_id"},
    {"modernbert", 768, 12, 22, 8192, 0, false, false, "attention_dropout"},
    {"modernbert_decoder", 768, 12, 22, 8192, 0, false, false,
     "pad_token_id bos_token_id attention_dropout"},
    {"molmo2", 4096, 32, 36, 36864, 128, false, false,
     "num_key_value_heads head_dim attention_dropout"},
    {"moonshine", 288, 8, 6, 512, 0, false, false, "attention_dropout",
     "decoder_num_attention_heads=num_attention_heads "
     "decoder_num_hidden_layers=num_hidden_layers"},
    {"moonshine_streaming", 320, 8, 6, 4096, 0, false, false,
     "attention_dropout"},
    {"moshi", 4096, 32, 32, 3000, 0, false, false,
     "sliding_window attention_dropout"},
    {"muse_glimmer", 6656, 32, 52, 131072, 128, true, false,
     "num_key_value_heads head_dim"},
    {"muse_glimmer_assistant", 6656, 32, 5, 131072, 128, false, false,
     "num_key_value_heads head_dim sliding_window attention_dropout"},
    {"muse_spark", 8192, 128, 62, 1048576, 64, true, false,
     "num_key_value_heads head_dim num_experts_per_tok num_local_experts "
     "output_router_logits"},
    {"nanochat", 768, 6, 12, 2048, 0, false, false, "attention_dropout"},
    {"nemotron", 6144, 48, 32, 4096, 0, false, false, "attention_dropout"},
    {"nemotron3_5_transcribe_asr_audio", 1280, 10, 32, 5000, 0, true, false,
     "attention_dropout"},
    {"nemotron3_5_transcribe_word_timestamp", 1280, 16, 2, 5000, 0, true, false,
     "attention_dropout"},
    {"nemotron3_diarization_audio", 512, 8, 31, 5000, 0, true, false,
     "attention_dropout"},
    {"neomme", 1024, 16, 17, 16384, 64, false, false,
     "num_key_value_heads head_dim attention_dropout"},
    {"neucodec xcodec2", 1024, 16, 12, 4096, 64, true, false,
     "num_key_value_heads head_dim"},
    {"nomic_bert", 768, 12, 12, 2048, 0, false, false, "pad_token_id"},
    {"olmo_hybrid", 3840, 30, 32, 65536, 0},
    {"olmoe", 2048, 16, 16, 4096, 0, false, false,
     "num_experts_per_tok num_experts attention_dropout output_router_logits"},
    {"openai_privacy_filter", 640, 14, 8, 131072, 64, false, false,
     "num_key_value_heads head_dim sliding_window num_experts_per_tok "
     "num_local_experts attention_dropout output_router_logits"},
    {"pe_audio_encoder pe_audio_video_encoder pe_video_encoder", 1792, 14, 6,
     10000, 128, false, false, "head_dim attention_dropout"},
    {"persimmon", 4096, 64, 36, 16384, 0, false, false, "attention_dropout"},
    {"phi", 2048, 32, 24, 2048, 0},
    {"phi3", 3072, 32, 32, 4096, 0, false, false, "attention_dropout"},
    {"phi4_multimodal", 3072, 32, 32, 131072, 0, false, false,
     "attention_dropout"},
    {"pocket_tts", 1024, 16, 6, 8192, 0, true, false,
     "pad_token_id attention_dropout"},
    {"pocket_tts_audio_tokenizer pocket_tts_audio_tokenizer_decoder "
     "pocket_tts_audio_tokenizer_encoder",
     512, 8, 2, 8000, 0, false, false,
     "num_key_value_heads sliding_window attention_dropout"},
    {"qwen2", 4096, 32, 32, 32768, 0, false, false,
     "attention_dropout max_window_layers"},
    {"qwen2_5_omni", 3584, 28, 28, 32768, 0, false, false,
     "attention_dropout max_window_layers"},
    {"qwen2_5_omni_dit", 1024, 16, 22, 32768, 64, false, false, "head_dim"},
    {"qwen2_5_omni_talker", 3584, 28, 28, 32768, 128, false, false,
     "num_key_value_heads head_dim attention_dropout max_window_layers"},
    {"qwen2_5_vl qwen2_vl", 8192, 64, 80, 32768, 0},
    {"qwen2_moe", 2048, 16, 24, 32768, 0, false, false,
     "num_experts_per_tok num_experts attention_dropout output_router_logits "
     "max_window_layers"},
    {"qwen3", 4096, 32, 32, 32768, 128, false, false,
     "head_dim attention_dropout max_window_layers"},
    {"qwen3_5", 4096, 16, 32, 32768, 256, false, false,
     "num_key_value_heads head_dim attention_dropout"},
    {"qwen3_5_moe qwen4_exp", 2048, 16, 40, 32768, 256, false, false,
     "num_key_value_heads head_dim num_experts_per_tok num_experts "
     "attention_dropout output_router_logits"},
    {"qwen3_moe", 2048, 32, 24, 32768, 0, false, false,
     "num_key_value_heads num_experts_per_tok num_experts attention_dropout "
     "output_router_logits"},
    {"qwen3_next", 2048, 16, 48, 32768, 256, false, false,
     "num_key_value_heads head_dim num_experts_per_tok num_experts "
     "attention_dropout output_router_logits"},
    {"qwen3_omni_moe", 2048, 28, 28, 32768, 0, false, false,
     "num_key_value_heads num_experts_per_tok num_experts attention_dropout "
     "output_router_logits"},
    {"qwen3_omni_moe_talker", 1024, 16, 20, 32768, 0, false, false,
     "num_key_value_heads num_experts_per_tok num_experts attention_dropout "
     "output_router_logits"},
    {"qwen3_omni_moe_talker_code_predictor", 1024, 16, 5, 32768, 128, false,
     false, "num_key_value_heads head_dim attention_dropout max_window_layers"},
    {"qwen3_vl", 4096, 32, 32, 128000, 128, false, false,
     "head_dim attention_dropout"},
    {"qwen3_vl_moe", 2048, 16, 24, 128000, 0, false, false,
     "num_key_value_heads num_experts_per_tok num_experts attention_dropout "
     "output_router_logits"},
    {"recurrent_gemma", 2560, 10, 26, 0, 0, false, false, "attention_dropout"},
    {"roformer", 768, 12, 12, 1536, 0, false, true},
    {"seamless_m4t", 1024, 16, 24, 1024, 0, false, true,
     "rotary_embedding_base attention_dropout",
     "decoder_attention_heads=num_attention_heads "
     "decoder_layers=num_hidden_layers"},
    {"seed_oss", 4096, 80, 64, 524288, 128, false, false,
     "head_dim pretraining_tp attention_dropout"},
    {"smollm3", 2048, 16, 36, 32768, 0, false, false,
     "no_rope_layer_interval attention_dropout"},
    {"solar_open", 4096, 64, 48, 131072, 128, false, false,
     "num_key_value_heads head_dim num_experts_per_tok n_group topk_group "
     "attention_dropout output_router_logits"},
    {"stablelm", 2560, 32, 32, 4096, 0, false, false,
     "num_key_value_heads attention_dropout"},
    {"starcoder2", 3072, 24, 30, 4096, 0, false, false,
     "num_key_value_heads attention_dropout"},
    {"step3p5", 4096, 64, 45, 128000, 128, false, false,
     "num_key_value_heads head_dim pad_token_id num_experts_per_tok "
     "num_local_experts attention_dropout output_router_logits"},
    {"timesfm2_5", 1280, 16, 20, 16384, 80, false, false,
     "num_key_value_heads head_dim attention_dropout"},
    {"ultrabert", 4096, 32, 32, 32768, 0, true, false,
     "sliding_window attention_dropout"},
    {"unlimited_ocr", 1280, 10, 12, 32768, 0, true, true,
     "sliding_window output_router_logits"},
    {"voxtral_realtime_encoder", 1280, 32, 32, 1500, 64, false, false,
     "head_dim sliding_window attention_dropout",
     "d_model=hidden_size encoder_attention_heads=num_attention_heads "
     "encoder_layers=num_hidden_layers"},
    {"wav2vec2_bert", 1024, 16, 24, 0, 0, false, true,
     "rotary_embedding_base attention_dropout"},
    {"wav2vec2_conformer", 768, 12, 12, 0, 0, false, true,
     "rotary_embedding_base attention_dropout"},
    {"youtu", 2048, 16, 32, 131072, 0, false, false,
     "num_key_value_heads qk_rope_head_dim qk_nope_head_dim"},
    {"zamba2", 2560, 32, 54, 4096, 0, false, false, "attention_dropout",
     "attention_head_dim=head_dim"},
    {"zaya", 2048, 8, 40, 131072, 128, false, false,
     "num_key_value_heads head_dim num_experts_per_tok num_experts "
     "attention_dropout output_router_logits"},
};

}  // namespace

const ClassDefaults* FindClassDefaults(absl::string_view model_type) {
  for (const ClassDefaults& row : kRows) {
    if (IsAmong(model_type, row.model_types)) return &row;
  }
  return nullptr;
}

}  // namespace posenc::core
