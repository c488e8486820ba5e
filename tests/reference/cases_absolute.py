"""BuildTable of absolute encodings, and AddEncoding."""

from cases import OUT_OF_RANGE, Numbers, bad, case, given, ids

PAPER, SIN_COS, COS_SIN = ("SINUSOIDAL_ORDER_INTERLEAVED",
                           "SINUSOIDAL_ORDER_SIN_COS",
                           "SINUSOIDAL_ORDER_COS_SIN")
DTYPES = {"Float32": "DTYPE_FLOAT32", "Float16": "DTYPE_FLOAT16",
          "Bfloat16": "DTYPE_BFLOAT16", "Float64": "DTYPE_FLOAT64"}


def sinusoidal(dim=8, order=PAPER, **more):
    return {"sinusoidal": {"dim": dim, "order": order, **more}}


def tables():
    draw = Numbers(5)

    def table(name, encoding, start=0, rows=4, **more):
        return case(name, "BuildTable", absolute=encoding,
                    positions={"start": start}, rows=rows, **more)

    def at(name, encoding, values, dtype="DTYPE_FLOAT64", shape=()):
        return case(name, "BuildTable", absolute=encoding,
                    positions=ids(values, *shape, dtype=dtype))

    def grid(name, dim, extents, **more):
        return case(name, "BuildTable", absolute={
            "sincosGrid": {"dim": dim, "extents": extents, **more}})

    learned = draw.tensor(4, 3)
    out = [
        table("SinusoidalOfThePaper", sinusoidal(16)),
        table("SinusoidalSinesFirst", sinusoidal(16, SIN_COS)),
        table("SinusoidalCosinesFirst", sinusoidal(16, COS_SIN)),
        table("SinusoidalWithEndpoint",
              sinusoidal(16, SIN_COS, endpoint=True), 100),
        table("SinusoidalInterleavedWithEndpoint",
              sinusoidal(8, PAPER, endpoint=True), 9),
        table("SinusoidalOfWhisper",
              sinusoidal(32, SIN_COS, endpoint=True), 1498, 2),
        table("SinusoidalOddDimEndsInZero", sinusoidal(7)),
        table("SinusoidalOddDimSinesFirstEndsInZero", sinusoidal(7, SIN_COS)),
        table("SinusoidalOddDimWithEndpoint",
              sinusoidal(9, SIN_COS, endpoint=True), 3),
        table("SinusoidalOddDimMayEndInASine",
              sinusoidal(7, PAPER, oddDimSine=True), 2),
        table("SinusoidalPaddingRowIsZero",
              sinusoidal(8, SIN_COS, endpoint=True, paddingPosition=1)),
        table("SinusoidalOtherBase", sinusoidal(16, PAPER, base=500000),
              70000),
        table("SinusoidalOfTwoChannels", sinusoidal(2), 1),
        table("SinusoidalNegativePositions", sinusoidal(8, SIN_COS), -4, 8),
        at("SinusoidalFractionalPositions", sinusoidal(8),
           [0.5, -1.75, 3.1, 1000.0625]),
        table("SinusoidalLargePositions", sinusoidal(16), 67108860),
        grid("GridOfMaeEncodesWidthFirst", 16, [2, 3], lastAxisFirst=True),
        grid("GridEncodesItsFirstAxisFirst", 16, [2, 3]),
        grid("GridOfThreeAxes", 12, [2, 1, 2]),
        grid("GridHasZeroRowsForClassTokens", 8, [2, 2], leadingZeroRows=2),
        grid("GridMayHaveFractionalSteps", 8, [3, 2], steps=[0.5, 2.25]),
        grid("GridWithOtherBase", 8, [2, 2], base=100),
        table("TimestepSinesFirst", {"timestep": {"dim": 8}}, 0, 3),
        at("TimestepCosinesFirst", {"timestep": {
            "dim": 8, "cosFirst": True}}, [1, 500, 999.5]),
        at("TimestepWithShiftOfDdpm", {"timestep": {
            "dim": 8, "downscaleFreqShift": 1}}, [1, 500, 999]),
        at("TimestepOfFlux", {"timestep": {
            "dim": 16, "cosFirst": True, "scale": 1000}}, [0, 0.25, 1]),
        at("TimestepOddDimEndsInZero", {"timestep": {"dim": 7}}, [1, 37]),
        at("TimestepOtherPeriod", {"timestep": {
            "dim": 8, "maxPeriod": 100, "downscaleFreqShift": 0.5}},
            [3, 40]),
        at("FourierFeaturesOfOneAxis", {"fourierFeatures": {
            "frequencies": draw.tensor(1, 5)}}, [0, 0.125, -2.3]),
        at("FourierFeaturesOfTwoAxes", {"fourierFeatures": {
            "cosFirst": True, "frequencies": draw.tensor(2, 4)}},
            [0.1, 0.5, -0.75, 0.25], shape=(2, 2)),
        at("FourierFeaturesInFloat64", {"fourierFeatures": {
            "frequencies": draw.tensor(1, 3, dtype="DTYPE_FLOAT64")}},
            [0.3, 7]),
        table("LearnedRowsAreCopied", {"learned": {"table": learned}}),
        at("LearnedRowsAreGathered", {"learned": {"table": learned}},
           [3, 0, 3], "DTYPE_INT32"),
        table("LearnedRowsInBfloat16", {"learned": {"table": draw.tensor(
            4, 3, dtype="DTYPE_BFLOAT16")}}, 1, 2, dtype="DTYPE_BFLOAT16"),
        table("HierarchicalRowsReachTheSquare", {"learned": {
            "table": learned, "hierarchicalAlpha": 0.4}}, 0, 16),
        at("HierarchicalRowsOfAnotherAlpha", {"learned": {
            "table": learned, "hierarchicalAlpha": 0.75}}, [4, 9, 15],
            "DTYPE_INT64"),
    ]
    for name, dtype in DTYPES.items():
        out.append(table("Sinusoidal" + name, sinusoidal(12), 50, 3,
                         dtype=dtype))
    return out


def table_errors():
    def wrong(name, reason, field, encoding, code="INVALID_ARGUMENT", **more):
        request = {"absolute": encoding, "positions": {"start": 0},
                   "rows": 2, **more}
        return bad(name, "BuildTable", reason, field, code, **request)

    invalid, required = "FIELD_INVALID", "FIELD_REQUIRED"
    learned = {"table": given([1, 2, 3, 4], 2, 2)}
    out = [
        wrong("RejectsAnEmptyAbsoluteEncoding", required, "absolute", {}),
        wrong("RejectsSinusoidalOfOneChannel", invalid,
              "absolute.sinusoidal.dim", sinusoidal(1)),
        wrong("RejectsSinusoidalWithoutOrder", required,
              "absolute.sinusoidal.order", {"sinusoidal": {"dim": 8}}),
        wrong("RejectsSinusoidalOfBaseOne", invalid,
              "absolute.sinusoidal.base", sinusoidal(8, base=1)),
        wrong("RejectsAnEndpointOfOnePair", invalid,
              "absolute.sinusoidal.endpoint",
              sinusoidal(2, SIN_COS, endpoint=True)),
        wrong("RejectsAnOddSineOutsideOfInterleaved", invalid,
              "absolute.sinusoidal.odd_dim_sine",
              sinusoidal(7, SIN_COS, oddDimSine=True)),
        wrong("RejectsATimestepWhoseShiftIsHalf", invalid,
              "absolute.timestep.downscale_freq_shift",
              {"timestep": {"dim": 2, "downscaleFreqShift": 1}}),
        wrong("RejectsAPositionPastALearnedTable", "POSITION_OUT_OF_RANGE",
              "positions", {"learned": learned}, OUT_OF_RANGE, rows=3),
        wrong("RejectsAPositionPastTheSquare", "POSITION_OUT_OF_RANGE",
              "positions", {"learned": {**learned, "hierarchicalAlpha": 0.4}},
              OUT_OF_RANGE, rows=5),
        wrong("RejectsANegativeRow", "POSITION_OUT_OF_RANGE", "positions",
              {"learned": learned}, OUT_OF_RANGE, positions={"start": -1}),
        wrong("RejectsAnAlphaOfOneHalf", invalid,
              "absolute.learned.hierarchical_alpha",
              {"learned": {**learned, "hierarchicalAlpha": 0.5}}),
        wrong("RejectsAnAlphaOfOne", invalid,
              "absolute.learned.hierarchical_alpha",
              {"learned": {**learned, "hierarchicalAlpha": 1}}),
        wrong("RejectsALearnedEncodingWithoutTable", required,
              "absolute.learned.table", {"learned": {}}),
        wrong("RejectsFourierFeaturesWithoutFrequencies", required,
              "absolute.fourier_features.frequencies",
              {"fourierFeatures": {}}),
        bad("RejectsAGridWhoseDimDoesNotDivide", "BuildTable", invalid,
            "absolute.sincos_grid.dim",
            absolute={"sincosGrid": {"dim": 6, "extents": [2, 2]}}),
        bad("RejectsAGridWithoutExtents", "BuildTable", required,
            "absolute.sincos_grid.extents",
            absolute={"sincosGrid": {"dim": 8}}),
        bad("RejectsAGridWhoseProductOverflows", "BuildTable", invalid,
            "absolute.sincos_grid.extents",
            absolute={"sincosGrid": {"dim": 6,
                                     "extents": [2147483647] * 3}}),
        bad("RejectsALayoutOfAnAbsoluteTable", "BuildTable", invalid,
            "layout", absolute=sinusoidal(), positions={"start": 0}, rows=1,
            layout="TABLE_LAYOUT_COMPLEX"),
    ]
    return out


def additions():
    draw = Numbers(7)

    def add(name, encoding, x, positions=None, **more):
        request = {"encoding": encoding, "x": x, **more}
        if positions is not False:
            request["positions"] = positions or {"start": 0}
        return case(name, "AddEncoding", **request)

    x = draw.tensor(2, 3, 8)
    row = draw.tensor(3, 8)
    multiply = "COMBINATION_MULTIPLY"
    concatenate = "COMBINATION_CONCATENATE"
    learned = {"learned": {"table": draw.tensor(4, 8)}}
    out = [
        add("AddsASinusoid", sinusoidal(), x),
        add("AddsToOneSequence", sinusoidal(), row, {"start": 7}),
        add("AddsAfterScalingByTheRootOfDim", sinusoidal(), x,
            xScale=2.8284271247461903),
        add("MultipliesByOnePlusTheEncoding", sinusoidal(), x,
            combination=multiply),
        add("MultipliesScaledEmbeddings", sinusoidal(), row,
            combination=multiply, xScale=0.5),
        add("ConcatenatesTheEncoding", sinusoidal(), x,
            combination=concatenate),
        add("ConcatenatesScaledEmbeddings", sinusoidal(8, SIN_COS), row,
            combination=concatenate, xScale=3),
        add("AddsFromOneStartPerSequence", sinusoidal(), x,
            {"starts": {"values": [0, 40]}}),
        add("AddsAtIdsOfEachSequence", sinusoidal(), x,
            ids([0, 1, 2, 5, 9, 100], 2, 3)),
        add("AddsToPackedSequences", sinusoidal(), draw.tensor(5, 8),
            {"packed": {"cuSeqlens": [0, 2, 5]}}),
        add("AddsLearnedRows", learned, row, {"start": 1}),
        add("AddsHierarchicalRows", {"learned": {
            "table": learned["learned"]["table"],
            "hierarchicalAlpha": 0.4}}, row, {"start": 12}),
        add("AddsAGrid", {"sincosGrid": {"dim": 8, "extents": [2, 2],
                                         "lastAxisFirst": True}},
            draw.tensor(1, 4, 8), False),
        add("AddsATimestep", {"timestep": {"dim": 8, "cosFirst": True}}, row,
            ids([1, 500, 999])),
        add("AddsFourierFeatures", {"fourierFeatures": {
            "frequencies": draw.tensor(2, 4)}}, row,
            ids([0.1, 0.2, 0.3, -0.4, 0.5, 0.6], 2, 3,
                dtype="DTYPE_FLOAT64")),
        add("AddsATableOfAnotherDtype", {"learned": {"table": draw.tensor(
            4, 8, dtype="DTYPE_FLOAT64")}}, row),
    ]
    for name, dtype in DTYPES.items():
        if name != "Float32":
            tensor = draw.tensor(1, 3, 8, dtype=dtype)
            out.append(add("AddsIn" + name, sinusoidal(), tensor,
                           {"start": 20}))
            out.append(add("MultipliesIn" + name, sinusoidal(), tensor,
                           combination=multiply))

    def wrong(name, reason, field, code="INVALID_ARGUMENT", **more):
        request = {"encoding": sinusoidal(), "positions": {"start": 0},
                   "x": row, **more}
        return bad(name, "AddEncoding", reason, field, code, **request)

    out += [
        bad("RejectsAddingNothing", "AddEncoding", "FIELD_REQUIRED",
            "encoding", positions={"start": 0}, x=row),
        bad("RejectsAddingWithoutPositions", "AddEncoding", "FIELD_REQUIRED",
            "positions", encoding=sinusoidal(), x=row),
        wrong("RejectsAddingAnotherWidth", "SHAPE_MISMATCH", "x.shape",
              encoding=sinusoidal(6)),
        wrong("RejectsAddingToIntegers", "FIELD_INVALID", "x.dtype",
              x=given([1] * 8, 1, 8, dtype="DTYPE_INT32")),
        wrong("RejectsAddingToFloat8", "FIELD_INVALID", "x.dtype",
              x=given([1] * 8, 1, 8, dtype="DTYPE_FLOAT8_E4M3FN")),
        wrong("RejectsAddingPastTheTable", "POSITION_OUT_OF_RANGE",
              "positions", OUT_OF_RANGE, encoding=learned,
              positions={"start": 2}),
        wrong("RejectsPositionsBesideAGrid", "FIELD_INVALID", "positions",
              encoding={"sincosGrid": {"dim": 8, "extents": [3, 1]}}),
    ]
    return out


def groups():
    return {"build_table_absolute": tables(),
            "build_table_absolute_errors": table_errors(),
            "add_encoding": additions()}
