"""Runs the code of the README against a server."""

import re
import subprocess
import sys
from pathlib import Path

import numpy
import oracle
import posenc
import pytest

HERE = Path(__file__).resolve().parents[1]
README = (HERE / "README.md").read_text("utf-8")


def blocks():
    return re.findall("```python\n(.*?)```", README, re.DOTALL)


def marked(name):
    """Returns the block of Python code after the comment <!-- name -->."""
    return README.partition(f"<!-- {name} -->")[2].partition("```python\n")[2].partition("```")[0]


def test_three_lines_rotate_q_and_k_of_a_model(target, tmp_path, random):
    code = marked("three lines")
    assert len(code.strip().splitlines()) <= 3
    (tmp_path / "three.py").write_text(code)
    config = '{"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "rope_theta": 500000.0}'
    (tmp_path / "config.json").write_text(config)
    sent = {"q": random.standard_normal((1, 16, 4, 64)), "k": random.standard_normal((1, 16, 2, 64))}
    for name, array in sent.items():
        array.astype("<f4").tofile(tmp_path / f"{name}.bin")
    tool = [sys.executable, HERE / "tools/snippet.py", tmp_path / "three.py", target, tmp_path]
    subprocess.run(tool, check=True)
    for name, array in sent.items():
        rotated = numpy.fromfile(tmp_path / f"{name}.out", "<f4").reshape(array.shape)
        oracle.assert_near(rotated, oracle.rotate(array.astype(numpy.float32), numpy.arange(16), theta=500000))


def test_the_first_screen_of_the_project_prints_what_it_shows(posencd, capsys):
    screen = (HERE.parents[1] / "README.md").read_text("utf-8").partition("<!-- first screen -->")[2]
    code, shown = re.findall("```(?:python)?\n(.*?)```", screen, re.DOTALL)[:2]
    exec(code, {})
    assert capsys.readouterr().out == shown


def test_the_example_with_shared_memory_rotates_in_place(shared_server):
    names = {"posenc": posenc}
    exec(marked("shared memory").replace("unix:/run/posenc.sock", shared_server.socket), names)
    for name, number in (("q", 1), ("k", 2)):
        sent = numpy.full((1, 4096, 32, 128), number, numpy.float32)
        with posenc.Client(shared_server.address) as client:
            expected, _ = client.apply_rope(sent, rope="llama-3.1-8b", positions=0, layout="bshd")
        assert (names[name] == expected).all()


def test_the_example_with_a_server_for_a_block_rotates(posencd, target):
    sent = numpy.ones((1, 16, 4, 128), numpy.float32)
    names = {"posenc": posenc, "q": sent, "k": 2 * sent}
    exec(marked("local"), names)
    with posenc.Client(target) as client:
        expected = client.apply_rope(sent, 2 * sent, rope="llama-3.1-8b", positions=0, layout="bshd")
    assert (names["q"] == expected[0]).all() and (names["k"] == expected[1]).all()


def test_the_fixture_of_pytest_loads_grpc_only_when_it_is_used(posencd, tmp_path):
    code = "import sys\nassert 'grpc' not in sys.modules\n" + marked("pytest")
    (tmp_path / "test_fixture.py").write_text(code)
    subprocess.run([sys.executable, "-m", "pytest", "-q", tmp_path], check=True, cwd=tmp_path)


@pytest.mark.parametrize("number", [1, 5])
def test_the_examples_run(target, number, capsys):
    names = {"posenc": posenc, "client": posenc.Client(target), "q": numpy.ones((1, 4, 32, 128), numpy.float32)}
    exec(blocks()[number].replace("dns:///posenc:50051", target), names)
    if "error" in blocks()[number]:
        names["client"].close()
    else:
        assert names["cos"].shape == (8192, 64) and names["bias"].shape == (8, 1, 501)
