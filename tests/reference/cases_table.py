"""BuildTable of rotary encodings, and AnalyzeRope and ConvertPairing."""

from cases import (HALF, INTERLEAVED, OUT_OF_RANGE, Numbers, bad, case, given,
                   ids, source)


def _table(name, rope, start=0, rows=4, **more):
    return case(name, "BuildTable", rope=rope, positions={"start": start},
                rows=rows, **more)


def _at(name, rope, positions, **more):
    return case(name, "BuildTable", rope=rope, positions=positions, **more)


def tables():
    yarn = {"factor": 4, "originalMaxPositionEmbeddings": 32768}
    plain = source(rotaryDim=16)
    million = source(rotaryDim=16, ropeTheta=1e6)
    axes = {"assignment": "ASSIGNMENT_SECTIONED", "sections": [2, 3, 3]}
    xpos = source(rotaryDim=8, xpos={})
    out = [
        _table("HalfTable", plain),
        _table("DuplicatedTable", plain, layout="TABLE_LAYOUT_DUPLICATED"),
        _table("PairRepeatedTable", plain,
               layout="TABLE_LAYOUT_PAIR_REPEATED"),
        _table("ComplexTable", plain, layout="TABLE_LAYOUT_COMPLEX"),
        _at("TableOfNoRows", plain, ids([])),
        _table("TableStartsAnywhere", million, 1000),
        _table("TableOfNegativePositions", million, -5, 8),
        _table("TableAtTwoToTheTwentySix", million, 67108862),
        _table("TableAtTwoToTheThirtyOne", million, 2147483645),
        _table("TableTellsLargeNeighboursApart",
               source(rotaryDim=8), 16777215, 3),
        _table("TableAtMinusTwoToTheThirtyOne", source(rotaryDim=8),
               -2147483648, 2),
        _at("TableOfFractionalPositions", million,
            ids([0.5, 0.25, 1.1, -3.7, 1e-3, 12345.678],
                dtype="DTYPE_FLOAT64")),
        _at("TableOfFloat32Positions", million,
            ids([0.5, 0.75, 65535.5, -1.25], dtype="DTYPE_FLOAT32")),
        _at("TableOfScatteredPositions", million,
            ids([7, 0, 131071, -1, 7], dtype="DTYPE_INT32")),
        _at("TableOfPackedSequences", million,
            {"packed": {"cuSeqlens": [0, 3, 3, 5]}}),
        _at("TableOfPackedSequencesWithStarts", million,
            {"packed": {"cuSeqlens": [0, 2, 5], "starts": [100, -2]}}),
        _table("TableInFloat64", million, 5, dtype="DTYPE_FLOAT64"),
        _table("TableInFloat64AtAMillion", million, 1048575,
               dtype="DTYPE_FLOAT64"),
        _table("TableInFloat16", million, 77, dtype="DTYPE_FLOAT16"),
        _table("TableInBfloat16", million, 77, dtype="DTYPE_BFLOAT16"),
        _table("TableWithAmplitude",
               source(rotaryDim=16, ropeTheta=1e6, yarn=yarn), 3),
        _table("TableWithGivenAmplitude", source(rotaryDim=8, amplitude=1.7),
               9),
        _table("TableTurnedBackwards", source(rotaryDim=8, reverse=True), 1),
        _table("TableOfLinear", source(rotaryDim=16, linear={"factor": 8}),
               4095),
        _table("TableOfNtk", source(rotaryDim=16, ntk={"factor": 4}), 8191),
        _table("TableOfDynamicNtk", source(
            8192, rotaryDim=16, dynamicNtk={
                "factor": 2, "maxPositionEmbeddings": 2048}), 8188),
        _table("TableOfLlama3", source(rotaryDim=32, ropeTheta=500000, llama3={
            "factor": 8, "lowFreqFactor": 1, "highFreqFactor": 4,
            "originalMaxPositionEmbeddings": 8192}), 131068),
        _table("TableOfLongRope", source(8192, rotaryDim=8, longrope={
            "shortFactor": [1, 1, 1, 1], "longFactor": [1.5, 2.5, 5, 40],
            "originalMaxPositionEmbeddings": 4096, "factor": 32}), 8188),
        _table("TableOfProportional", source(
            rotaryDim=16, ropeTheta=1e6,
            proportional={"rotatingPairs": 3}), 65),
        _table("TableOfPreset", {"preset": "llama-3.1-8b"}, 131070, 2),
        _table("TableOfExplicitFrequencies", source(
            rotaryDim=8, explicitFrequencies={
                "values": [1, -0.5, 0, 3.25]}), 6),
        _table("TableOfFrequenciesByHead", source(
            rotaryDim=4, explicitFrequencies={
                "heads": 3, "values": [1, 0.5, 0.75, 0.1, 2, -1]}), 2, 3),
        _at("TableOfMixedAxesSumsTheirAngles", source(
            rotaryDim=4, explicitFrequencies={
                "heads": 2, "axes": 2,
                "values": [1, 0.5, 0.25, 2, -1, 0.1, 0.3, 0.7]}),
            ids([0, 1, 2, 5, 3, -4], 2, 3)),
        _at("TableOfSectionedAxes", source(rotaryDim=16, ropeTheta=1e6,
                                           axes=axes),
            ids([0, 1, 1, 0, 3, 4, 0, 9, 20], 3, 3)),
        _table("TableOfSectionedAxesOnText",
               source(rotaryDim=16, ropeTheta=1e6, axes=axes), 40),
        _at("TableOfInterleavedAxes", source(
            rotaryDim=16, ropeTheta=5e6, axes={
                "assignment": "ASSIGNMENT_INTERLEAVED",
                "sections": [4, 2, 2]}),
            ids([10, 11, 200, 300, 4000, 5000], 3, 2)),
        _at("TableOfAlternatingAxes", source(
            rotaryDim=16, pairing=INTERLEAVED, axes={
                "assignment": "ASSIGNMENT_ALTERNATING_TAIL",
                "sections": [2, 3, 3]}),
            ids([10, 11, 200, 300, 4000, 5000], 3, 2)),
        _at("TableOfPerAxisLadders", source(
            rotaryDim=16, pairing=INTERLEAVED, axes={
                "assignment": "ASSIGNMENT_PER_AXIS", "sections": [2, 3, 3],
                "axisThetas": [10000, 100, 256]}),
            ids([0.5, 1.5, -2, 2, 7.25, 31], 3, 2, dtype="DTYPE_FLOAT64")),
        _table("XposTableForQueries", xpos, 500),
        _table("XposTableForKeys", xpos, 500, forKeys=True),
        _table("XposTableWithCentreAndBase", source(
            rotaryDim=8, xpos={"center": 64, "scaleBase": 100, "gamma": 0.25}),
            60, 8),
        _table("Float32AnglesAreTheFrameworksProducts", source(
            rotaryDim=16, ropeTheta=500000,
            anglePrecision="ANGLE_PRECISION_FLOAT32"), 131060),
        _table("Float32AnglesMergeLargeNeighbours", source(
            rotaryDim=8, anglePrecision="ANGLE_PRECISION_FLOAT32"),
            16777216, 2),
        _at("Float32AnglesOfFractionalPositions", source(
            rotaryDim=8, anglePrecision="ANGLE_PRECISION_FLOAT32"),
            ids([0.1, 1000.3], dtype="DTYPE_FLOAT64")),
        _at("Float32AnglesOfSectionedAxes", source(
            rotaryDim=16, ropeTheta=1e6, axes=axes,
            anglePrecision="ANGLE_PRECISION_FLOAT32"),
            ids([0, 100001, 3, 70003, 9, 50021], 3, 2)),
    ]
    for theta in (500000, 1000000, 10000000):
        out.append(_at(f"CorrectlyRoundedAtBase{theta}",
                       source(rotaryDim=32, ropeTheta=theta),
                       ids([3, 511, 4095, 40961, 131071, 1048575, 9999999])))
    return out


def table_errors():
    plain = source(rotaryDim=8)
    reason = "FIELD_INVALID"

    def wrong(name, reason, field, code="INVALID_ARGUMENT", **request):
        request = {"rope": plain, "positions": {"start": 0}, "rows": 2,
                   **request}
        return bad(name, "BuildTable", reason, field, code, **request)

    return [
        bad("RejectsATableOfNothing", "BuildTable", "FIELD_REQUIRED", "rope",
            positions={"start": 0}, rows=2),
        bad("RejectsATableWithoutPositions", "BuildTable", "FIELD_REQUIRED",
            "positions", rope=plain, rows=2),
        wrong("RejectsNegativeRows", reason, "rows", rows=-1),
        wrong("RejectsAStartWithoutRows", "FIELD_REQUIRED", "rows", rows=0),
        wrong("RejectsStartsInATable", reason, "positions.starts",
              positions={"starts": {"values": [0, 1]}}),
        wrong("RejectsAnIntegerTable", reason, "dtype", dtype="DTYPE_INT32"),
        wrong("RejectsAFloat8Table", reason, "dtype",
              dtype="DTYPE_FLOAT8_E4M3FN"),
        wrong("RejectsATableOfNope", reason, "rope",
              rope={"spec": {"nope": True}}),
        wrong("RejectsRowsThatIdsContradict", "SHAPE_MISMATCH", "rows",
              positions=ids([1, 2, 3]), rows=2),
        wrong("RejectsPackedSequencesThatDecrease", reason,
              "positions.packed.cu_seqlens[2]", rows=0,
              positions={"packed": {"cuSeqlens": [0, 3, 2]}}),
        wrong("RejectsPackedSequencesThatStartLate", reason,
              "positions.packed.cu_seqlens[0]", rows=0,
              positions={"packed": {"cuSeqlens": [1, 3]}}),
        wrong("RejectsAPositionPastTwoToTheThirtyOne",
              "POSITION_OUT_OF_RANGE", "positions.start", OUT_OF_RANGE,
              positions={"start": 2147483648}),
        wrong("RejectsIdsThatAreNotFinite", "POSITION_OUT_OF_RANGE",
              "positions.ids", OUT_OF_RANGE, rows=0, positions={
                  "ids": given([0, "NaN"], 2, dtype="DTYPE_FLOAT64")}),
        wrong("RejectsHalfPrecisionIds", reason, "positions.ids.dtype",
              rows=0, positions=ids([0, 1], dtype="DTYPE_FLOAT16")),
        wrong("RejectsIdsOfOneAxisForThree", "SHAPE_MISMATCH",
              "positions.ids.shape", rows=0, positions=ids([0, 1]),
              rope=source(rotaryDim=12, axes={
                  "assignment": "ASSIGNMENT_SECTIONED",
                  "sections": [2, 2, 2]})),
        wrong("RejectsALengthThatIsMissing", "FIELD_REQUIRED",
              "rope.sequence_length", rope=source(
                  rotaryDim=8, dynamicNtk={"factor": 2,
                                           "maxPositionEmbeddings": 2048})),
        wrong("RejectsANegativeLength", reason, "rope.sequence_length",
              rope=source(-1, rotaryDim=8, dynamicNtk={
                  "factor": 2, "maxPositionEmbeddings": 2048})),
        wrong("RejectsXposOfSeveralAxes", reason, "rope.spec.xpos",
              rope=source(rotaryDim=8, xpos={}, axes={
                  "assignment": "ASSIGNMENT_SECTIONED", "sections": [2, 2]})),
        bad("RejectsXposPastFloat32", "BuildTable", "POSITION_OUT_OF_RANGE",
            "positions.ids", OUT_OF_RANGE,
            rope=source(rotaryDim=8, xpos={}), positions=ids([0, 1000000])),
        wrong("RejectsXposWithoutReach", reason, "rope.spec.xpos.scale_base",
              rope=source(rotaryDim=8, xpos={"scaleBase": 0})),
    ]


def analysis():
    llama = source(ropeTheta=500000, rotaryDim=128, llama3={
        "factor": 8, "lowFreqFactor": 1, "highFreqFactor": 4,
        "originalMaxPositionEmbeddings": 8192})
    yarn = {"factor": 4, "originalMaxPositionEmbeddings": 8192}
    return [
        case("AnalyzesPlainRope", "AnalyzeRope", rope=source(rotaryDim=64),
             maxDistance=32, trainedLength=2048),
        case("AnalyzesByStrides", "AnalyzeRope", rope=source(rotaryDim=32),
             maxDistance=4096, distanceStep=512, trainedLength=100),
        case("AnalyzesLlama3OverItsOriginalMaximum", "AnalyzeRope",
             rope=llama, maxDistance=40000, distanceStep=10000),
        case("AnalyzesHeadDimGiven", "AnalyzeRope", rope=source(), headDim=16,
             maxDistance=3, trainedLength=7),
        case("AnalyzesStandingPairsAsInfiniteWaves", "AnalyzeRope",
             rope=source(rotaryDim=16, proportional={"rotatingPairs": 2}),
             maxDistance=5, trainedLength=1000),
        case("AnalyzesAtNoDistance", "AnalyzeRope", rope=source(rotaryDim=8),
             trainedLength=10),
        case("AnalyzesWhatALinearReadingLeaves", "AnalyzeRope",
             rope=source(rotaryDim=32, yarn=yarn), maxDistance=32768,
             distanceStep=4096,
             compareWith=source(rotaryDim=32, linear={"factor": 4})),
        case("AnalyzesWhatIsLeftWithoutRotation", "AnalyzeRope",
             rope=source(rotaryDim=16), maxDistance=12, trainedLength=10,
             compareWith={"spec": {"nope": True}}),
        bad("RejectsAComparisonWithSeveralAxes", "AnalyzeRope",
            "FIELD_INVALID", "compare_with", rope=source(rotaryDim=8),
            compareWith=source(rotaryDim=8, axes={
                "assignment": "ASSIGNMENT_SECTIONED", "sections": [2, 2]})),
        bad("RejectsAComparisonWithoutSource", "AnalyzeRope",
            "FIELD_REQUIRED", "compare_with", rope=source(rotaryDim=8),
            compareWith={}),
        bad("RejectsANegativeDistance", "AnalyzeRope", "FIELD_INVALID",
            "max_distance", rope=source(rotaryDim=8), maxDistance=-1),
        bad("RejectsANegativeStep", "AnalyzeRope", "FIELD_INVALID",
            "distance_step", rope=source(rotaryDim=8), maxDistance=5,
            distanceStep=-1),
        bad("RejectsTooManyDistances", "AnalyzeRope", "FIELD_INVALID",
            "distance_step", rope=source(rotaryDim=8), maxDistance=65536,
            distanceStep=1),
        bad("RejectsAnAnalysisOfNope", "AnalyzeRope", "FIELD_INVALID", "rope",
            rope={"spec": {"nope": True}}),
        bad("RejectsAnAnalysisOfSeveralAxes", "AnalyzeRope", "FIELD_INVALID",
            "rope", rope=source(rotaryDim=8, axes={
                "assignment": "ASSIGNMENT_SECTIONED", "sections": [2, 2]})),
    ]


def conversion():
    draw = Numbers(11)

    def convert(name, old, new, weight, heads, **more):
        return case(name, "ConvertPairing", oldPairing=old, newPairing=new,
                    heads=heads, weight=weight, **more)

    def wrong(name, reason, field, **request):
        request = {"oldPairing": INTERLEAVED, "newPairing": HALF, "heads": 2,
                   "weight": given([0.5] * 8, 8), **request}
        return bad(name, "ConvertPairing", reason, field, **request)

    weight = draw.tensor(16, 3)
    return [
        convert("ConvertsInterleavedToHalf", INTERLEAVED, HALF, weight, 2),
        convert("ConvertsHalfToInterleaved", HALF, INTERLEAVED, weight, 2),
        convert("ConvertsBiases", INTERLEAVED, HALF, draw.tensor(12), 1),
        convert("ConvertsTheLeadingChannelsOnly", INTERLEAVED, HALF, weight,
                2, rotaryDim=6),
        convert("ConvertsTheTrailingChannelsOnly", INTERLEAVED, HALF, weight,
                2, rotaryDim=4, slice="ROTARY_SLICE_TRAILING"),
        convert("ConvertsBfloat16", HALF, INTERLEAVED,
                draw.tensor(8, 2, dtype="DTYPE_BFLOAT16"), 1),
        convert("ConvertsFloat64", HALF, INTERLEAVED,
                draw.tensor(8, 2, dtype="DTYPE_FLOAT64"), 2),
        convert("ConvertsFloat8E4m3fnWeights", INTERLEAVED, HALF,
                Numbers(37).float8(8, 2, dtype="DTYPE_FLOAT8_E4M3FN"), 1),
        convert("ConvertsFloat8E5m2Weights", HALF, INTERLEAVED,
                Numbers(41).float8(8, 2, dtype="DTYPE_FLOAT8_E5M2"), 2),
        convert("ConvertsToTheSamePairingByCopying", HALF, HALF, weight, 4),
        wrong("RejectsAConversionFromNothing", "FIELD_REQUIRED",
              "old_pairing", oldPairing="PAIRING_UNSPECIFIED"),
        wrong("RejectsAConversionToNothing", "FIELD_REQUIRED", "new_pairing",
              newPairing="PAIRING_UNSPECIFIED"),
        wrong("RejectsAConversionWithoutHeads", "FIELD_REQUIRED", "heads",
              heads=0),
        wrong("RejectsRowsThatHeadsDoNotDivide", "SHAPE_MISMATCH",
              "weight.shape", heads=3),
        wrong("RejectsAConversionOfOddWidth", "FIELD_INVALID", "rotary_dim",
              rotaryDim=3),
    ]


def groups():
    return {"build_table_rope": tables(),
            "build_table_errors": table_errors(),
            "analyze_rope": analysis(),
            "convert_pairing": conversion()}
