#!/usr/bin/env python3
"""Rotations and a table by posenc and by its peers, alternately, in one process and thread.

    core_peers.py SHARED_OBJECT [--json FILE] [--filter TEXT]

SHARED_OBJECT is libposenc-core-peers.so. Rows are those of posenc-core-bench, with a
peer's name in ratio_to; --json adds them to the array in FILE. A peer is left out,
with the reason, if it is not installed or gives other numbers.

  torch_eager      x cos + rotate(x) sin, operator by operator, as most models do
  torch_compile    the same in float32, compiled
  torch_complex64  multiplies pairs as complex numbers (float32, interleaved)
  onnxruntime      RotaryEmbedding of opset 23
  vllm             its CPU kernel, in place, with tables in the tensor's type
  ggml             rope, which computes cosines and sines on the way as posenc does
  numpy            the table, as people write it, which makes new arrays
  numpy_out        the same into existing arrays
All peers except ggml have ready tables. posenc computes its table in every call.
"""

import argparse
import ctypes
import glob
import importlib.util
import json
import os
import statistics
import time

HEADS, DIM, BASE = 32, 128, 10000.0
ROUNDS = 9
SIZES = (
    ("L2", 256 << 10),
    ("memory", 32 << 20),
    ("memory", 64 << 20),
    ("memory", 256 << 20),
)
# For each type: its number in posenc.v1.Dtype, its bytes, and how much a peer's numbers (at most 5)
# may differ from posenc's, because of the precision of the peer's tables and sums.
DTYPES = {"float32": (1, 4, 1e-4), "float16": (2, 2, 2e-2), "bfloat16": (3, 2, 2e-1)}


class Posenc:
    def __init__(self, path):
        self.posenc = ctypes.CDLL(path)
        self.posenc.PosencIsa.restype = ctypes.c_char_p
        self.posenc.PosencRotation.restype = ctypes.c_void_p
        self.posenc.PosencRotation.argtypes = (
            [ctypes.c_int] * 2 + [ctypes.c_int64] * 3 + [ctypes.c_void_p] * 2
        )
        self.posenc.PosencTable.restype = ctypes.c_void_p
        self.posenc.PosencTable.argtypes = [ctypes.c_void_p] * 2
        self.posenc.PosencRun.argtypes = [ctypes.c_void_p]
        self.posenc.PosencFree.argtypes = [ctypes.c_void_p]
        self.isa = self.posenc.PosencIsa().decode()

    def rotation(self, case, source, target):
        handle = self.posenc.PosencRotation(
            DTYPES[case.dtype][0],
            int(case.interleaved),
            case.tokens,
            HEADS,
            DIM,
            source.data_ptr(),
            target.data_ptr(),
        )
        return Call(self.posenc, handle)

    def table(self, cos, sin):
        return Call(self.posenc, self.posenc.PosencTable(cos.ctypes.data, sin.ctypes.data))


class Call:
    """The work of one call; freed with this object."""

    def __init__(self, library, handle):
        self.posenc, self.handle = library, handle

    def __call__(self):
        self.posenc.PosencRun(self.handle)

    def __del__(self):
        self.posenc.PosencFree(self.handle)


class Case:
    def __init__(self, name, size, dtype, interleaved, in_place):
        self.name, self.size, self.dtype = name, size, dtype
        self.interleaved, self.in_place = interleaved, in_place
        self.tokens = size // (HEADS * DIM * DTYPES[dtype][1])
        self.pairing = "interleaved" if interleaved else "half_split"
        self.mode = "in_place" if in_place else "out"

    def text(self):
        return f"{self.dtype} {self.pairing} token_major {self.name} {self.size >> 10} KB {self.mode}"


def angles(torch, tokens):
    frequencies = BASE ** (-torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)
    return torch.outer(torch.arange(tokens, dtype=torch.float64), frequencies)


def turned(torch, x, interleaved):
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def wide(torch, phi, interleaved):
    return phi.repeat_interleave(2, -1) if interleaved else torch.cat((phi, phi), -1)


class NoSuchCaseError(Exception):
    """Raised if the peer has no such rotation."""


# Each peer takes (torch, case, source) and gives (call, result): call() computes
# what result() then returns. In place, both use `source`.


def torch_eager(torch, case, source):
    if case.in_place:
        raise NoSuchCaseError
    phi = wide(torch, angles(torch, case.tokens), case.interleaved)[:, None, :]
    cos, sin = phi.cos().to(source.dtype), phi.sin().to(source.dtype)
    out = [None]

    def call():
        out[0] = source * cos + turned(torch, source, case.interleaved) * sin

    return call, lambda: out[0]


def torch_compile(torch, case, source):
    if case.in_place:
        raise NoSuchCaseError
    phi = wide(torch, angles(torch, case.tokens), case.interleaved)[:, None, :]
    cos, sin = phi.cos().float(), phi.sin().float()

    def rotate(x, cos, sin):
        y = x.float()
        return (y * cos + turned(torch, y, case.interleaved) * sin).to(x.dtype)

    torch._dynamo.reset()  # it compiles at most eight shapes of a function
    compiled, out = torch.compile(rotate, dynamic=False), [None]

    def call():
        out[0] = compiled(source, cos, sin)

    return call, lambda: out[0]


def torch_complex64(torch, case, source):
    if not case.interleaved or case.dtype != "float32":
        raise NoSuchCaseError
    phi = angles(torch, case.tokens)[:, None, :]
    factors = torch.polar(torch.ones_like(phi), phi).to(torch.complex64)
    pairs, out = torch.view_as_complex(source.unflatten(-1, (-1, 2))), [None]

    def call():
        out[0] = pairs.mul_(factors) if case.in_place else pairs * factors

    return call, lambda: torch.view_as_real(out[0]).flatten(-2)


def onnxruntime(torch, case, source):
    if case.in_place:
        raise NoSuchCaseError
    import onnx
    import onnxruntime as ort

    kind = {
        "float32": onnx.TensorProto.FLOAT,
        "float16": onnx.TensorProto.FLOAT16,
        "bfloat16": onnx.TensorProto.BFLOAT16,
    }[case.dtype]
    shape = [1, case.tokens, HEADS * DIM]
    half = [1, case.tokens, DIM // 2]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node(
                "RotaryEmbedding",
                ["x", "cos", "sin"],
                ["y"],
                interleaved=int(case.interleaved),
                num_heads=HEADS,
            )
        ],
        "rope",
        [value("x", kind, shape), value("cos", kind, half), value("sin", kind, half)],
        [value("y", kind, shape)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)])
    model.ir_version = min(model.ir_version, 10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    phi = angles(torch, case.tokens)
    tensors = {
        "x": source,
        "cos": phi.cos().to(source.dtype),
        "sin": phi.sin().to(source.dtype),
    }
    out = torch.empty_like(source)
    for name, tensor in tensors.items():
        extents = shape if name == "x" else half
        binding.bind_input(name, "cpu", 0, kind, extents, tensor.data_ptr())
    binding.bind_output("y", "cpu", 0, kind, shape, out.data_ptr())

    def call(keep=(tensors, out)):
        session.run_with_iobinding(binding)

    return call, lambda: out


def vllm(torch, case, source):
    if not case.in_place:
        raise NoSuchCaseError
    load_vllm(torch)
    phi = angles(torch, case.tokens)
    table = torch.cat((phi.cos(), phi.sin()), -1).to(source.dtype)
    positions = torch.arange(case.tokens)
    tokens = source.view(case.tokens, HEADS * DIM)

    def call():
        torch.ops._C.rotary_embedding(positions, tokens, None, DIM, table, not case.interleaved)

    return call, lambda: source


def load_vllm(torch):
    """Loads only its compiled operators: the rest of the package is not needed."""
    if hasattr(torch.ops._C, "rotary_embedding"):
        return
    found = importlib.util.find_spec("vllm")
    if found is None:
        raise ImportError("vllm is not installed")
    flags = open("/proc/cpuinfo").read()
    names = ["_C.abi3.so"] if "avx512_bf16" in flags else []
    names += ["_C_AVX512.abi3.so"] if "avx512f" in flags else []
    names += ["_C_AVX2.abi3.so", "_C.abi3.so"]
    for name in names:
        for path in glob.glob(os.path.join(os.path.dirname(found.origin), name)):
            torch.ops.load_library(path)
            return
    raise ImportError("vllm has no operators for this CPU")


def ggml(torch, case, source):
    if case.dtype == "bfloat16":
        raise NoSuchCaseError
    import ggml as library

    # The memory holds the tensor, one result and the graph.
    size = 2 * case.size + (16 << 20)
    memory = torch.empty(size, dtype=torch.uint8)
    context = library.ggml_init(
        library.ggml_init_params(mem_size=size, mem_buffer=memory.data_ptr(), no_alloc=False)
    )
    kind = library.GGML_TYPE_F32 if case.dtype == "float32" else library.GGML_TYPE_F16
    x = library.ggml_new_tensor_3d(context, kind, DIM, HEADS, case.tokens)
    positions = library.ggml_new_tensor_1d(context, library.GGML_TYPE_I32, case.tokens)
    places = torch.arange(case.tokens, dtype=torch.int32)
    ctypes.memmove(library.ggml_get_data(positions), places.data_ptr(), 4 * case.tokens)
    rope = library.ggml_rope_ext_inplace if case.in_place else library.ggml_rope_ext
    y = rope(context, x, positions, None, DIM, 0 if case.interleaved else 2, 0, BASE, 1.0, 0.0, 1.0, 32.0, 1.0)
    graph = library.ggml_new_graph(context)
    library.ggml_build_forward_expand(graph, y)
    ctypes.memmove(library.ggml_get_data(x), source.data_ptr(), case.size)
    plan = library.ggml_graph_plan(graph, 1, None)
    work = torch.empty(max(1, plan.work_size), dtype=torch.uint8)
    plan.work_data = ctypes.cast(work.data_ptr(), type(plan.work_data))
    out = torch.empty_like(source)

    def call(keep=(memory, work)):
        library.ggml_graph_compute(graph, ctypes.byref(plan))

    def result():
        ctypes.memmove(out.data_ptr(), library.ggml_get_data(y), case.size)
        return out

    return call, result


# Each of these functions takes (numpy, positions, inv_freq, out) in float32, and returns
# the cosines and the sines of the table. `out` are three arrays of the table's shape.


def numpy(np, positions, inv_freq, out):
    del out
    phi = np.outer(positions, inv_freq)
    return np.cos(phi), np.sin(phi)


def numpy_out(np, positions, inv_freq, out):
    phi, cos, sin = out
    np.multiply.outer(positions, inv_freq, out=phi)
    return np.cos(phi, out=cos), np.sin(phi, out=sin)


PEERS = (vllm, ggml, torch_eager, torch_complex64, torch_compile, onnxruntime)


def seconds(work, repeats):
    start = time.thread_time()
    for _ in range(repeats):
        work()
    return (time.thread_time() - start) / repeats


def quantile(values, q):
    values = sorted(values)
    return values[int(q * (len(values) - 1) + 0.5)]


def save(path, rows):
    """Writes the file after each row, because a peer may end the process."""
    if path:
        with open(path + ".new", "w") as file:
            json.dump(rows, file, indent=1)
            file.write("\n")
        os.replace(path + ".new", path)


def cases(dtype):
    for peer in PEERS:
        for name, size in SIZES:
            for interleaved in (False, True):
                for in_place in (False, True):
                    yield peer, Case(name, size, dtype, interleaved, in_place)


def check(torch, posenc, peer, case):
    """Raises if the peer's result differs from posenc's by more than its precision."""
    numbers = torch.randn(case.tokens, HEADS, DIM).to(getattr(torch, case.dtype))
    ours, theirs = numbers.clone(), numbers.clone()
    target = ours if case.in_place else torch.empty_like(ours)
    posenc.rotation(case, ours, target)()
    call, result = peer(torch, case, theirs)
    call()
    error = (result().reshape(target.shape).float() - target.float()).abs().max().item()
    if not error <= DTYPES[case.dtype][2]:
        raise ValueError(f"its result differs by {error:.3g}")


def in_turns(ours, theirs, repeats):
    """Returns the median seconds of ours(), the median ratio, and its spread."""
    ours(), seconds(theirs, repeats)
    before, times, ratios = seconds(theirs, repeats), [], []
    for _ in range(ROUNDS):
        times.append(seconds(ours, repeats))
        after = seconds(theirs, repeats)
        ratios.append((before + after) / 2 / times[-1])
        before = after
    ratio = statistics.median(ratios)
    spread = (quantile(ratios, 0.75) - quantile(ratios, 0.25)) / ratio
    return statistics.median(times), ratio, spread


def measure_table(torch, posenc, peer):
    import numpy as np

    rows, pairs = 131072, 64
    positions = np.arange(rows, dtype=np.float32)
    inv_freq = (BASE ** (-np.arange(pairs) / pairs)).astype(np.float32)
    # torch's memory begins at cache lines, like a server's answers.
    cos, sin, *out = (torch.zeros(rows, pairs).numpy() for _ in range(5))
    ours = posenc.table(cos, sin)
    ours()
    few = 256  # positions whose float32 angles are still exact
    for mine, its in zip((cos, sin), peer(np, positions, inv_freq, out)):
        error = np.abs(mine[:few] - its[:few]).max()
        if not error <= DTYPES["float32"][2]:
            raise ValueError(f"its result differs by {error:.3g}")
    time, ratio, spread = in_turns(ours, lambda: peer(np, positions, inv_freq, out), 1)
    size = cos.nbytes + sin.nbytes
    return {
        "case": f"table {rows} x {pairs}",
        "isa": posenc.isa,
        "dtype": "float32",
        "pairing": "half_split",
        "layout": "",
        "bytes": size,
        "mode": "table",
        "gbps": size / time / 1e9,
        "ratio_to": peer.__name__,
        "ratio": ratio,
        "spread": spread,
    }


def measure(torch, posenc, peer, case, numbers, target):
    source = numbers.view(torch.uint8)[: case.size].view(getattr(torch, case.dtype))
    source = source.view(case.tokens, HEADS, DIM)
    out = target[: case.size].view(source.dtype).view(source.shape)
    theirs, result = peer(torch, case, source)
    del result
    ours = posenc.rotation(case, source, source if case.in_place else out)
    time, ratio, spread = in_turns(ours, theirs, max(1, (8 << 20) // case.size))
    return {
        "case": case.name,
        "isa": posenc.isa,
        "dtype": case.dtype,
        "pairing": case.pairing,
        "layout": "token_major",
        "bytes": case.size,
        "mode": case.mode,
        "gbps": case.size / time / 1e9,
        "ratio_to": peer.__name__,
        "ratio": ratio,
        "spread": spread,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared_object")
    parser.add_argument("--json", help="add the rows to this file's array")
    parser.add_argument("--filter", default="", help="only rows that contain this")
    arguments, _ = parser.parse_known_args()  # the rest is for posenc-core-bench
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    posenc = Posenc(arguments.shared_object)
    most = SIZES[-1][1]
    target = torch.zeros(most, dtype=torch.uint8)
    rows, left_out = [], set()
    if arguments.json and os.path.exists(arguments.json):
        rows = json.load(open(arguments.json))

    def add(row, text):
        rows.append(row)
        save(arguments.json, rows)
        print(
            f"{text:71} {row['gbps']:8.2f}  {row['ratio']:6.2f} x "
            f"{row['ratio_to']:15} {100 * row['spread']:3.0f}%",
            flush=True,
        )

    for dtype in DTYPES:
        kind = getattr(torch, dtype)
        numbers = torch.randn(1 << 20).to(kind).repeat(most // (1 << 20) // DTYPES[dtype][1])
        for peer, case in cases(dtype):
            group = f"{peer.__name__} {dtype} {case.pairing} {case.mode}"
            text = f"{posenc.isa} {case.text()}"
            if group in left_out or arguments.filter not in f"{text} {peer.__name__}":
                continue
            try:
                few = Case("", SIZES[0][1], dtype, case.interleaved, case.in_place)
                check(torch, posenc, peer, few)
                row = measure(torch, posenc, peer, case, numbers, target)
            except NoSuchCaseError:
                left_out.add(group)
                continue
            except Exception as fault:  # a peer may fail in any way
                left_out.add(group)
                print(f"{group}: left out: {str(fault).splitlines()[0]}")
                continue
            add(row, text)
    for peer in (numpy, numpy_out):
        text = f"{posenc.isa} float32 half_split table 131072 x 64"
        if arguments.filter not in f"{text} {peer.__name__}":
            continue
        try:
            add(measure_table(torch, posenc, peer), text)
        except Exception as fault:
            print(f"{peer.__name__}: left out: {str(fault).splitlines()[0]}")


if __name__ == "__main__":
    main()
