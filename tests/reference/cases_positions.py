"""BuildPositions."""

from cases import OUT_OF_RANGE, bad, case


def schemes():
    def build(name, **scheme):
        return case(name, "BuildPositions", **scheme)

    def text(n):
        return {"textTokens": n}

    def image(time, height, width, **more):
        return {"vision": {"time": time, "height": height, "width": width,
                           **more}}

    merge = {"spatialMergeSize": 2}
    return [
        build("PackedPositionsStartAgain", packed={"lengths": [3, 0, 2, 5]}),
        build("PaddedOnTheRight", padded={"lengths": [3, 1],
                                          "paddedLength": 4}),
        build("PaddedOnTheLeft", padded={"lengths": [3, 1], "left": True,
                                         "paddedLength": 4}),
        build("PaddedWithAnotherPosition", padded={
            "lengths": [2, 0, 4], "paddedLength": 4, "paddingPosition": 1}),
        build("ContextParallelFirstRank", contextParallel={
            "lengths": [8, 16], "size": 2, "rank": 0}),
        build("ContextParallelLastRank", contextParallel={
            "lengths": [8, 16], "size": 2, "rank": 1}),
        build("ContextParallelOfFour", contextParallel={
            "lengths": [24], "size": 4, "rank": 2}),
        build("ContextParallelOfOneDevice", contextParallel={
            "lengths": [4], "size": 1, "rank": 0}),
        build("GridInRowMajorOrder", grid={"extents": [2, 3]}),
        build("GridOfThreeExtents", grid={"extents": [2, 2, 3]}),
        build("GridInMergeOrder", grid={"extents": [4, 6], "mergeSize": 2}),
        build("GridOfTimeInMergeOrder", grid={"extents": [2, 4, 4],
                                              "mergeSize": 2}),
        build("GridWithOffsets", grid={"extents": [2, 3],
                                       "offsets": [-1, 0.5]}),
        build("GridWithSteps", grid={"extents": [3, 2],
                                     "steps": [0.1, 2]}),
        build("GridCentredWithSteps", grid={
            "extents": [2, 2], "offsets": [-0.5, 1], "steps": [1, 0.25]}),
        build("GridOfOneAxis", grid={"extents": [5]}),
        build("MultimodalTextAlone", multimodal={"spans": [text(4)]}),
        build("MultimodalImageBetweenText", multimodal={"spans": [
            text(3), image(1, 4, 6, **merge), text(2)]}),
        build("MultimodalVideoHasTime", multimodal={"spans": [
            text(2), image(3, 4, 4, **merge), text(1)]}),
        build("MultimodalTimeStepsAreCut", multimodal={"spans": [
            text(1), image(4, 2, 2, timeStep=2.5, **merge), text(2)]}),
        build("MultimodalTimeMayStandStill", multimodal={"spans": [
            image(3, 2, 2, timeStep=0), text(2)]}),
        build("MultimodalImagesFollowEachOther", multimodal={"spans": [
            image(1, 2, 4), image(1, 4, 2), text(1)]}),
        build("MultimodalImageOfOnePatch", multimodal={"spans": [
            text(5), image(1, 1, 1), text(1)]}),
        build("AttentionSinksAndWindow", attentionSinks={
            "sinks": 4, "window": 6, "length": 100}),
        build("AttentionSinksThatJustFit", attentionSinks={
            "sinks": 2, "window": 3, "length": 5}),
        build("AttentionWithoutSinksIsAWindow", attentionSinks={
            "window": 3, "length": 10}),
    ]


def errors():
    def wrong(name, reason, field, code="INVALID_ARGUMENT", **scheme):
        return bad(name, "BuildPositions", reason, field, code, **scheme)

    invalid, required = "FIELD_INVALID", "FIELD_REQUIRED"
    return [
        wrong("RejectsANegativeLengthOfASequence", invalid,
              "packed.lengths[1]", packed={"lengths": [2, -1]}),
        wrong("RejectsALengthPastThePadding", invalid, "padded.lengths[0]",
              padded={"lengths": [5], "paddedLength": 4}),
        wrong("RejectsLengthsThatDoNotDivide", invalid,
              "context_parallel.lengths[1]", contextParallel={
                  "lengths": [8, 6], "size": 2, "rank": 0}),
        wrong("RejectsARankPastTheSize", invalid, "context_parallel.rank",
              contextParallel={"lengths": [8], "size": 2, "rank": 2}),
        wrong("RejectsANegativeSize", invalid, "context_parallel.size",
              contextParallel={"lengths": [8], "size": -1}),
        wrong("RejectsAGridOfNoAxes", required, "grid.extents", grid={}),
        wrong("RejectsANegativeExtent", invalid, "grid.extents[1]",
              grid={"extents": [2, -3]}),
        wrong("RejectsStepsOfAnotherNumber", invalid, "grid.steps",
              grid={"extents": [2, 3], "steps": [1]}),
        wrong("RejectsExtentsWhoseProductOverflows", invalid, "grid.extents",
              grid={"extents": [2147483647] * 3}),
        wrong("RejectsAMergeThatDoesNotDivide", invalid, "grid.extents[1]",
              grid={"extents": [4, 3], "mergeSize": 2}),
        wrong("RejectsAnEmptySpan", required, "multimodal.spans[1]",
              multimodal={"spans": [{"textTokens": 1}, {}]}),
        wrong("RejectsPatchesThatDoNotMerge", invalid,
              "multimodal.spans[0].vision.width", multimodal={"spans": [
                  {"vision": {"time": 1, "height": 4, "width": 3,
                              "spatialMergeSize": 2}}]}),
        wrong("RejectsNegativeSinks", invalid, "attention_sinks.sinks",
              attentionSinks={"sinks": -1, "window": 1, "length": 4}),
        wrong("RejectsAPositionPastInt32", "POSITION_OUT_OF_RANGE",
              "padded.padding_position", OUT_OF_RANGE, padded={
                  "lengths": [1], "paddedLength": 2,
                  "paddingPosition": "2147483648"}),
    ]


def groups():
    return {"build_positions": schemes(), "build_positions_errors": errors()}
