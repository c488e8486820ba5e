"""DiagnoseRope: which checks report a finding depends on the readers (docs/doctor.md).
This file computes a reader's effect on scores."""

import base64
import json
import struct

from cases import HALF, bad, case
from differences import frequencies_of, kept, slack
from exact import EXACT, absolute, expectation, mp, mpf, relative, single

BASE, PAIRS, LENGTH, HEADS = 500000, 32, 131072, 8


def _config(**more):
    return json.dumps({
        "model_type": "llama", "hidden_size": 2 * PAIRS * HEADS,
        "num_attention_heads": HEADS, "rope_theta": float(BASE),
        "max_position_embeddings": LENGTH, **more})


def _given(kind, **more):
    return {"kind": "DESCRIPTION_KIND_" + kind, **more}


def _spec(theta=BASE, **scaling):
    return frequencies_of({"spec": {"pairing": HALF, "rotaryDim": 2 * PAIRS,
                                    "ropeTheta": theta, **scaling}}, 0)


def _gguf(**keys):
    """A header of version 3 without tensors; numbers are u32."""
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys))
    for name, value in keys.items():
        name = name.replace("__", ".").encode()
        out += struct.pack("<Q", len(name)) + name
        if isinstance(value, str):
            out += struct.pack("<IQ", 8, len(value)) + value.encode()
        else:
            out += struct.pack("<II", 4, value)
    return base64.b64encode(out).decode()


def _verdict(at, name, reference, other, length, ratio=1):
    """Expects a reader's effect on scores, which must fall below 90 % within
    4096 positions."""
    first = next(r for r in range(1, 4097)
                 if kept(reference, other, r) < mpf("0.9"))
    most = max(abs(a - b) for a, b in zip(reference, other))
    return [
        expectation(at + ".name", name, EXACT),
        expectation(at + ".firstDistance", first, EXACT),
        expectation(at + ".keptAtLength", kept(reference, other, length),
                    absolute(slack(reference, other, length))),
        expectation(at + ".firstAngle", int(mpf("0.01") / most) + 1, EXACT),
        expectation(at + ".amplitudeRatio", ratio, relative(mpf(2) ** -50)),
    ]


def _summary(error, warning, note, length):
    return [expectation("summary.error", error, EXACT),
            expectation("summary.warning", warning, EXACT),
            expectation("summary.note", note, EXACT),
            expectation("length", length, EXACT)]


def _finding(index, name, severity, *inputs):
    at = f"findings.{index}"
    return [expectation(at + ".id", name, EXACT),
            expectation(at + ".severity", "SEVERITY_" + severity, EXACT),
            *(expectation(f"{at}.inputs.{i}", path, EXACT)
              for i, path in enumerate(inputs))]


def diagnoses():
    yarn = {"factor": 4, "originalMaxPositionEmbeddings": 32768}
    conflict = _config(rope_scaling={
        "rope_type": "yarn", "type": "linear", "factor": 4.0,
        "original_max_position_embeddings": 32768})
    plain = _given("CONFIG", text=_config())
    table = [float(single(mpf(10000) ** (mpf(-i) / PAIRS)))
             for i in range(PAIRS)]
    saved = _given("SAFETENSORS", path="a.safetensors", tables=[{
        "name": "model.layers.3.self_attn.rotary_emb.inv_freq",
        "tensor": {"dtype": "DTYPE_FLOAT32", "shape": [PAIRS],
                   "values": table}}])
    gguf = _given("GGUF", path="q4.gguf", gguf=_gguf(
        general__architecture="llama", llama__context_length=LENGTH,
        llama__attention__key_length=2 * PAIRS,
        llama__rope__dimension_count=2 * PAIRS))
    away = _given("GGUF", path="q8.gguf", unreadable="cannot open")

    def told(name, expect, *inputs, **more):
        return {**case(name, "DiagnoseRope", inputs=list(inputs), **more),
                "expect": expect}

    def wrong(name, field, *inputs, reason="FIELD_INVALID", **more):
        return bad(name, "DiagnoseRope", reason, field, inputs=list(inputs),
                   **more)

    def spoilt(**tensor):
        table = {"dtype": "DTYPE_FLOAT32", "shape": [2], "values": [1, 0.5],
                 **tensor}
        return _given("SAFETENSORS",
                      tables=[{"name": "rope.freqs", "tensor": table}])

    return [
        told("FindsNothingInAPlainConfiguration",
             [expectation("inputs.0.path", "config.json", EXACT),
              expectation("inputs.0.kind", "DESCRIPTION_KIND_CONFIG", EXACT),
              expectation("inputs.0.modelType", "llama", EXACT),
              *_summary(0, 0, 0, LENGTH)], plain),
        told("FindsTwoTypesThatDisagree",
             [*_finding(0, "config.type-conflict", "ERROR", "config.json"),
              *_verdict("findings.0.readers.0", "mlx-lm", _spec(yarn=yarn),
                        _spec(linear={"factor": 4}), LENGTH,
                        1 / (mpf("0.1") * mp.log(4) + 1)),
              *_summary(1, 0, 0, LENGTH)],
             _given("CONFIG", text=conflict), readers=["hf", "mlx"]),
        told("FindsASavedTableOfAnotherBase",
             [*_finding(0, "tables.inv-freq-differs", "ERROR",
                        "a.safetensors", "config.json"),
              expectation("findings.0.layers", [3], EXACT, [1]),
              *_verdict("findings.0.readers.0", "the saved table", _spec(),
                        [mpf(w) for w in table], 4096),
              *_summary(1, 0, 0, 4096)],
             plain, saved, length=4096),
        told("FindsAGgufFileWithoutItsBase",
             [*_finding(0, "gguf.freq-base", "ERROR", "q4.gguf",
                        "config.json"),
              *_verdict("findings.0.readers.0", "llama.cpp", _spec(),
                        _spec(10000), LENGTH),
              *_summary(1, 0, 0, LENGTH)],
             plain, gguf),
        told("ToldOfOneReaderAlone",
             [*_summary(0, 0, 0, 8192),
              expectation("inputs.1.unreadable", "cannot open", EXACT)],
             plain, away, readers=["vllm", "hf"], length=8192),
        told("FindsAFlagThatIsGone",
             [*_finding(0, "runtime.flag-gone", "ERROR", "config.json"),
              *_summary(1, 0, 0, LENGTH)],
             plain, runtime="vllm serve m --rope-theta 1000000"),
        wrong("RejectsADiagnosisOfNothing", "inputs",
              reason="FIELD_REQUIRED"),
        wrong("RejectsADescriptionWithoutKind", "inputs[1].kind", plain,
              {"text": "{}"}, reason="FIELD_REQUIRED"),
        wrong("RejectsAnUnknownReader", "readers[1]", plain,
              readers=["hf", "nobody"]),
        wrong("RejectsANegativeLengthOfADiagnosis", "length", plain,
              length=-1),
        wrong("RejectsARuntimeWithAnOpenQuote", "runtime", plain,
              runtime="vllm serve 'm"),
        wrong("RejectsTextOfATensorFile", "inputs[0].text",
              _given("SAFETENSORS", text="{}")),
        wrong("RejectsASavedTableOfIntegers",
              "inputs[0].tables[0].tensor.dtype",
              spoilt(dtype="DTYPE_INT32", values=[1, 2])),
        wrong("RejectsASavedTableOfTwoDimensions",
              "inputs[0].tables[0].tensor.shape", spoilt(shape=[1, 2])),
        wrong("RejectsASavedTableOfTooFewElements",
              "inputs[0].tables[0].tensor.values", spoilt(shape=[3]),
              reason="TENSOR_SIZE_MISMATCH"),
    ]


def groups():
    return {"diagnose_rope": diagnoses()}
