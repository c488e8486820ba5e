"""Reposition: positions, shifts, and changes of the encoding."""

import json

from cases import (HALF, INTERLEAVED, Numbers, bad, case, ids,
                   given, source)
from integers import TooCloseError
from rotary import reposition

TRAILING = "ROTARY_SLICE_TRAILING"


def moves():
    draw, eights = Numbers(19), Numbers(31)

    def move(name, rope, movement, k=None, new=None, layout="LAYOUT_BSHD",
             **more):
        request = {"oldRope": rope, "movement": movement, "layout": layout,
                   "k": k or draw.tensor(1, 3, 1, 8), **more}
        if new:
            request["newRope"] = new
        return case(name, "Reposition", **request)

    def between(old, new):
        return {"oldPositions": old, "newPositions": new}

    def start(p):
        return {"start": p}

    plain = source()
    yarn = source(ropeTheta=1e6, yarn={
        "factor": 4, "originalMaxPositionEmbeddings": 32768})
    grow = {"factor": 2, "maxPositionEmbeddings": 2048}
    su = {"shortFactor": [1, 1.1, 1.2, 1.3], "longFactor": [1, 2.5, 9, 40],
          "originalMaxPositionEmbeddings": 4096, "factor": 32}
    axes = {"assignment": "ASSIGNMENT_SECTIONED", "sections": [1, 1, 2]}
    shift = {"oldPositions": start(100), "shift": -60}
    at_100 = {"oldPositions": start(100), "shift": 0}
    out = [
        move("MovesToNewPositions", plain, between(start(10), start(500))),
        move("ShiftsWithoutPositions", plain, {"shift": -7}),
        move("ShiftsForwards", plain, {"shift": 12345}),
        move("ShiftsByNothing", plain, {"shift": 0}),
        move("ShiftsWithPositionsGiven", plain, shift),
        move("ShiftsEachToken", plain, {"shifts": given(
            [-1, 5, 1000], 3, dtype="DTYPE_INT64")}),
        move("ShiftsEachTokenOfEachSequence", plain, {"shifts": given(
            [-1, 5, 70, 8], 2, 2, dtype="DTYPE_INT32")},
            draw.tensor(2, 2, 1, 8)),
        move("ShiftsByFractions", plain, {"shifts": given(
            [0.5, -1.25, 3], 3, dtype="DTYPE_FLOAT64")}),
        move("MovesToStartsOfEachSequence", plain, between(
            {"starts": {"values": [100, 5]}},
            {"starts": {"values": [0, -5]}}), draw.tensor(2, 2, 1, 8)),
        move("MovesPackedSequences", plain, between(
            {"packed": {"cuSeqlens": [0, 2, 4], "starts": [50, 60]}},
            {"packed": {"cuSeqlens": [0, 2, 4]}}), draw.tensor(4, 1, 8),
            layout="LAYOUT_THD"),
        move("MovesKeysBehindSinks", plain, between(
            ids([0, 1, 97, 98]), start(0)), draw.tensor(1, 2, 4, 8),
            layout="LAYOUT_BHSD"),
        move("MovesOverTheWholeRange", plain, between(
            start(2147483640), start(-2147483648))),
        move("KeepsTheAmplitudeOfYarn", yarn, {"shift": -4000}),
        move("MovesYarnKeys", yarn, between(start(100000), start(3))),
        move("MovesLeadingChannelsOnly", source(rotaryDim=4),
             {"shift": 33}),
        move("MovesTrailingChannelsOnly", source(
            rotaryDim=4, slice=TRAILING, pairing=INTERLEAVED),
            {"shift": 33}),
        move("MovesInterleavedPairs", source(pairing=INTERLEAVED),
             {"shift": -3}),
        move("MovesInTheOutputPairing", source(
            pairing=INTERLEAVED, outputPairing=HALF), {"shift": -3}),
        move("WritesTheNewOutputPairing", source(pairing=INTERLEAVED), at_100,
             new=source(pairing=INTERLEAVED, outputPairing=HALF)),
        move("MovesTheReversedRotation", source(reverse=True),
             {"shift": 21}),
        move("JoinsReversedAndForward", source(reverse=True), at_100,
             new=plain),
        move("ChangesTheBase", plain, between(start(100), start(40)),
             new=source(ropeTheta=500000)),
        move("ChangesTheBaseInPlace", plain, at_100,
             new=source(ropeTheta=500000)),
        move("ChangesTheBaseAndShifts", plain, shift,
             new=source(ropeTheta=500000)),
        move("ChangesTheAmplitude", plain, at_100, new=yarn),
        move("ChangesTheAmplitudeBack", yarn, at_100, new=plain),
        move("ChangesTheAmplitudeWithoutPositions", source(amplitude=2),
             {"shift": 5}, new=source(amplitude=0.5)),
        move("ChangesToLinear", plain, at_100,
             new=source(linear={"factor": 4})),
        move("FollowsDynamicNtkToAnotherLength", source(
            2048, dynamicNtk=grow), {"oldPositions": start(2000), "shift": 0},
            new=source(6000, dynamicNtk=grow)),
        move("CrossesLongRopesSides", source(4096, longrope=su),
             {"oldPositions": start(4000), "shift": 0},
             new=source(4097, longrope=su)),
        move("ChangesExplicitFrequencies", source(explicitFrequencies={
            "values": [1, 0.5, 0.25, 0]}), at_100,
            new=source(explicitFrequencies={"values": [0.5, 0, -1, 2]})),
        move("MovesEachHeadByItsFrequencies", source(explicitFrequencies={
            "heads": 2, "values": [1, 0.5, 0.25, 0, 2, 3, 4, 5]}),
            {"shift": 9}, draw.tensor(1, 2, 2, 8)),
        move("MovesTheDecayOfXpos", source(xpos={}), {"shift": -200}),
        move("MovesXposKeysBetweenPositions", source(
            xpos={"center": 50, "scaleBase": 128}),
            between(start(300), start(0))),
        move("ShiftsEveryAxis", source(axes=axes), {"shift": 17}),
        move("MovesEachAxis", source(axes=axes), between(
            ids([1, 2, 3, 4, 5, 6, 7, 8, 9], 3, 3),
            ids([9, 8, 7, 600, 500, 400, 3, 2, 1], 3, 3))),
        move("ShiftsEachAxisOfEachToken", source(axes=axes), {
            "shifts": given([1, 2, -3, 40, -50, 60, 700, 800, 900], 3, 3,
                            dtype="DTYPE_INT64")}),
        move("MovesTextOnSeveralAxes", source(axes=axes),
             between(start(80), start(8))),
        move("MovesNopeKeysNowhere", {"spec": {"nope": True}},
             {"shift": 8}),
        move("MovesByAPreset", {"preset": "llama-3.1-8b"},
             between(start(130000), start(1)), draw.tensor(1, 1, 1, 128)),
        move("MovesAtFloat32Angles", source(
            anglePrecision="ANGLE_PRECISION_FLOAT32"),
            between(start(1000003), start(3))),
    ]
    for name in ("Float16", "Bfloat16", "Float64"):
        out.append(move("Moves" + name, yarn, between(start(70000), start(9)),
                        draw.tensor(1, 2, 2, 12,
                                    dtype="DTYPE_" + name.upper())))
    for name in ("Float8_E4m3fn", "Float8_E5m2"):
        dtype = "DTYPE_" + name.upper()
        out.append(move("Moves" + name.replace("_", ""), yarn,
                        between(start(70000), start(9)),
                        eights.float8(1, 2, 2, 12, dtype=dtype),
                        saturation="SATURATION_FINITE"))
        out.append(move("Shifts" + name.replace("_", "") + "ByNothing", plain,
                        {"shift": 0}, eights.float8(1, 2, 1, 8, dtype=dtype),
                        saturation="SATURATION_NONE"))
    return out


def own_layers(factor=32.0):
    """Returns a model whose layers have two encodings."""
    return {"configJson": json.dumps({
        "model_type": "laguna", "hidden_size": 32, "num_attention_heads": 4,
        "head_dim": 8, "max_position_embeddings": 4096 * int(factor),
        "num_hidden_layers": 3,
        "layer_types": ["full_attention", "sliding_attention",
                        "full_attention"],
        "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn", "rope_theta": 500000.0,
                "partial_rotary_factor": 0.5, "factor": factor,
                "original_max_position_embeddings": 4096, "beta_fast": 64.0,
                "beta_slow": 1.0, "attention_factor": 1.0},
            "sliding_attention": {"rope_type": "default",
                                  "rope_theta": 10000.0,
                                  "partial_rotary_factor": 1.0}}})}


SOME_WITHOUT_ROPE = {"configJson": json.dumps({
    "model_type": "smollm3", "hidden_size": 32, "num_attention_heads": 4,
    "max_position_embeddings": 65536, "rope_theta": 5000000.0,
    "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]})}


def caches():
    draw, eights = Numbers(47), Numbers(53)

    def table(*values, n=2, lengths=(), **more):
        given_lengths = {"lengths": list(lengths)} if lengths else {}
        return {"blockTable": given(list(values), len(values) // n, n,
                                    dtype="DTYPE_INT32"),
                **given_lengths, **more}

    def slots(*values, sequences=1):
        return {"slots": given(list(values), sequences,
                               len(values) // sequences, dtype="DTYPE_INT64")}

    def move(name, dimensions, shape, places, rope=None, movement=None, k=None,
             **more):
        return case(name, "Reposition", oldRope=rope or source(),
                    movement=movement or {"shift": -7},
                    cache={"dimensions": dimensions, **places},
                    k=k or draw.tensor(*shape), **more)

    two = table(2, 0, 1, -1, lengths=(3, 2))
    out = [
        move("MovesBlocksWithTokensFirst", "BTHD", (3, 2, 1, 8), two),
        move("MovesBlocksWithHeadsFirst", "BHTD", (3, 2, 2, 8), two),
        move("MovesBlocksOfOneSequence", "BTHD", (3, 2, 1, 4), {
            "blockTable": given([1, 2], 2, dtype="DTYPE_INT64")}),
        move("MovesKeysBeforeValues", "KBTHD", (2, 3, 2, 1, 4), two),
        move("MovesKeysBesideValues", "BTHKD", (3, 2, 2, 2, 4), two),
        move("MovesKeysAndValuesInOneDimension", "BTHKD", (3, 2, 2, 8), two),
        move("MovesTheLayersThatAreNamed", "LBTHD", (3, 3, 2, 1, 4),
             {**two, "layers": [2, 0]}),
        move("MovesLayersInsideABlock", "BLTHD", (3, 2, 2, 1, 4),
             {**two, "layers": [1]}),
        move("MovesSlots", "BTHD", (2, 2, 1, 8), slots(3, 0, -1)),
        move("MovesSlotsOfTwoSequences", "BHTD", (2, 1, 2, 8),
             slots(3, 0, 2, -1, sequences=2)),
        move("MovesLatentRows", "BTD", (3, 2, 12), two, source(
            rotaryDim=4, slice=TRAILING, pairing=INTERLEAVED)),
        move("MovesCachedTokensToNewPositions", "BTHD", (3, 2, 1, 8), two,
             movement={"oldPositions": {"starts": {"values": [100, 7]}},
                       "newPositions": ids([4, 5, 6, 900, 901, 0], 2, 3)}),
        move("WritesTheNewPairingIntoACache", "BTHKD", (3, 2, 1, 2, 4), two,
             source(pairing=INTERLEAVED),
             {"oldPositions": {"start": 100}, "shift": 0},
             newRope=source(pairing=INTERLEAVED, outputPairing=HALF)),
        move("MovesXposKeysBesideValues", "BTHKD", (3, 2, 1, 2, 4), two,
             source(xpos={}), {"shift": -200}),
        move("MovesEachHeadOfACache", "BHTD", (3, 2, 2, 8), two,
             source(explicitFrequencies={
                 "heads": 2, "values": [1, 0.5, 0.25, 0, 2, 3, 4, 5]})),
        move("MovesVllmSplit", "vllm_split", (2, 3, 2, 1, 4), two),
        move("MovesVllmPacked", "vllm_packed", (3, 2, 1, 8), two),
        move("MovesSglangHnd", "sglang_hnd", (3, 1, 2, 4), two),
        move("MovesSglangNhd", "sglang_nhd", (5, 1, 4), slots(4, 1, 2)),
        move("MovesLmcache", "lmcache", (2, 2, 3, 1, 4), slots(0, 1, 2)),
        move("MovesLlamaCpp", "llama_cpp", (5, 2, 4), slots(1, 2, 4)),
    ]
    for name in ("Float16", "Bfloat16", "Float64"):
        out.append(move("MovesACacheOf" + name, "BTHKD", (), two, k=draw.tensor(
            3, 2, 1, 2, 4, dtype="DTYPE_" + name.upper())))
    for name in ("Float8_E4m3fn", "Float8_E5m2"):
        out.append(move("MovesACacheOf" + name.replace("_", ""), "BTHKD", (),
                        two, k=eights.float8(3, 2, 1, 2, 4,
                                             dtype="DTYPE_" + name.upper()),
                        saturation="SATURATION_FINITE"))
    draw = Numbers(71)
    local = own_layers()
    scaled = own_layers(factor=64.0)
    out += [
        move("MovesEachLayerByItsOwnEncoding", "LBTHD", (3, 3, 2, 1, 8),
             {**two, "modelLayers": [0, 1, 2]}, local),
        move("MovesSomeLayersOfAModel", "lmcache", (2, 2, 3, 1, 8),
             {**slots(0, 1, 2), "modelLayers": [2, 1]}, local),
        move("MovesNamedLayersByTheirOwnEncodings", "BLTHD", (3, 3, 2, 1, 8),
             {**two, "modelLayers": [9, 1, 0], "layers": [1, 2]}, local),
        move("ExtendsTheScaledLayersOfACache", "BHTLD", (3, 1, 2, 3, 8),
             {**two, "modelLayers": [0, 1, 2]}, local,
             {"oldPositions": {"start": 40}, "shift": 0}, newRope=scaled),
        move("KeepsLayersWithoutRope", "LBTHD", (4, 3, 2, 1, 8),
             {**two, "modelLayers": [0, 1, 2, 3]}, SOME_WITHOUT_ROPE),
    ]
    return out


Q8, Q4 = "BLOCK_FORMAT_Q8_0", "BLOCK_FORMAT_Q4_0"
FINITE = "SATURATION_FINITE"


def integers():
    draw = Numbers(61)
    shift = {"shift": -7}
    two = {"blockTable": given([2, 0, 1, -1], 2, 2, dtype="DTYPE_INT32"),
           "lengths": [3, 2]}

    def move(name, k, rope=None, movement=None, **more):
        if "cache" not in more:
            more.setdefault("layout", "LAYOUT_BSHD")
        if "blockFormat" not in more:
            more.setdefault("saturation", FINITE)
        return case(name, "Reposition", oldRope=rope or source(),
                    movement=movement or shift, k=k, **more)

    def sure(name, tensor, *arguments, **more):
        """Draws tensors until float32 is exact enough for the result."""
        while True:
            out = move(name, tensor(), *arguments, **more)
            try:
                reposition(out["request"])
            except TooCloseError:
                continue
            return out

    def numbers(name, shape, *arguments, **more):
        return sure(name, lambda: draw.int8(*shape), *arguments, **more)

    def blocks(name, form, shape, *arguments, **more):
        return sure(name, lambda: draw.blocks(*shape, block_format=form),
                    *arguments, blockFormat=form, **more)

    across = source(pairing=INTERLEAVED, outputPairing=HALF)
    large = given([127, -128] * 4 + [-128, 127] * 4, 1, 2, 1, 8,
                  dtype="DTYPE_INT8")

    def part(form, at, bytes_):
        """Draws two heads of 96 channels, with other bytes at one place."""
        tensor = draw.blocks(1, 1, 2, 96, block_format=form)
        tensor["values"][at:at + len(bytes_)] = bytes_
        return tensor

    zeros = [0] * 102
    zero_nibbles = ([0, 0x20] + [-120] * 16) * 3
    out = [
        numbers("MovesInt8", (1, 3, 2, 8)),
        numbers("MovesInt8Heads", (2, 2, 3, 70), movement={
            "oldPositions": {"start": 900}, "newPositions": {"start": 4}},
            layout="LAYOUT_BHSD"),
        numbers("ShiftsInt8ByNothing", (1, 1, 2, 8), movement={"shift": 0}),
        numbers("MovesTrailingChannelsOfInt8", (1, 3, 1, 12), source(
            rotaryDim=4, slice=TRAILING, pairing=INTERLEAVED)),
        numbers("WritesTheNewPairingOfInt8", (1, 3, 1, 8),
                source(pairing=INTERLEAVED),
                {"oldPositions": {"start": 100}, "shift": 0}, newRope=across),
        numbers("MovesNoInt8OfNope", (1, 2, 1, 8), {"spec": {"nope": True}}),
        move("SaturatesInt8", large),
        numbers("MovesACacheOfInt8", (3, 2, 2, 2, 8),
                cache={"dimensions": "BTHKD", **two}),
    ]
    for form, word in ((Q8, "Q80"), (Q4, "Q40")):
        out += [
            blocks("Moves" + word, form, (1, 3, 2, 128)),
            blocks(f"Moves{word}OfAPreset", form, (4, 2, 128),
                   {"preset": "llama-3.1-8b"}, {
                       "oldPositions": {"start": 100000},
                       "newPositions": ids([0, 1, 7, 8])},
                   layout="LAYOUT_THD"),
            blocks(f"Moves{word}OfHeadsFirst", form, (1, 2, 3, 64),
                   source(pairing=INTERLEAVED), layout="LAYOUT_BHSD"),
            blocks(f"Shifts{word}ByNothing", form, (1, 1, 2, 64),
                   movement={"shift": 0}),
            blocks(f"KeepsBlocksOf{word}WithoutRotatedChannels", form,
                   (1, 2, 1, 128), source(rotaryDim=40)),
            blocks(f"MovesTrailingChannelsOf{word}", form, (1, 2, 2, 128),
                   source(rotaryDim=48, slice=TRAILING)),
            blocks(f"WritesTheNewPairingOf{word}", form, (1, 2, 1, 96),
                   source(pairing=INTERLEAVED, rotaryDim=72),
                   {"oldPositions": {"start": 100}, "shift": 0},
                   newRope=source(pairing=INTERLEAVED, rotaryDim=72,
                                  outputPairing=HALF)),
            blocks(f"MovesEachHeadOf{word}", form, (1, 2, 2, 32),
                   source(explicitFrequencies={
                       "heads": 2, "values": [0.9**i for i in range(32)]})),
            blocks(f"MovesNo{word}OfNope", form, (1, 2, 1, 64),
                   {"spec": {"nope": True}}),
            blocks(f"Moves{word}OfLlamaCpp", form, (5, 2, 64), cache={
                "dimensions": "llama_cpp",
                "slots": given([1, 2, 4], 1, 3, dtype="DTYPE_INT64")}),
            blocks(f"Moves{word}BesideValues", form, (3, 2, 1, 2, 64),
                   cache={"dimensions": "BTHKD", **two}),
        ]
    out += [
        sure("KeepsZerosOfQ80", lambda: part(Q8, 0, zeros), blockFormat=Q8),
        sure("KeepsZerosOfQ40", lambda: part(Q4, 0, zero_nibbles),
             blockFormat=Q4),
        sure("MakesBlocksOfAnInfiniteScaleNan",
             lambda: part(Q8, 34, [0, 0x7C]), blockFormat=Q8),
        sure("MakesBlocksOfANanScaleNan", lambda: part(Q4, 36, [1, 0x7E]),
             source(rotaryDim=64, slice=TRAILING), blockFormat=Q4),
    ]
    return out


def integer_errors():
    draw = Numbers(67)
    good = {"oldRope": source(), "movement": {"shift": 1},
            "layout": "LAYOUT_BSHD"}

    def wrong(name, reason, field, k, **more):
        return bad(name, "Reposition", reason, field,
                   **{**good, "k": k, **more})

    int8 = draw.int8(1, 2, 1, 8)
    return [
        wrong("RejectsInt8WithoutSaturation", "FIELD_REQUIRED", "saturation",
              int8),
        wrong("RejectsInt8WithInfinity", "FIELD_INVALID", "saturation", int8,
              saturation="SATURATION_NONE"),
        wrong("RejectsBlocksOfFloats", "FIELD_INVALID", "k.dtype",
              draw.tensor(1, 2, 1, 34), blockFormat=Q8),
        wrong("RejectsAPartOfABlock", "FIELD_INVALID", "k.shape",
              draw.int8(1, 1, 1, 70), blockFormat=Q8),
        wrong("RejectsHeadsOf80ChannelsInBlocks", "FIELD_INVALID", "k.shape",
              draw.int8(1, 1, 1, 45), blockFormat=Q4),
        wrong("RejectsBlocksWiderThanTheModelsHeads", "FIELD_INVALID",
              "old_rope.head_dim", draw.blocks(1, 1, 1, 160, block_format=Q8),
              blockFormat=Q8, oldRope={"preset": "llama-3.1-8b"}),
    ]


def cache_errors():
    draw = Numbers(59)
    table = given([2, 0, 1, -1], 2, 2, dtype="DTYPE_INT32")
    cache = {"dimensions": "BTHKD", "blockTable": table, "lengths": [3, 2]}
    good = {"oldRope": source(), "movement": {"shift": 1},
            "k": draw.tensor(3, 2, 1, 2, 4)}

    def wrong(name, reason, field, without=(), more=None, **change):
        layout = {k: v for k, v in {**cache, **change}.items()
                  if k not in without}
        return bad(name, "Reposition", reason, field,
                   **{**good, "cache": layout, **(more or {})})

    def blocks(*values):
        return given(list(values), 2, 2, dtype="DTYPE_INT32")

    return [
        wrong("RejectsACacheWithoutDimensions", "FIELD_REQUIRED",
              "cache.dimensions", ("dimensions",)),
        wrong("RejectsAnUnknownEngine", "FIELD_INVALID", "cache.dimensions",
              dimensions="vllm"),
        wrong("RejectsTwiceTheSameDimension", "FIELD_INVALID",
              "cache.dimensions", dimensions="BTTKD"),
        wrong("RejectsChannelsThatAreApart", "FIELD_INVALID",
              "cache.dimensions", dimensions="BTHDK"),
        wrong("RejectsACacheOfAnotherRank", "FIELD_INVALID", "k.shape",
              dimensions="BTHD"),
        wrong("RejectsThreePartsOfACache", "FIELD_INVALID", "k.shape",
              more={"k": draw.tensor(3, 2, 1, 3, 4)}),
        wrong("RejectsAnOddPackedWidth", "FIELD_INVALID", "k.shape",
              more={"k": draw.tensor(3, 2, 1, 7)}),
        wrong("RejectsACacheWithoutPlaces", "FIELD_REQUIRED",
              "cache.block_table", ("blockTable", "lengths")),
        wrong("RejectsATableBesideSlots", "FIELD_INVALID", "cache.slots",
              slots=table),
        wrong("RejectsATableOfFractions", "FIELD_INVALID",
              "cache.block_table.dtype", blockTable=given([2, 0], 2)),
        wrong("RejectsABlockThatIsNotThere", "FIELD_INVALID",
              "cache.block_table", blockTable=blocks(3, 0, 1, -1)),
        wrong("RejectsABlockOfTwoSequences", "FIELD_INVALID",
              "cache.block_table", blockTable=blocks(2, 0, 2, 1)),
        wrong("RejectsASlotOfTwoTokens", "FIELD_INVALID", "cache.slots",
              ("blockTable", "lengths"),
              slots=given([1, 1], 2, dtype="DTYPE_INT64")),
        wrong("RejectsASlotThatIsNotThere", "FIELD_INVALID", "cache.slots",
              ("blockTable", "lengths"),
              slots=given([6], 1, dtype="DTYPE_INT64")),
        wrong("RejectsLengthsOfOtherSequences", "SHAPE_MISMATCH",
              "cache.lengths", lengths=[3]),
        wrong("RejectsALengthOverTheTable", "FIELD_INVALID",
              "cache.lengths[1]", lengths=[3, 5]),
        wrong("RejectsALayerThatIsNotThere", "FIELD_INVALID",
              "cache.layers[0]", layers=[1]),
        wrong("RejectsTheLayersOfASpec", "FIELD_INVALID", "old_rope.spec",
              modelLayers=[0]),
        wrong("RejectsOtherNumbersOfModelLayers", "FIELD_INVALID",
              "cache.model_layers", modelLayers=[0, 1],
              more={"oldRope": own_layers()}),
        wrong("RejectsALongConfigForManyLayers", "FIELD_INVALID",
              "old_rope.config_json", modelLayers=[0] * 256, more={
                  "oldRope": {"configJson": own_layers()["configJson"] +
                              " " * 4000}}),
        wrong("RejectsLayersWithoutRopeWithoutAMovement", "FIELD_REQUIRED",
              "movement", modelLayers=[3],
              more={"oldRope": SOME_WITHOUT_ROPE, "movement": {}}),
        wrong("RejectsALayerBesideModelLayers", "FIELD_INVALID",
              "old_rope.layer_index", modelLayers=[0],
              more={"oldRope": {**own_layers(), "layerIndex": 1}}),
        wrong("RejectsALayerThatTheModelLacks", "FIELD_INVALID",
              "cache.model_layers[0]", modelLayers=[3],
              more={"oldRope": own_layers()}),
        wrong("RejectsANegativeLayerOfTheModel", "FIELD_INVALID",
              "cache.model_layers[0]", modelLayers=[-1],
              more={"oldRope": own_layers()}),
        wrong("RejectsALayoutBesideACache", "FIELD_INVALID", "layout",
              more={"layout": "LAYOUT_BSHD"}),
        wrong("RejectsAFloat8CacheWithoutSaturation", "FIELD_REQUIRED",
              "saturation", more={"k": given(
                  [1] * 48, 3, 2, 1, 2, 4, dtype="DTYPE_FLOAT8_E4M3FN")}),
    ]


def errors():
    draw = Numbers(23)
    good = {"oldRope": source(), "movement": {"shift": 1},
            "layout": "LAYOUT_BSHD", "k": draw.tensor(1, 2, 1, 8)}
    apart = "NOT_REPOSITIONABLE"
    at_0 = {"oldPositions": {"start": 0}, "shift": 0}

    def wrong(name, reason, field, code="INVALID_ARGUMENT", without=(),
              **more):
        request = {k: v for k, v in {**good, **more}.items()
                   if k not in without}
        return bad(name, "Reposition", reason, field, code, **request)

    return [
        wrong("RejectsNoOldRope", "FIELD_REQUIRED", "old_rope",
              without=("oldRope",)),
        wrong("RejectsNoMovement", "FIELD_REQUIRED", "movement",
              without=("movement",)),
        wrong("RejectsNoTarget", "FIELD_REQUIRED", "movement",
              movement={"oldPositions": {"start": 0}}),
        wrong("RejectsNoKeys", "FIELD_REQUIRED", "k", without=("k",)),
        wrong("RejectsMovingFloat8WithoutSaturation", "FIELD_REQUIRED",
              "saturation", k=given([1] * 8, 1, 1, 1, 8,
                                    dtype="DTYPE_FLOAT8_E4M3FN")),
        wrong("RejectsKeysWithoutLayout", "FIELD_REQUIRED", "layout",
              without=("layout",)),
        wrong("RejectsNewPositionsWithoutOld", "FIELD_REQUIRED",
              "movement.old_positions",
              movement={"newPositions": {"start": 0}}),
        wrong("RejectsAShiftWhereFrequenciesChange", "FIELD_REQUIRED",
              "movement.old_positions", newRope=source(ropeTheta=500000)),
        wrong("RejectsAnotherRotaryDim", apart, "new_rope",
              newRope=source(rotaryDim=4), movement=at_0),
        wrong("RejectsAnotherSlice", apart, "new_rope",
              oldRope=source(rotaryDim=4), movement=at_0,
              newRope=source(rotaryDim=4, slice=TRAILING)),
        wrong("RejectsRopeToNope", apart, "new_rope",
              newRope={"spec": {"nope": True}}, movement=at_0),
        wrong("RejectsShiftsOfAnotherShape", "SHAPE_MISMATCH",
              "movement.shifts.shape", movement={"shifts": given(
                  [1, 2, 3], 3, dtype="DTYPE_INT64")}),
        wrong("RejectsOldPositionsOfAnotherLength", "SHAPE_MISMATCH",
              "movement.old_positions.ids.shape",
              movement={"oldPositions": ids([1]),
                        "newPositions": {"start": 0}}),
        wrong("RejectsKeysWiderThanTheModels", "FIELD_INVALID",
              "old_rope.head_dim", oldRope={"preset": "llama-3.1-8b"},
              k=given([1] * 272, 1, 2, 1, 136)),
        wrong("RejectsAPresetOfOldKeysThatIsUnknown", "PRESET_UNKNOWN",
              "old_rope.preset", "NOT_FOUND",
              oldRope={"preset": "no-such-model"}),
    ]


def groups():
    return {"reposition": moves(), "reposition_errors": errors(),
            "reposition_caches": caches(),
            "reposition_integers": integers(),
            "reposition_integers_errors": integer_errors(),
            "reposition_caches_errors": cache_errors()}
