"""BuildBias and ScoreRelative."""

from cases import OUT_OF_RANGE, Numbers, bad, case, given


def biases():
    draw = Numbers(13)

    def bias(name, kind, rule, queries=4, keys=6, **more):
        return case(name, "BuildBias", bias={kind: rule}, queryLength=queries,
                    keyLength=keys, **more)

    def index(name, kind, rule, queries=4, keys=6, **more):
        return bias(name, "relativeIndex", {kind: rule}, queries, keys,
                    **more)

    def line(name, kind, rule, reach, query=None, **more):
        """One query against keys on both sides."""
        return bias(name, kind, rule, 1, 2 * reach + 1,
                    queryStart=reach if query is None else query, **more)

    fire = {"c": 0.1, "threshold": 8, "w1": draw.tensor(4, 1),
            "b1": draw.tensor(4), "w2": draw.tensor(2, 4),
            "b2": draw.tensor(2)}
    tupe = {"positionQueries": draw.tensor(2, 6, 3),
            "positionKeys": draw.tensor(2, 6, 3)}
    deberta = {"bucketSize": 8, "maxPosition": 32}
    out = [
        bias("AlibiOfEightHeads", "alibi", {"heads": 8}, 2, 3),
        bias("AlibiOfOneHead", "alibi", {"heads": 1}),
        bias("AlibiOfTwelveHeads", "alibi", {"heads": 12}, 1, 3,
             queryStart=2),
        bias("AlibiOfSeventyOneHeads", "alibi", {"heads": 71}, 1, 2,
             queryStart=1),
        bias("AlibiOfThreeHeads", "alibi", {"heads": 3}, 2, 2),
        bias("AlibiWithOtherMaxBias", "alibi", {"heads": 6, "maxBias": 4},
             2, 2),
        bias("AlibiOfGivenSlopes", "alibi", {
            "heads": 3, "slopes": [0.5, -0.25, 0.1]}),
        bias("AlibiMasksLaterKeys", "alibi", {"heads": 2}, causal=True),
        bias("AlibiOfADecodeStep", "alibi", {"heads": 4}, 1, 8,
             queryStart=507, keyStart=500),
        bias("AlibiAtDistantPositions", "alibi", {"heads": 3}, 2, 2,
             queryStart=1073741824),
        line("T5BucketsOfAnEncoder", "t5", {"bidirectional": True}, 150),
        line("T5BucketsOfADecoder", "t5", {}, 150),
        line("T5BucketsOfOtherNumbers", "t5", {
            "numBuckets": 16, "maxDistance": 64, "bidirectional": True}, 70),
        line("T5BucketsToTwoHundredFiftySix", "t5", {
            "numBuckets": 32, "maxDistance": 256}, 260),
        line("T5BucketsOfOddNumbers", "t5", {
            "numBuckets": 12, "maxDistance": 50}, 60),
        bias("T5BiasOfWeights", "t5", {
            "bidirectional": True, "weights": draw.tensor(32, 3)}, 3, 12),
        bias("T5BiasOfADecoderStep", "t5", {
            "weights": draw.tensor(32, 2)}, 1, 10, queryStart=200,
            keyStart=195),
        bias("T5BiasMasksLaterKeys", "t5", {
            "weights": draw.tensor(32, 1)}, causal=True),
        bias("KerpleLogarithmic", "kerple", {
            "kernel": "KERNEL_LOGARITHMIC", "r1": [1, 0.5],
            "r2": [0.25, 2.5]}),
        bias("KerplePower", "kerple", {
            "kernel": "KERNEL_POWER", "r1": [1, 0.5, 0.01],
            "r2": [0.5, 2, 1.7]}),
        bias("KerpleFarAway", "kerple", {
            "kernel": "KERNEL_LOGARITHMIC", "r1": [0.7], "r2": [0.3]}, 1, 2,
            queryStart=1000000),
        bias("FireOfThePaper", "fire", fire, 4, 4, queryStart=6, keyStart=6),
        bias("FireWithEpsilon", "fire", {**fire, "epsilon": 1e-6}, 2, 5,
             queryStart=14, keyStart=10),
        bias("FireMasksLaterKeys", "fire", fire, 3, 4, causal=True),
        bias("SandwichOfEightHeads", "sandwich", {"heads": 8, "dim": 16}, 2,
             4),
        bias("SandwichOfThePapersDim", "sandwich", {"heads": 2, "dim": 128},
             2, 3, queryStart=100),
        bias("UntiedPositions", "untiedPositions", tupe, 6, 6),
        bias("UntiedPositionsScaled", "untiedPositions",
             {**tupe, "scale": 0.4082482904638630}, 2, 3, queryStart=4,
             keyStart=3),
        index("ShawClipsBothWays", "clip", {"left": 2, "right": 2}),
        index("ShawReachesMayDiffer", "clip", {"left": 4, "right": 2}, 6, 6),
        index("ShawOfSpeechT5", "clip", {"left": 3, "right": 2}, 6, 6),
        index("ShawToTheLeftOnly", "clip", {"left": 3}),
        index("ShawOfADecodeStep", "clip", {"left": 3, "right": 3}, 1, 8,
              queryStart=7),
        index("DebertaIndexInLogarithmicBuckets", "deberta", deberta, 1, 81,
              queryStart=40),
        index("DebertaIndexOfVersion2", "deberta", {
            "bucketSize": 256, "maxPosition": 512}, 1, 600, queryStart=300),
        index("DebertaIndexWithoutBuckets", "deberta", {"maxPosition": 5},
              3, 12),
        index("DebertaIndexOfOddBuckets", "deberta", {
            "bucketSize": 9, "maxPosition": 40}, 1, 101, queryStart=50),
        index("GridIndexOfSwin", "grid", {"extents": [2, 3]}, 6, 6),
        index("GridIndexOfThreeAxes", "grid", {"extents": [2, 2, 2]}, 8, 8),
        bias("BiasComesInTilesOfAnySize", "alibi", {"heads": 2}, 7, 9,
             queryTile=3, keyTile=4),
        bias("BiasInFloat64", "kerple", {
            "kernel": "KERNEL_LOGARITHMIC", "r1": [1, 0.3],
            "r2": [0.7, 2]}, dtype="DTYPE_FLOAT64"),
        bias("BiasInFloat16", "alibi", {"heads": 5}, dtype="DTYPE_FLOAT16"),
        bias("BiasInBfloat16", "alibi", {"heads": 5}, causal=True,
             dtype="DTYPE_BFLOAT16"),
    ]
    return out


def bias_errors():
    def wrong(name, reason, field, kind, rule, code="INVALID_ARGUMENT",
              **more):
        request = {"bias": {kind: rule}, "queryLength": 2, "keyLength": 2,
                   **more}
        return bad(name, "BuildBias", reason, field, code, **request)

    invalid, required, shape = ("FIELD_INVALID", "FIELD_REQUIRED",
                                "SHAPE_MISMATCH")
    fire = {"c": 0.1, "threshold": 8, "w1": given([1, 1], 2, 1),
            "b1": given([1, 1], 2), "w2": given([1, 1], 1, 2),
            "b2": given([1], 1)}
    return [
        bad("RejectsNoBias", "BuildBias", required, "bias", queryLength=2,
            keyLength=2),
        wrong("RejectsAlibiWithoutHeads", required, "bias.alibi.heads",
              "alibi", {}),
        wrong("RejectsNegativeHeads", invalid, "bias.alibi.heads", "alibi",
              {"heads": -1}),
        wrong("RejectsSlopesBesideMaxBias", invalid, "bias.alibi.max_bias",
              "alibi", {"heads": 1, "slopes": [1], "maxBias": 8}),
        wrong("RejectsSlopesOfAnotherNumber", invalid, "bias.alibi.slopes",
              "alibi", {"heads": 2, "slopes": [1]}),
        wrong("RejectsT5ReachWithinItsBuckets", invalid,
              "bias.t5.max_distance", "t5",
              {"numBuckets": 32, "maxDistance": 16}),
        wrong("RejectsT5WeightsOfAnotherShape", shape,
              "bias.t5.weights.shape", "t5",
              {"weights": given([1] * 8, 8, 1)}),
        wrong("RejectsKerpleWithoutKernel", required, "bias.kerple.kernel",
              "kerple", {"r1": [1], "r2": [1]}),
        wrong("RejectsKerpleR1OfZero", invalid, "bias.kerple.r1[0]",
              "kerple", {"kernel": "KERNEL_POWER", "r1": [0], "r2": [1]}),
        wrong("RejectsKerplePowerPastTwo", invalid, "bias.kerple.r2[0]",
              "kerple", {"kernel": "KERNEL_POWER", "r1": [1], "r2": [2.5]}),
        wrong("RejectsFireWithoutC", required, "bias.fire.c", "fire",
              {**fire, "c": 0}),
        wrong("RejectsFireWeightsOfAnotherShape", shape,
              "bias.fire.w2.shape", "fire",
              {**fire, "w2": given([1, 1, 1], 1, 3)}),
        wrong("RejectsSandwichOfOddDim", invalid, "bias.sandwich.dim",
              "sandwich", {"heads": 2, "dim": 3}),
        wrong("RejectsAClipOfNothing", required,
              "bias.relative_index.clip.left", "relativeIndex",
              {"clip": {}}),
        wrong("RejectsNegativeLeft", invalid, "bias.relative_index.clip.left",
              "relativeIndex", {"clip": {"left": -1, "right": 2}}),
        wrong("RejectsDebertaWithoutMaximum", required,
              "bias.relative_index.deberta.max_position", "relativeIndex",
              {"deberta": {"bucketSize": 8}}),
        wrong("RejectsPositionsPastTheRows", "POSITION_OUT_OF_RANGE",
              "key_length", "untiedPositions", {
                  "positionQueries": given([1] * 4, 1, 2, 2),
                  "positionKeys": given([1] * 4, 1, 2, 2)}, OUT_OF_RANGE,
              keyLength=3),
        wrong("RejectsCellsPastTheGrid", "POSITION_OUT_OF_RANGE",
              "query_length", "relativeIndex",
              {"grid": {"extents": [1, 2]}}, OUT_OF_RANGE, queryLength=3),
        wrong("RejectsAnEmptyGrid", required,
              "bias.relative_index.grid.extents", "relativeIndex",
              {"grid": {}}),
        wrong("RejectsMaskedIndices", invalid, "causal", "relativeIndex",
              {"clip": {"left": 1, "right": 1}}, causal=True),
        wrong("RejectsIndicesAsFloats", invalid, "dtype", "relativeIndex",
              {"clip": {"left": 1, "right": 1}}, dtype="DTYPE_FLOAT32"),
        wrong("RejectsAnIntegerBias", invalid, "dtype", "alibi",
              {"heads": 1}, dtype="DTYPE_INT32"),
        wrong("RejectsAFloat8Bias", invalid, "dtype", "alibi",
              {"heads": 1}, dtype="DTYPE_FLOAT8_E5M2"),
        wrong("RejectsANegativeQueryLength", invalid, "query_length",
              "alibi", {"heads": 1}, queryLength=-1),
        wrong("RejectsANegativeTile", invalid, "query_tile", "alibi",
              {"heads": 1}, queryTile=-1),
    ]


def scores():
    draw = Numbers(17)

    def score(name, kind, rule, q=None, k=None, **more):
        return case(name, "ScoreRelative", score={kind: rule},
                    q=q or draw.tensor(1, 2, 3, 4),
                    k=k or draw.tensor(1, 2, 5, 4), **more)

    xl = {"u": draw.tensor(2, 4), "v": draw.tensor(2, 4),
          "r": draw.tensor(2, 6, 4)}
    buckets = {"bucketSize": 4, "maxPosition": 8}
    pair = {"positionKeys": draw.tensor(2, 8, 4),
            "positionQueries": draw.tensor(2, 8, 4)}
    double = "DTYPE_FLOAT64"
    out = [
        score("ShawScores", "shaw", {"keyTable": draw.tensor(5, 4)}),
        score("ShawScoresWithUnequalReaches", "shaw", {
            "left": 3, "keyTable": draw.tensor(5, 4)}),
        score("ShawScoresOfSpeechT5", "shaw", {
            "left": 2, "keyTable": draw.tensor(4, 4)}),
        score("ShawScoresOfADecodeStep", "shaw", {
            "keyTable": draw.tensor(3, 4)}, draw.tensor(2, 2, 1, 4),
            draw.tensor(2, 2, 4, 4), queryStart=3),
        score("TransformerXlScores", "transformerXl", xl, queryStart=2),
        score("TransformerXlMasksLaterKeys", "transformerXl", xl),
        score("TransformerXlClampsDistances", "transformerXl", {
            **xl, "clampDistance": 2}, queryStart=4),
        score("TransformerXlReachesBackIntoMemory", "transformerXl",
              {**xl, "clampDistance": 5}, queryStart=103, keyStart=100),
        score("DebertaScores", "deberta", {"buckets": buckets, **pair}),
        score("DebertaScoresAsThePaperWritesThem", "deberta", {
            "buckets": buckets, **pair, "paperPositionToContent": True}),
        score("DebertaContentToPositionOnly", "deberta", {
            "buckets": buckets, "positionKeys": pair["positionKeys"]}),
        score("DebertaPositionToContentOnly", "deberta", {
            "buckets": buckets,
            "positionQueries": pair["positionQueries"]}),
        score("DebertaScoresWithoutBuckets", "deberta", {
            "buckets": {"maxPosition": 4}, **pair}, queryStart=2),
        score("DebertaScoresFarApart", "deberta", {
            "buckets": buckets, **pair}, queryStart=1000, keyStart=980),
        score("ShawScoresInFloat64", "shaw",
              {"keyTable": draw.tensor(3, 4, dtype=double)},
              draw.tensor(1, 1, 2, 4, dtype=double),
              draw.tensor(1, 1, 2, 4, dtype=double)),
        score("ShawScoresOfBfloat16ComeInFloat32", "shaw",
              {"keyTable": draw.tensor(3, 4, dtype="DTYPE_BFLOAT16")},
              draw.tensor(1, 1, 2, 4, dtype="DTYPE_BFLOAT16"),
              draw.tensor(1, 1, 2, 4, dtype="DTYPE_BFLOAT16")),
        score("ShawScoresInFloat16", "shaw",
              {"keyTable": draw.tensor(3, 4, dtype="DTYPE_FLOAT16")},
              draw.tensor(1, 1, 2, 4, dtype="DTYPE_FLOAT16"),
              draw.tensor(1, 1, 2, 4, dtype="DTYPE_FLOAT16"),
              dtype="DTYPE_FLOAT16"),
    ]

    q, k = draw.tensor(1, 2, 3, 4), draw.tensor(1, 2, 5, 4)
    invalid, required, shape = ("FIELD_INVALID", "FIELD_REQUIRED",
                                "SHAPE_MISMATCH")

    def wrong(name, reason, field, kind="shaw", rule=None,
              code="INVALID_ARGUMENT", **more):
        request = {"score": {kind: rule or {"keyTable": draw.tensor(5, 4)}},
                   "q": q, "k": k, **more}
        return bad(name, "ScoreRelative", reason, field, code, **request)

    out += [
        bad("RejectsNoScore", "ScoreRelative", required, "score", q=q, k=k),
        wrong("RejectsAnEvenTableWithoutLeft", required, "score.shaw.left",
              rule={"keyTable": draw.tensor(4, 4)}),
        wrong("RejectsATableOfAnotherWidth", shape,
              "score.shaw.key_table.shape",
              rule={"keyTable": draw.tensor(5, 3)}),
        wrong("RejectsScoresOfUnequalHeads", shape, "k.shape",
              k=draw.tensor(1, 1, 5, 4)),
        wrong("RejectsTransformerXlWithoutU", required,
              "score.transformer_xl.u", "transformerXl",
              {"v": xl["v"], "r": xl["r"]}),
        wrong("RejectsDebertaTablesOfAnotherSpan", shape,
              "score.deberta.position_keys.shape", "deberta",
              {"buckets": buckets, "positionKeys": draw.tensor(2, 6, 4)}),
        wrong("RejectsIntegerScores", invalid, "dtype",
              dtype="DTYPE_INT32"),
        wrong("RejectsFloat8Scores", invalid, "dtype",
              dtype="DTYPE_FLOAT8_E5M2"),
        wrong("RejectsScoresOfFloat8Keys", invalid, "k.dtype",
              k=given([1] * 8, 1, 1, 2, 4, dtype="DTYPE_FLOAT8_E4M3FN")),
    ]
    return out


def groups():
    return {"build_bias": biases(), "build_bias_errors": bias_errors(),
            "score_relative": scores()}
