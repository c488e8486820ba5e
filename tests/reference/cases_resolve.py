"""ResolveRope: every scaling as a specification, and configurations by each
project's reading."""

import json

from cases import bad, case, source
from profiles import INTERLEAVED, PRESETS


def _spec(name, length=None, head_dim=0, **spec):
    request = {"rope": source(length, **spec)}
    if head_dim:
        request["headDim"] = head_dim
    return case(name, "ResolveRope", **request)


def _config(name, config, profile="HF", **more):
    text = config if isinstance(config, str) else json.dumps(config)
    return case(name, "ResolveRope",
                rope={"configJson": text, "profile": "PROFILE_" + profile,
                      **more})


def specifications():
    short = [1 + i / 16 for i in range(8)]
    long = [2 + i * i / 4 for i in range(8)]
    su = {"shortFactor": short, "longFactor": long,
          "originalMaxPositionEmbeddings": "4096"}
    qwen = {"factor": 4, "originalMaxPositionEmbeddings": "32768"}
    llama = {"factor": 8, "lowFreqFactor": 1, "highFreqFactor": 4,
             "originalMaxPositionEmbeddings": "8192"}
    grow = {"factor": 2, "maxPositionEmbeddings": "2048"}
    out = [
        _spec("PlainFrequenciesArePowersOfTheBase", rotaryDim=64),
        _spec("RotaryDimDefaultsToHeadDim", head_dim=80),
        _spec("BaseOfFiveHundredThousand", rotaryDim=128, ropeTheta=500000),
        _spec("BaseOfTenMillion", rotaryDim=32, ropeTheta=1e7),
        _spec("BaseJustAboveOne", rotaryDim=16, ropeTheta=1.0009765625),
        _spec("FractionalBase", rotaryDim=32, ropeTheta=999999.4420358813),
        _spec("TwoChannelsTurnWithFrequencyOne", rotaryDim=2),
        _spec("AmplitudeReplacesTheScalings", rotaryDim=64, amplitude=1.25,
              yarn=qwen),
        _spec("PairingInterleaved", rotaryDim=16, pairing=INTERLEAVED),
        _spec("LinearDividesEveryFrequency", rotaryDim=128,
              linear={"factor": 8}),
        _spec("LinearFactorMayBeFractional", rotaryDim=32,
              linear={"factor": 2.7}),
        _spec("LinearFactorMayBeBelowOne", rotaryDim=32,
              linear={"factor": 0.5}),
        _spec("NtkRaisesTheBase", rotaryDim=128, ntk={"factor": 4}),
        _spec("NtkWithAlphaOfAThousand", rotaryDim=128, ntk={"factor": 1000}),
        _spec("NtkOfFourChannels", rotaryDim=4, ntk={"factor": 2}),
        _spec("DynamicNtkBelowTheMaximumIsPlain", 1024, rotaryDim=64,
              dynamicNtk=grow),
        _spec("DynamicNtkAtTheMaximumIsPlain", 2048, rotaryDim=64,
              dynamicNtk=grow),
        _spec("DynamicNtkOneTokenPastTheMaximumGrows", 2049, rotaryDim=64,
              dynamicNtk=grow),
        _spec("DynamicNtkFollowsTheLength", 8192, rotaryDim=64,
              dynamicNtk=grow),
        _spec("DynamicNtkAtAMillionTokens", 1048576, rotaryDim=128,
              ropeTheta=5e7, dynamicNtk={"factor": 6,
                                         "maxPositionEmbeddings": 32768}),
        _spec("DynamicNtkWithoutLengthAssumesTheMaximum", rotaryDim=32,
              dynamicNtk=grow),
        _spec("YarnOfQwen", rotaryDim=128, ropeTheta=1e6, yarn=qwen),
        _spec("YarnWithoutTruncation", rotaryDim=128, ropeTheta=1e6,
              yarn={**qwen, "truncate": False}),
        _spec("YarnOfGptOss", rotaryDim=64, ropeTheta=150000,
              yarn={"factor": 32, "originalMaxPositionEmbeddings": 4096,
                    "truncate": False}),
        _spec("YarnClampsTheRampAtDMinusOne", rotaryDim=16, ropeTheta=10000,
              yarn={"factor": 8, "originalMaxPositionEmbeddings": 1048576}),
        _spec("YarnClampsTheRampAtZero", rotaryDim=32, ropeTheta=10000,
              yarn={"factor": 4, "originalMaxPositionEmbeddings": 64}),
        _spec("YarnWithEqualBetasHasAStep", rotaryDim=64, ropeTheta=50000,
              yarn={"factor": 32, "originalMaxPositionEmbeddings": 4096,
                    "betaFast": 1, "betaSlow": 1}),
        _spec("YarnWithoutTruncationAndEqualBetasHasAStep", rotaryDim=64,
              ropeTheta=50000,
              yarn={"factor": 32, "originalMaxPositionEmbeddings": 4096,
                    "betaFast": 2, "betaSlow": 2, "truncate": False}),
        _spec("YarnTakesOtherBetas", rotaryDim=64, ropeTheta=500000,
              yarn={"factor": 32, "originalMaxPositionEmbeddings": 4096,
                    "betaFast": 64, "betaSlow": 2}),
        _spec("YarnAttentionFactorIsTheAmplitude", rotaryDim=64,
              yarn={**qwen, "attentionFactor": 0.75, "mscale": 2,
                    "mscaleAllDim": 1}),
        _spec("YarnOfEqualMscalesHasAmplitudeOne", rotaryDim=64,
              yarn={"factor": 40, "originalMaxPositionEmbeddings": 4096,
                    "mscale": 1, "mscaleAllDim": 1}),
        _spec("YarnOfUnequalMscalesHasTheirRatio", rotaryDim=64,
              yarn={"factor": 40, "originalMaxPositionEmbeddings": 4096,
                    "mscale": 1, "mscaleAllDim": 0.5}),
        _spec("YarnIgnoresMscaleAlone", rotaryDim=64,
              yarn={"factor": 40, "originalMaxPositionEmbeddings": 4096,
                    "mscale": 0.707}),
        _spec("YarnIgnoresMscaleAllDimAlone", rotaryDim=64,
              yarn={"factor": 40, "originalMaxPositionEmbeddings": 4096,
                    "mscaleAllDim": 0.707}),
        _spec("YarnIgnoresAPairWithAZero", rotaryDim=64,
              yarn={"factor": 40, "originalMaxPositionEmbeddings": 4096,
                    "mscale": 0, "mscaleAllDim": 1}),
        _spec("YarnOfFactorOneHasAmplitudeOne", rotaryDim=32,
              yarn={"factor": 1, "originalMaxPositionEmbeddings": 4096}),
        _spec("YarnBelowFactorOneHasAmplitudeOne", rotaryDim=32,
              yarn={"factor": 0.5, "originalMaxPositionEmbeddings": 4096}),
        _spec("LongRopeShortSideUpToTheOriginal", 4096, rotaryDim=16,
              longrope={**su, "factor": 32}),
        _spec("LongRopeLongSidePastTheOriginal", 4097, rotaryDim=16,
              longrope={**su, "factor": 32}),
        _spec("LongRopeAmplitudeByFactor", 131072, rotaryDim=16,
              longrope={**su, "factor": 8}),
        _spec("LongRopeBelowFactorOneHasAmplitudeOne", 8192, rotaryDim=16,
              longrope={**su, "factor": 0.5}),
        _spec("LongRopeAttentionFactorIsTheAmplitude", 8192, rotaryDim=16,
              longrope={**su, "attentionFactor": 1.5}),
        _spec("LongRopeShortMscale", 4096, rotaryDim=16,
              longrope={**su, "shortMscale": 1.1, "longMscale": 1.3}),
        _spec("LongRopeLongMscale", 4097, rotaryDim=16,
              longrope={**su, "shortMscale": 1.1, "longMscale": 1.3}),
        _spec("LongRopeWithoutLengthAssumesTheOriginal", rotaryDim=16,
              longrope={**su, "factor": 32}),
        _spec("Llama3KeepsBlendsAndDivides", rotaryDim=128, ropeTheta=500000,
              llama3=llama),
        _spec("Llama3OfLlama32", rotaryDim=64, ropeTheta=500000,
              llama3={**llama, "factor": 32}),
        _spec("Llama3WithANarrowBand", rotaryDim=64, ropeTheta=500000,
              llama3={**llama, "highFreqFactor": 1.0001}),
        _spec("Llama3WithOtherFactors", rotaryDim=64, ropeTheta=10000,
              llama3={"factor": 16, "lowFreqFactor": 2, "highFreqFactor": 32,
                      "originalMaxPositionEmbeddings": 1024}),
        _spec("ProportionalKeepsTheWholeHeadsExponent", rotaryDim=64,
              ropeTheta=1e6, proportional={"rotatingPairs": 8}),
        _spec("ProportionalDividesByItsFactor", rotaryDim=32, ropeTheta=1e6,
              proportional={"rotatingPairs": 16, "factor": 8}),
        case("ExplicitFrequenciesAreTakenAsGiven", "ResolveRope",
             rope=source(rotaryDim=8, explicitFrequencies={
                 "values": [1, -0.5, 0, 0.0625]})),
        case("ExplicitFrequenciesByHeadAndAxis", "ResolveRope",
             rope=source(rotaryDim=4, explicitFrequencies={
                 "heads": 2, "axes": 3,
                 "values": [i / 8 for i in range(12)]})),
        _spec("SectionedAxesShareOneLadder", rotaryDim=128, ropeTheta=1e6,
              axes={"assignment": "ASSIGNMENT_SECTIONED",
                    "sections": [16, 24, 24]}),
        _spec("InterleavedAxesLeaveTheRestToTime", rotaryDim=128,
              ropeTheta=5e6, axes={"assignment": "ASSIGNMENT_INTERLEAVED",
                                   "sections": [24, 20, 20]}),
        _spec("AlternatingAxesEndInTime", rotaryDim=128, ropeTheta=500000,
              pairing=INTERLEAVED,
              axes={"assignment": "ASSIGNMENT_ALTERNATING_TAIL",
                    "sections": [20, 22, 22]}),
        _spec("PerAxisLaddersStartAgain", rotaryDim=128, pairing=INTERLEAVED,
              axes={"assignment": "ASSIGNMENT_PER_AXIS",
                    "sections": [8, 28, 28]}),
        _spec("PerAxisLaddersMayHaveTheirOwnBase", rotaryDim=32,
              axes={"assignment": "ASSIGNMENT_PER_AXIS", "sections": [4, 6, 6],
                    "axisThetas": [10000, 100, 256]}),
        _spec("PerAxisScalingUsesEachAxisWidth", rotaryDim=24,
              ntk={"factor": 3}, axes={"assignment": "ASSIGNMENT_PER_AXIS",
                                       "sections": [2, 4, 6]}),
        _spec("SectionsMayBeEmpty", rotaryDim=16,
              axes={"assignment": "ASSIGNMENT_SECTIONED",
                    "sections": [0, 8, 0]}),
        _spec("SectionsOfAxesInAnotherOrder", rotaryDim=16, axes={
            "assignment": "ASSIGNMENT_SECTIONED", "sections": [2, 1, 5],
            "positionAxes": [2, 0, 1]}),
        _spec("AlternatingAxesInAnotherOrder", rotaryDim=16, axes={
            "assignment": "ASSIGNMENT_INTERLEAVED", "sections": [4, 4],
            "positionAxes": [1, 0]}),
        case("NopeHasNoFrequencies", "ResolveRope",
             rope={"spec": {"nope": True}}),
    ]
    return out


def _llama(rope=None, **more):
    config = {"model_type": "llama", "hidden_size": 512,
              "num_attention_heads": 8, "max_position_embeddings": 8192,
              "rope_theta": 10000.0, **more}
    if rope:
        config["rope_scaling"] = rope
    return config


def readers():
    """Cases of the two spellings, by reader and version."""
    new = {"rope_type": "linear", "factor": 4.0, "rope_theta": 500000.0}
    old = {"rope_type": "linear", "factor": 2.0}
    llama = _llama(rope_parameters=new)
    llama.pop("rope_theta")
    both = _llama(old, rope_parameters=new)
    lfm2 = {**llama, "model_type": "lfm2"}
    qwen3 = {**llama, "model_type": "qwen3", "head_dim": 64}
    telechat = _llama({"rope_type": "telechat3-yarn", "factor": 4.0,
                       "original_max_position_embeddings": 2048})
    glm = _llama(model_type="glm", head_dim=64, partial_rotary_factor=0.5)
    return [
        _config("RopeParametersAreReadByTransformers", llama),
        _config("RopeParametersAreNotReadByTransformers4", llama,
                profileVersion="4.57.1"),
        _config("RopeParametersAreNotReadByMlx", llama, "MLX"),
        _config("RopeParametersAreReadByLlamaCpp", llama, "LLAMA_CPP"),
        _config("RopeParametersAreReadByVllm", llama, "VLLM"),
        _config("BothSpellingsRopeScalingInTransformers", both),
        _config("BothSpellingsRopeScalingInMlx", both, "MLX"),
        _config("BothSpellingsRopeParametersInLlamaCpp", both, "LLAMA_CPP"),
        _config("MlxReadsTheBaseAloneForLfm2", lfm2, "MLX"),
        _config("MlxReadsRopeParametersForQwen3", qwen3, "MLX"),
        _config("MlxReadsTheOldSpellingFirstForQwen3",
                {**qwen3, "rope_theta": 10000.0, "rope_scaling": old}, "MLX"),
        _config("MlxReadsNoBaseInRopeScaling",
                _llama({**old, "rope_theta": 250000.0}), "MLX"),
        _config("Telechat3YarnIsYarnInMlx", telechat, "MLX"),
        _config("Telechat3YarnHasItsOwnAmplitudeInVllm", telechat, "VLLM"),
        _config("MlxRotatesTheWholeHeadOfGlm", glm, "MLX"),
        _config("TransformersRotatesHalfTheHeadOfGlm", glm)]


def configurations():
    out = [case("Preset" + "".join(part.capitalize() for part in
                                   name.replace(".", "Point").split("-")),
                "ResolveRope", rope={"preset": name}) for name in PRESETS]

    # DeepSeek-R1-0528-Qwen3-8B's value: 1 / (0.1 ln 4 + 1).
    r1 = _llama({"rope_type": "yarn", "factor": 4.0,
                 "original_max_position_embeddings": 32768,
                 "attn_factor": 0.8782488562869419}, model_type="qwen3",
                head_dim=128, rope_theta=1000000, max_position_embeddings=131072)
    out += [_config("AttnFactorIsNoKeyOfTransformers", r1),
            _config("AttnFactorIsNoKeyOfVllm", r1, "VLLM"),
            _config("AttnFactorMultipliesInVllmBeforeItsVersion30", r1, "VLLM",
                    profileVersion="0.29.0"),
            _config("AttnFactorIsOverwrittenInLlamaCpp", r1, "LLAMA_CPP")]

    fixed = _llama({"rope_type": "yarn", "factor": 4.0,
                    "original_max_position_embeddings": 2048,
                    "attention_factor": 0.75})
    out += [_config("AttentionFactorReplacesInTransformers", fixed),
            _config("AttentionFactorReplacesInVllm", fixed, "VLLM"),
            _config("AttentionFactorIsNotReadByVllmBeforeItsVersion30", fixed,
                    "VLLM", profileVersion="0.29.0"),
            _config("AttentionFactorIsNotReadByLlamaCpp", fixed, "LLAMA_CPP"),
            _config("AttentionFactorIsNotReadByMlx", fixed, "MLX")]

    cut = _llama({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                  "beta_slow": 1.0, "truncate": False,
                  "original_max_position_embeddings": 4096},
                 model_type="gpt_oss", head_dim=64, rope_theta=150000)
    out += [_config("TruncateFalseIsReadByTransformers", cut),
            _config("TruncateFalseIsReadByVllm", cut, "VLLM"),
            _config("GptOssNeverTruncates",
                    {**cut, "rope_scaling": {k: v for k, v in
                                             cut["rope_scaling"].items()
                                             if k != "truncate"}}, "GPT_OSS"),
            _config("TruncateIsNotReadByMlx", cut, "MLX"),
            _config("TruncateIsNotReadByLlamaCpp", cut, "LLAMA_CPP")]

    plain = _llama({"rope_type": "yarn", "factor": 4.0,
                    "original_max_position_embeddings": 2048})
    for profile in ("HF", "VLLM", "LLAMA_CPP", "MLX"):
        out.append(_config("PlainYarnIsAlikeIn" + profile.title().replace(
            "_", ""), plain, profile))

    alone = _llama({"rope_type": "yarn", "factor": 40.0, "mscale": 0.707,
                    "original_max_position_embeddings": 4096})
    out += [_config("MscaleAloneIsIgnoredByTransformers", alone),
            _config("MscaleAloneCountsInMlx", alone, "MLX")]
    other = _llama({"rope_type": "yarn", "factor": 40.0,
                    "mscale_all_dim": 1.0,
                    "original_max_position_embeddings": 4096})
    out += [_config("MscaleAllDimAloneIsIgnoredByTransformers", other),
            _config("MscaleAllDimAloneHasRatioOneInMlx", other, "MLX")]

    deepseek = json.loads(PRESETS["deepseek-v3"])
    unequal = {**deepseek, "rope_scaling": {
        **deepseek["rope_scaling"], "mscale": 1.0, "mscale_all_dim": 0.5}}
    lone = {**deepseek, "rope_scaling": {
        k: v for k, v in deepseek["rope_scaling"].items() if k != "mscale"}}
    out += [_config("DeepseekSoftmaxMultiplierIsSeparate", deepseek),
            _config("DeepseekUnequalMscales", unequal),
            _config("DeepseekMscaleAllDimAloneStillMultipliesSoftmax", lone),
            _config("DeepseekKeepsPairsInterleavedInVllm", deepseek, "VLLM"),
            _config("DeepseekKeepsPairsInterleavedInItsOwnCode", deepseek,
                    "DEEPSEEK"),
            _config("DeepseekUnequalMscalesInItsOwnCode", unequal,
                    "DEEPSEEK"),
            _config("DeepseekUnequalMscalesInVllm", unequal, "VLLM")]

    ministral = json.loads(PRESETS["ministral-3-8b"])
    out += [_config("MinistralPairOfOnesIsRatioOne", ministral),
            _config("MinistralPairOfOnesIsRatioOneInVllm", ministral, "VLLM"),
            _config("MscalePairIsNotReadByVllmBeforeItsVersion30", ministral,
                    "VLLM", profileVersion="0.29.0")]

    dynamic = _llama({"rope_type": "dynamic", "factor": 6.0},
                     rope_theta=50000000.0, max_position_embeddings=32768)
    out += [_config("DynamicIsPlainUpToTheMaximum", dynamic,
                    sequenceLength=32768),
            _config("DynamicGrowsFromMaxPositionEmbeddings", dynamic,
                    sequenceLength=65536),
            _config("DynamicIsUnscaledInVllm", dynamic, "VLLM",
                    sequenceLength=1024),
            _config("DynamicIsConstantInVllmBeforeItsVersion22", dynamic, "VLLM",
                    profileVersion="0.21.0", sequenceLength=1024),
            _config("DynamicGrowsFromTheTrainedLengthInVllm",
                    _llama({"rope_type": "dynamic", "factor": 2.0,
                            "max_trained_positions": 2048}), "VLLM"),
            _config("DynamicAlphaIsAnNtkFactor",
                    _llama({"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
                           model_type="hunyuan_v1_dense"))]

    su = {"rope_type": "longrope",
          "short_factor": [1 + i / 32 for i in range(32)],
          "long_factor": [1 + i / 2 for i in range(32)]}
    phi = _llama(su, model_type="phi3", max_position_embeddings=131072,
                 original_max_position_embeddings=4096)
    out += [_config("LongRopeShortInTransformers", phi, sequenceLength=4096),
            _config("LongRopeLongInTransformers", phi, sequenceLength=4097),
            _config("LongRopeIsAlwaysLongInMlx", phi, "MLX",
                    sequenceLength=100),
            _config("LongRopeFollowsTheLongestSequenceInVllm", phi, "VLLM",
                    sequenceLength=131072),
            _config("LongRopeMayStayShortInVllm", phi, "VLLM",
                    sequenceLength=4096)]
    keyed = _llama({**su, "factor": 8.0}, max_position_embeddings=131072,
                   original_max_position_embeddings=4096)
    out += [_config("LongRopeFactorDecidesTheAmplitude", keyed,
                    sequenceLength=8192),
            _config("LongRopeFactorIsNotReadByMlx", keyed, "MLX",
                    sequenceLength=8192)]

    out += [
        _config("LinearTypeUnderItsOldName",
                _llama({"type": "linear", "factor": 4.0})),
        _config("RopeParametersHoldTheBase",
                {"model_type": "llama", "hidden_size": 512,
                 "num_attention_heads": 8, "max_position_embeddings": 4096,
                 "rope_parameters": {"rope_type": "default",
                                     "rope_theta": 250000.0}}),
        _config("YarnFactorNullIsTheRatioOfLengths",
                _llama({"rope_type": "yarn", "factor": None,
                        "original_max_position_embeddings": 4096},
                       max_position_embeddings=65536)),
        _config("YarnBetaZeroIsTheDefaultInTransformers",
                _llama({"rope_type": "yarn", "factor": 4.0, "beta_fast": 0,
                        "beta_slow": 0,
                        "original_max_position_embeddings": 16384},
                       rope_theta=1000000.0)),
        _config("Gemma3GlobalLayersAreScaled", GEMMA_3,
                layerType="full_attention"),
        _config("Gemma3LocalLayersAreNot", GEMMA_3,
                layerType="sliding_attention"),
        _config("NestedParametersByLayerIndex", NESTED, layerIndex=1),
        _config("NestedParametersByLayerType", NESTED,
                layerType="full_attention"),
        _config("NestedTruncateIsNotReadByTransformers", UNTRUNCATED,
                layerType="full_attention"),
        _config("NestedTruncateIsReadByVllm", UNTRUNCATED, "VLLM",
                layerType="full_attention"),
        _config("Llama4LayerWithoutRopeScalesQueries", LLAMA_4,
                layerIndex=3),
        _config("SmolLm3LayerWithoutRope", SMOL, layerIndex=3),
        _config("SmolLm3LayerWithRope", SMOL, layerIndex=2),
        _config("TextConfigHoldsTheLanguageModel",
                {"model_type": "llava", "text_config": _llama(
                    rope_theta=500000.0)}),
        _config("Qwen2VlSectionsItsPairs",
                _llama({"type": "mrope", "mrope_section": [8, 12, 12]},
                       model_type="qwen2_vl", rope_theta=1000000.0)),
        _config("Qwen3VlInterleavesItsPairs",
                _llama({"rope_type": "default", "mrope_interleaved": True,
                        "mrope_section": [24, 20, 20]},
                       model_type="qwen3_vl_text", head_dim=128,
                       rope_theta=5000000.0)),
        _config("CoherePairsNeighbours",
                _llama(model_type="cohere", rope_theta=8000000.0)),
        *readers(),
        _config("PartialRotaryOfPhi",
                _llama(model_type="phi", partial_rotary_factor=0.5)),
        _config("MistralParamsPairNeighbours",
                {"dim": 4096, "n_layers": 32, "head_dim": 128, "n_heads": 32,
                 "n_kv_heads": 8, "rope_theta": 1000000.0}, "MISTRAL"),
    ]
    return out


GEMMA_3 = {"model_type": "gemma3_text", "hidden_size": 2560,
           "num_attention_heads": 8, "head_dim": 256,
           "max_position_embeddings": 131072, "rope_theta": 1000000.0,
           "rope_local_base_freq": 10000.0, "sliding_window": 1024,
           "num_hidden_layers": 6,
           "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
           "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
NESTED = {"model_type": "laguna", "hidden_size": 2048,
          "num_attention_heads": 16, "head_dim": 128,
          "max_position_embeddings": 131072, "num_hidden_layers": 2,
          "layer_types": ["full_attention", "sliding_attention"],
          "rope_parameters": {
              "full_attention": {
                  "rope_type": "yarn", "rope_theta": 500000.0,
                  "partial_rotary_factor": 0.5, "factor": 32.0,
                  "original_max_position_embeddings": 4096,
                  "beta_fast": 64.0, "beta_slow": 1.0,
                  "attention_factor": 1.0},
              "sliding_attention": {"rope_type": "default",
                                    "rope_theta": 10000.0,
                                    "partial_rotary_factor": 1.0}}}
UNTRUNCATED = {**NESTED, "rope_parameters": {
    **NESTED["rope_parameters"], "full_attention": {
        **NESTED["rope_parameters"]["full_attention"], "truncate": False}}}
LLAMA_4 = {"model_type": "llama4_text", "hidden_size": 5120,
           "num_attention_heads": 40, "head_dim": 128,
           "max_position_embeddings": 1048576, "rope_theta": 500000.0,
           "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0],
           "attn_temperature_tuning": True, "attn_scale": 0.1,
           "floor_scale": 8192}
SMOL = {"model_type": "smollm3", "hidden_size": 2048,
        "num_attention_heads": 16, "max_position_embeddings": 65536,
        "rope_theta": 5000000.0, "num_hidden_layers": 4,
        "no_rope_layers": [1, 1, 1, 0]}


def differences():
    yarn = {"factor": 4, "originalMaxPositionEmbeddings": 8192}
    config = json.dumps({
        "model_type": "llama", "hidden_size": 256, "num_attention_heads": 8,
        "rope_theta": 10000.0, "max_position_embeddings": 2048,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                         "truncate": False,
                         "original_max_position_embeddings": 512}})

    def compare(name, rope, other, **more):
        return case(name, "ResolveRope", rope=rope, compareWith=other, **more)

    def wrong(name, length, **more):
        return bad(name, "ResolveRope", "FIELD_INVALID", "length",
                   rope=source(rotaryDim=8), length=length, **more)

    plain = source(rotaryDim=16)
    return [
        compare("KeptOfAnotherBase", plain,
                source(rotaryDim=16, ropeTheta=500000)),
        compare("KeptOfALinearReading", source(rotaryDim=32, yarn=yarn),
                source(rotaryDim=32, linear={"factor": 4}), length=65536),
        compare("KeptOfTheSameEncodingIsOne", plain, plain),
        compare("KeptOfAReversedEncoding", plain,
                source(rotaryDim=16, reverse=True), length=3),
        compare("KeptOfFewerChannels", plain, source(rotaryDim=12)),
        compare("KeptWithoutRotation", plain, {"spec": {"nope": True}}),
        compare("KeptAboveTheLimitToTheLength", plain,
                source(rotaryDim=16, ropeTheta=10001), length=4096),
        compare("KeptAtTheLastDistance", plain,
                source(rotaryDim=16, ropeTheta=10100), length=2**31),
        compare("KeptToTheClaimedLength",
                {"configJson": config},
                {"configJson": config, "profile": "PROFILE_LLAMA_CPP"}),
        wrong("RejectsALengthWithoutComparison", 4096),
        wrong("RejectsANegativeLengthOfADifference", -1, compareWith=plain),
        wrong("RejectsALengthPastThePositions", 2**31 + 1, compareWith=plain),
    ]


def errors():
    def wrong(name, reason, field, length=None, **spec):
        return bad(name, "ResolveRope", reason, field,
                   rope=source(length, **spec))

    def config(name, text, reason="MODEL_CONFIG_INVALID",
               field="rope.config_json", **more):
        return bad(name, "ResolveRope", reason, field,
                   rope={"configJson": text, **more})

    yarn = {"factor": 4, "originalMaxPositionEmbeddings": 4096}
    invalid, required = "FIELD_INVALID", "FIELD_REQUIRED"
    out = [
        wrong("RejectsOddRotaryDim", invalid, "rope.spec.rotary_dim",
              rotaryDim=7),
        wrong("RejectsNegativeRotaryDim", invalid, "rope.spec.rotary_dim",
              rotaryDim=-2),
        wrong("RejectsUnknownWidth", required, "rope.spec.rotary_dim"),
        bad("RejectsRotaryDimPastTheHead", "ResolveRope", invalid,
            "rope.spec.rotary_dim", rope=source(rotaryDim=16), headDim=8),
        bad("RejectsNoPairing", "ResolveRope", required, "rope.spec.pairing",
            rope={"spec": {"rotaryDim": 8}}),
        bad("RejectsNoSource", "ResolveRope", required, "rope"),
        wrong("RejectsABaseOfOne", invalid, "rope.spec.rope_theta",
              rotaryDim=8, ropeTheta=1),
        wrong("RejectsAnAmplitudeOfZero", invalid, "rope.spec.amplitude",
              rotaryDim=8, amplitude=0),
        wrong("RejectsLinearWithoutFactor", required,
              "rope.spec.linear.factor", rotaryDim=8, linear={}),
        wrong("RejectsNegativeLinearFactor", invalid,
              "rope.spec.linear.factor", rotaryDim=8, linear={"factor": -2}),
        wrong("RejectsNtkOfTwoChannels", invalid, "rope.spec.ntk",
              rotaryDim=2, ntk={"factor": 2}),
        wrong("RejectsDynamicNtkOfTwoChannels", invalid,
              "rope.spec.dynamic_ntk", 4096, rotaryDim=2,
              dynamicNtk={"factor": 2, "maxPositionEmbeddings": 2048}),
        wrong("RejectsYarnWithoutOriginalLength", required,
              "rope.spec.yarn.original_max_position_embeddings", rotaryDim=8,
              yarn={"factor": 4}),
        wrong("RejectsYarnWithSwappedBetas", invalid,
              "rope.spec.yarn.beta_fast", rotaryDim=8,
              yarn={**yarn, "betaFast": 1, "betaSlow": 32}),
        wrong("RejectsLongRopeWithoutAnyAmplitude", required,
              "rope.spec.longrope.factor", 4096, rotaryDim=4,
              longrope={"shortFactor": [1, 1], "longFactor": [2, 2],
                        "originalMaxPositionEmbeddings": 4096}),
        wrong("RejectsLongRopeOfTooFewFactors", invalid,
              "rope.spec.longrope.long_factor", 4096, rotaryDim=4,
              longrope={"shortFactor": [1, 1], "longFactor": [2],
                        "originalMaxPositionEmbeddings": 4096, "factor": 2}),
        wrong("RejectsLongRopeOfOriginalLengthOne", invalid,
              "rope.spec.longrope.original_max_position_embeddings", 4096,
              rotaryDim=4,
              longrope={"shortFactor": [1, 1], "longFactor": [2, 2],
                        "originalMaxPositionEmbeddings": 1, "factor": 2}),
        wrong("RejectsLlama3WithEqualFactors", invalid,
              "rope.spec.llama3.high_freq_factor", rotaryDim=8,
              llama3={"factor": 8, "lowFreqFactor": 4, "highFreqFactor": 4,
                      "originalMaxPositionEmbeddings": 8192}),
        wrong("RejectsMorePairsThanTheHeadHas", invalid,
              "rope.spec.proportional.rotating_pairs", rotaryDim=8,
              proportional={"rotatingPairs": 5}),
        wrong("RejectsABaseBesideExplicitFrequencies", invalid,
              "rope.spec.rope_theta", rotaryDim=4, ropeTheta=10000,
              explicitFrequencies={"values": [1, 0.5]}),
        wrong("RejectsSectionsOfAnotherSum", invalid,
              "rope.spec.axes.sections", rotaryDim=16,
              axes={"assignment": "ASSIGNMENT_SECTIONED",
                    "sections": [2, 2, 2]}),
        wrong("RejectsAxesWithoutAssignment", required,
              "rope.spec.axes.assignment", rotaryDim=16,
              axes={"sections": [4, 4]}),
        wrong("RejectsAlternatingAxesOfUnequalHeightAndWidth", invalid,
              "rope.spec.axes.sections", rotaryDim=16,
              axes={"assignment": "ASSIGNMENT_ALTERNATING_TAIL",
                    "sections": [2, 2, 4]}),
        wrong("RejectsInterleavedSectionsThatCannotBeMet", invalid,
              "rope.spec.axes.sections", rotaryDim=16,
              axes={"assignment": "ASSIGNMENT_INTERLEAVED",
                    "sections": [1, 1, 6]}),
        wrong("RejectsThetasOfSharedLadders", invalid,
              "rope.spec.axes.axis_thetas", rotaryDim=16,
              axes={"assignment": "ASSIGNMENT_SECTIONED", "sections": [4, 4],
                    "axisThetas": [10, 20]}),
        bad("RejectsNopeBesideAPairing", "ResolveRope", invalid,
            "rope.spec.nope", rope=source(nope=True)),
        bad("RejectsUnknownPreset", "ResolveRope", "PRESET_UNKNOWN",
            "rope.preset", "NOT_FOUND", rope={"preset": "no-such-model"}),
        config("RejectsAConfigThatIsNotJson", "{"),
        config("RejectsAnUnknownRopeType",
               json.dumps(_llama({"rope_type": "spiral", "factor": 2}))),
        config("RejectsAYarnConfigWithoutFactor",
               json.dumps(_llama({"rope_type": "yarn"}))),
        config("RejectsABaseThatIsText",
               json.dumps(_llama(rope_theta="10000"))),
        config("RejectsAModelWithoutOneLayerChosen", json.dumps(NESTED),
               "FIELD_REQUIRED", "rope.layer_type"),
    ]
    return out


def groups():
    return {"resolve_rope_spec": specifications(),
            "resolve_rope_config": configurations(),
            "resolve_rope_difference": differences(),
            "resolve_rope_errors": errors()}
