"""ApplyRope: layouts, dtypes, positions, slices, pairings, directions."""

from cases import (HALF, INTERLEAVED, OUT_OF_RANGE, Numbers, bad, case, given,
                   ids, source)
from exact import FORMATS, LARGEST, mpf

DTYPES = {"Float32": "DTYPE_FLOAT32", "Float16": "DTYPE_FLOAT16",
          "Bfloat16": "DTYPE_BFLOAT16", "Float64": "DTYPE_FLOAT64"}
FLOAT8 = {"Float8E4m3fn": "DTYPE_FLOAT8_E4M3FN",
          "Float8E5m2": "DTYPE_FLOAT8_E5M2"}
FINITE, NONE = "SATURATION_FINITE", "SATURATION_NONE"
TRAILING = "ROTARY_SLICE_TRAILING"


def rotations():
    draw = Numbers(3)

    def apply(name, rope, q=None, k=None, positions=None,
              layout="LAYOUT_BSHD", **more):
        request = {"rope": rope, "positions": positions or {"start": 0},
                   "layout": layout, **more}
        if q:
            request["q"] = q
        if k:
            request["k"] = k
        return case(name, "ApplyRope", **request)

    plain, swapped = source(), source(pairing=INTERLEAVED)
    yarn = {"factor": 4, "originalMaxPositionEmbeddings": 32768}
    small = draw.tensor(1, 3, 2, 8)
    one = draw.tensor(1, 2, 1, 8)
    llama4 = {"beta": 0.1, "floorScale": 8192, "offset": 1}
    ministral = {"beta": 0.1, "floorScale": 16384}
    out = [
        apply("RotatesQueriesAndKeys", plain, small, draw.tensor(1, 3, 1, 8)),
        apply("RotatesQueriesAlone", plain, small),
        apply("RotatesKeysAlone", plain, None, small),
        apply("RotatesInterleavedPairs", swapped, small),
        apply("RotatesBhsd", plain, draw.tensor(2, 2, 3, 8),
              layout="LAYOUT_BHSD"),
        apply("RotatesSbhd", plain, draw.tensor(3, 2, 2, 8),
              layout="LAYOUT_SBHD"),
        apply("RotatesThd", plain, draw.tensor(4, 2, 8), layout="LAYOUT_THD"),
        apply("RotatesPackedSequences", plain, draw.tensor(5, 2, 8),
              layout="LAYOUT_THD",
              positions={"packed": {"cuSeqlens": [0, 2, 5],
                                    "starts": [7, 0]}}),
        apply("RotatesFromAStart", plain, small, positions={"start": 4096}),
        apply("RotatesFromOneStartPerSequence", plain,
              draw.tensor(2, 3, 1, 8),
              positions={"starts": {"values": [-2, 1000]}}),
        apply("RotatesAtSharedIds", plain, draw.tensor(2, 2, 1, 8),
              positions=ids([9, 3])),
        apply("RotatesAtIdsOfEachSequence", plain, draw.tensor(2, 2, 1, 8),
              positions=ids([9, 3, 0, 100000], 2, 2)),
        apply("RotatesAtFractionalIds", plain, one,
              positions=ids([0.5, -7.25], dtype="DTYPE_FLOAT64")),
        apply("RotatesAtLargePositions", source(ropeTheta=1e6), one,
              positions={"start": 67108863}),
        apply("RotatesAtNegativePositions", plain, one,
              positions={"start": -70000}),
        apply("RotatesLeadingChannelsAndPassesTheRest",
              source(rotaryDim=4), small),
        apply("RotatesTrailingChannelsAndPassesTheRest",
              source(rotaryDim=4, slice=TRAILING, pairing=INTERLEAVED),
              small),
        apply("RotatesHeadsOfDifferentWidths",
              source(rotaryDim=4, slice=TRAILING, pairing=INTERLEAVED),
              draw.tensor(1, 2, 2, 12), draw.tensor(1, 2, 1, 4)),
        apply("WritesHalvesFromInterleaved",
              source(pairing=INTERLEAVED, outputPairing=HALF), small),
        apply("WritesInterleavedFromHalves",
              source(outputPairing=INTERLEAVED), small),
        apply("WritesAnotherPairingInATrailingSlice",
              source(rotaryDim=6, slice=TRAILING, pairing=INTERLEAVED,
                     outputPairing=HALF), small),
        apply("InverseReadsTheOutputPairing",
              source(pairing=INTERLEAVED, outputPairing=HALF), small,
              direction="DIRECTION_INVERSE", positions={"start": 5}),
        apply("AdjointReadsTheOutputPairing",
              source(pairing=INTERLEAVED, outputPairing=HALF), small,
              direction="DIRECTION_ADJOINT", positions={"start": 5}),
        apply("ReverseTurnsTheOtherWay", source(reverse=True), small),
        apply("InverseOfReverse", source(reverse=True), small,
              direction="DIRECTION_INVERSE"),
        apply("AmplitudeMultiplies", source(yarn=yarn, ropeTheta=1e6), small),
        apply("InverseDividesByTheAmplitude", source(yarn=yarn), small,
              direction="DIRECTION_INVERSE"),
        apply("AdjointMultipliesByTheAmplitude", source(yarn=yarn), small,
              direction="DIRECTION_ADJOINT"),
        apply("GivenAmplitudeMultiplies", source(amplitude=0.3), small),
        apply("QueryScaleOfLlama4", plain, one, one,
              positions={"start": 8190}, queryScale=llama4),
        apply("QueryScaleOfMinistralCountsFromZero", plain, one,
              positions={"start": 32767}, queryScale=ministral),
        apply("QueryScaleAlsoMultipliesPassedChannels", source(rotaryDim=4),
              one, positions={"start": 100000}, queryScale=llama4),
        apply("QueryScaleOfALayerWithoutRope", {"spec": {"nope": True}}, one,
              one, positions={"start": 8191}, queryScale=llama4),
        apply("InverseDividesByTheQueryScale", plain, one,
              positions={"start": 65536}, queryScale=llama4,
              direction="DIRECTION_INVERSE"),
        apply("NopeReturnsWhatItWasGiven", {"spec": {"nope": True}}, small,
              small),
        apply("XposMultipliesQueriesAndDividesKeys", source(xpos={}), one,
              one, positions={"start": 300}),
        apply("XposHasACentre", source(xpos={"center": 300, "gamma": 0.5,
                                             "scaleBase": 64}), one, one,
              positions={"start": 290}),
        apply("InverseOfXpos", source(xpos={}), one, one,
              direction="DIRECTION_INVERSE", positions={"start": 300}),
        apply("AdjointOfXpos", source(xpos={}), one, one,
              direction="DIRECTION_ADJOINT", positions={"start": 300}),
        apply("Float32AnglesAtLargePositions",
              source(anglePrecision="ANGLE_PRECISION_FLOAT32"), one,
              positions={"start": 1000001}),
        apply("RotatesByAPreset", {"preset": "llama-3.1-8b"},
              draw.tensor(1, 1, 1, 128), positions={"start": 100000}),
        apply("RotatesByDynamicNtk", source(
            4096, dynamicNtk={"factor": 2, "maxPositionEmbeddings": 2048}),
            small, positions={"start": 4000}),
        apply("RotatesByLlama3", source(ropeTheta=500000, llama3={
            "factor": 8, "lowFreqFactor": 1, "highFreqFactor": 4,
            "originalMaxPositionEmbeddings": 8192}),
            draw.tensor(1, 1, 1, 32), positions={"start": 131071}),
        apply("ProportionalLeavesPairsStanding", source(
            ropeTheta=1e6, proportional={"rotatingPairs": 2}), one,
            positions={"start": 11}),
        apply("RotatesBySections", source(axes={
            "assignment": "ASSIGNMENT_SECTIONED", "sections": [1, 1, 2]}),
            one, positions=ids([5, 6, 70, 80, 900, 901], 3, 2)),
        apply("RotatesTextByInterleavedAxes", source(axes={
            "assignment": "ASSIGNMENT_INTERLEAVED", "sections": [2, 1, 1]}),
            one, positions={"start": 17}),
        apply("RotatesByAxesOfEachSequence", source(axes={
            "assignment": "ASSIGNMENT_SECTIONED", "sections": [2, 2]}),
            draw.tensor(2, 2, 1, 8),
            positions=ids([1, 2, 3, 4, 50, 60, 70, 80], 2, 2, 2)),
        apply("RotatesByPerAxisLadders", source(
            pairing=INTERLEAVED, axes={
                "assignment": "ASSIGNMENT_PER_AXIS", "sections": [2, 2]}),
            one, positions=ids([0.5, 1.5, 3, -4], 2, 2,
                               dtype="DTYPE_FLOAT64")),
        apply("RotatesHalvesOfEachAxis", source(
            ropeTheta=100, axes={
                "assignment": "ASSIGNMENT_PER_AXIS", "sections": [2, 2],
                "halvesPerAxis": True}),
            one, positions=ids([1, 2, 3, 4], 2, 2)),
        apply("RotatesEachHeadByItsOwnFrequencies", source(
            explicitFrequencies={"heads": 2, "axes": 2, "values": [
                0.5, 1, 2, 0.1, 0.2, 0.3, 0.4, 0.5,
                -1, 1, -2, 2, 0.7, 0.6, 0.5, 0.4]}),
            draw.tensor(1, 2, 2, 8), positions=ids([1, 2, 3, -4], 2, 2)),
        apply("RotatesAWidthThatNoVectorDivides", plain,
              draw.tensor(1, 2, 1, 22)),
        apply("RotatesManyPairs", source(ropeTheta=1e6),
              draw.tensor(1, 2, 1, 256), positions={"start": 3000}),
        apply("RotatesTwoChannels", plain, draw.tensor(1, 3, 1, 2)),
        apply("RotatesNothing", plain, draw.tensor(1, 0, 2, 8)),
    ]
    for name, dtype in DTYPES.items():
        out.append(apply("Rotates" + name, source(yarn=yarn), draw.tensor(
            1, 2, 2, 16, dtype=dtype), positions={"start": 1234}))
        out.append(apply("PassesChannelsIn" + name, source(rotaryDim=6),
                         draw.tensor(1, 2, 1, 10, dtype=dtype),
                         positions={"start": 9}))
    out.append(apply("RotatesTheHeadInARowWhoseWidthIsSaid",
                     {"preset": "llama-3.1-8b", "headDim": 160},
                     draw.tensor(1, 1, 1, 160), positions={"start": 7}))
    return out + [apply(*case, **more) for case, more in float8_rotations()]


def float8_rotations():
    draw = Numbers(29)
    yarn = {"factor": 4, "originalMaxPositionEmbeddings": 32768}
    # A rotation by 0.785 radians makes the second channel of (x, x) 1.4 x.
    eighth = source(explicitFrequencies={"values": [0.785]})
    for name, dtype in FLOAT8.items():
        def keys(*shape):
            return draw.float8(*shape, dtype=dtype)

        for pairing in (HALF, INTERLEAVED):
            yield (("Rotates" + name + pairing[8:].title().replace("_", ""),
                    source(yarn=yarn, pairing=pairing), keys(1, 2, 2, 16),
                    keys(1, 2, 1, 80)),
                   {"positions": {"start": 1234}, "saturation": FINITE})
        yield (("PassesChannelsIn" + name, source(rotaryDim=6), None,
                keys(1, 2, 1, 10)),
               {"positions": {"start": 9}, "saturation": NONE})
        yield (("WritesAnotherPairingIn" + name,
                source(outputPairing=INTERLEAVED), None, keys(2, 3, 1, 8)),
               {"layout": "LAYOUT_BHSD", "positions": {"start": 77},
                "saturation": NONE})
        yield (("RotatesSubnormalsOf" + name, source(), None, given(
            [v * float(mpf(2) ** FORMATS[dtype][1])
             for v in (1, -2, 3, -1, 0, 2, -3, 1)], 1, 2, 1, 4,
            dtype=dtype)), {"saturation": NONE})
        largest = LARGEST[dtype]
        yield (("Saturates" + name, eighth, None, given(
            [largest, largest, -largest, -largest, largest / 2, largest / 2],
            1, 1, 3, 2, dtype=dtype)),
            {"positions": {"start": 1}, "saturation": FINITE})
    yield (("Float8E5m2OverflowsToInfinity", eighth, None, given(
        [57344, 57344, -57344, -57344, 28672, 28672], 1, 1, 3, 2,
        dtype="DTYPE_FLOAT8_E5M2")),
        {"positions": {"start": 1}, "saturation": NONE})
    yield (("RotatesBfloat16QueriesAndFloat8Keys", source(),
            draw.tensor(1, 2, 2, 8, dtype="DTYPE_BFLOAT16"),
            draw.float8(1, 2, 1, 8, dtype="DTYPE_FLOAT8_E4M3FN")),
           {"positions": {"start": 5}, "saturation": FINITE})


def errors():
    good = {"rope": source(), "positions": {"start": 0},
            "layout": "LAYOUT_BSHD", "q": given([1] * 16, 1, 2, 1, 8)}
    invalid, required, shape = ("FIELD_INVALID", "FIELD_REQUIRED",
                                "SHAPE_MISMATCH")

    def wrong(name, reason, field, code="INVALID_ARGUMENT", without=(),
              **more):
        request = {k: v for k, v in {**good, **more}.items()
                   if k not in without}
        return bad(name, "ApplyRope", reason, field, code, **request)

    return [
        wrong("RejectsNoRope", required, "rope", without=("rope",)),
        wrong("RejectsNoLayout", required, "layout", without=("layout",)),
        wrong("RejectsNoTensor", required, "q", without=("q",)),
        wrong("RejectsNoPositions", required, "positions",
              without=("positions",)),
        wrong("RejectsAnOddHead", invalid, "rope.spec.rotary_dim",
              q=given([1] * 14, 1, 2, 1, 7)),
        wrong("RejectsARotaryDimPastTheHead", invalid,
              "rope.spec.rotary_dim", rope=source(rotaryDim=16)),
        wrong("RejectsHeadsWiderThanTheModels", invalid, "rope.head_dim",
              rope={"preset": "llama-3.1-8b"},
              q=given([1] * 136, 1, 1, 1, 136)),
        wrong("RejectsHeadsWiderThanIsSaid", invalid, "rope.head_dim",
              rope={**source(rotaryDim=4), "headDim": 4}),
        wrong("RejectsIntegerQueries", invalid, "q.dtype",
              q=given([1] * 16, 1, 2, 1, 8, dtype="DTYPE_INT32")),
        wrong("RejectsInt8Queries", invalid, "q.dtype",
              q=given([1] * 16, 1, 2, 1, 8, dtype="DTYPE_INT8"),
              saturation="SATURATION_FINITE"),
        wrong("RejectsInt8Positions", invalid, "positions.ids.dtype",
              positions=ids([1, 2], dtype="DTYPE_INT8")),
        wrong("RejectsFloat8WithoutSaturation", required, "saturation",
              q=given([1] * 16, 1, 2, 1, 8, dtype="DTYPE_FLOAT8_E4M3FN")),
        wrong("RejectsFloat8KeysWithoutSaturation", required, "saturation",
              k=given([1] * 16, 1, 2, 1, 8, dtype="DTYPE_FLOAT8_E5M2")),
        wrong("RejectsFloat8Positions", invalid, "positions.ids.dtype",
              positions=ids([1, 2], dtype="DTYPE_FLOAT8_E4M3FN")),
        wrong("RejectsTooFewValues", "TENSOR_SIZE_MISMATCH", "q.values",
              q=given([1] * 15, 1, 2, 1, 8)),
        wrong("RejectsAnotherRank", invalid, "q.shape",
              q=given([1] * 16, 2, 1, 8)),
        wrong("RejectsKeysOfAnotherLength", shape, "k.shape",
              k=given([1] * 24, 1, 3, 1, 8)),
        wrong("RejectsIdsOfAnotherLength", shape, "positions.ids.shape",
              positions=ids([1, 2, 3])),
        wrong("RejectsStartsOfAnotherBatch", shape,
              "positions.starts.values",
              positions={"starts": {"values": [1, 2]}}),
        wrong("RejectsPackedOutsideOfThd", invalid, "positions.packed",
              positions={"packed": {"cuSeqlens": [0, 2]}}),
        wrong("RejectsHeadsThatFrequenciesLack", shape, "q.shape",
              rope=source(explicitFrequencies={"heads": 2,
                                               "values": [1] * 8})),
        wrong("RejectsAQueryScaleWithoutFloor", invalid,
              "query_scale.floor_scale",
              queryScale={"beta": 0.1, "floorScale": 0}),
        wrong("RejectsXposOutOfFloat32", "POSITION_OUT_OF_RANGE",
              "positions.ids", OUT_OF_RANGE, rope=source(xpos={}),
              positions=ids([0, 10000000])),
    ]


def groups():
    return {"apply_rope": rotations(), "apply_rope_errors": errors()}
