"""Errors, metadata and deadlines of calls."""

import pickle
import threading
import time

import grpc
import numpy
import posenc
import pytest
from fake import details, info, serving

SPEC = {"pairing": "half_split"}
X = numpy.ones((1, 4, 2, 8), numpy.float32)


def caught(function, *arguments, **named):
    with pytest.raises(posenc.PosencError) as found:
        function(*arguments, **named)
    return found.value


# ---- Errors -----------------------------------------------------------------


def test_an_error_has_code_reason_field_metadata_and_a_remedy(client):
    error = caught(client.apply_rope, X, rope=SPEC, positions=0, layout=None)
    assert (error.code, error.reason, error.field) == ("INVALID_ARGUMENT", "FIELD_REQUIRED", "layout")
    assert error.metadata["field"] == "layout" and len(error.request_id) == 32
    assert str(error).startswith("layout: ")


def test_an_unknown_preset_is_not_found_and_names_near_ones(client):
    error = caught(client.rope, "llama-3.1-8B")
    assert (error.code, error.reason) == ("NOT_FOUND", "PRESET_UNKNOWN") and "llama-3.1-8b" in str(error)


def test_nan_positions_are_invalid(client):
    error = caught(client.apply_rope, X, rope=SPEC, positions=[0, 1, float("nan"), 3], layout="bshd")
    assert error.code in ("INVALID_ARGUMENT", "OUT_OF_RANGE") and error.field == "positions.ids"


def test_an_error_carries_the_callers_request_id(client):
    error = caught(client.resolve, "no-such", request_id="mine-42")
    assert error.request_id == "mine-42"


def test_an_error_survives_pickle(client):
    error = caught(client.resolve, "no-such")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.__dict__) == (str(error), error.__dict__)


@pytest.mark.parametrize(
    "code, reason, kind",
    [
        ("INVALID_ARGUMENT", "", posenc.InvalidArgumentError),
        ("RESOURCE_EXHAUSTED", "MESSAGE_TOO_LARGE", posenc.ResourceExhaustedError),
        ("RESOURCE_EXHAUSTED", "OVERLOADED", posenc.OverloadedError),
        ("DEADLINE_EXCEEDED", "", posenc.DeadlineExceededError),
        ("DATA_LOSS", "", posenc.PosencError),
    ],
)
def test_each_code_has_a_class(code, reason, kind):
    def failing(request, context):
        context.set_trailing_metadata([("grpc-status-details-bin", details("ERROR_REASON_" + reason, ""))])
        context.abort(getattr(grpc.StatusCode, code), "no")

    with serving({"GetServerInfo": failing}) as (_, address), posenc.Client(address) as client:
        error = caught(client.get_server_info)
    assert type(error) is kind and (error.code, error.reason) == (code, reason)
    assert isinstance(pickle.loads(pickle.dumps(error)), kind)


def test_a_server_that_is_away_is_named_within_the_timeout():
    with posenc.Client("127.0.0.1:1", timeout=2) as client:
        error = caught(client.get_server_info)
    assert error.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED") and "127.0.0.1:1" in str(error)


def test_a_socket_that_is_not_there_is_named():
    with posenc.Client("unix:/nonexistent/posenc", timeout=2) as client:
        assert "unix:/nonexistent/posenc" in str(caught(client.get_server_info))


def test_a_server_of_another_version_is_explained():
    with serving({"GetServerInfo": info()}) as (_, address), posenc.Client(address) as client:
        error = caught(client.build_bias, {"alibi": {"heads": 1}}, query_length=1, key_length=1)
    assert error.code == "UNIMPLEMENTED"
    assert "posenc 9.9.9" in str(error) and f"posenc {posenc.__version__}" in str(error)


def test_an_answer_that_is_no_message_is_internal():
    with serving({"GetServerInfo": lambda request, context: b"\x0a\xff"}) as (_, address):
        with posenc.Client(address) as client:
            assert caught(client.get_server_info).code == "INTERNAL"


def test_a_closed_client_says_so(target):
    client = posenc.Client(target)
    client.get_server_info()
    client.close()
    assert "is closed" in str(caught(client.get_server_info))


def test_a_timeout_of_zero_ends_the_call(client):
    assert caught(client.get_server_info, timeout=0).code == "DEADLINE_EXCEEDED"


@pytest.mark.parametrize("timeout", [float("inf"), 1e20])
def test_a_timeout_may_be_longer_than_the_clock(client, timeout):
    assert client.get_server_info(timeout=timeout).version


@pytest.mark.parametrize("option", ["request_id", "traceparent"])
def test_metadata_that_cannot_be_sent_is_named(client, option):
    error = caught(client.get_server_info, **{option: "two\nlines"})
    assert (error.code, error.field) == ("INVALID_ARGUMENT", option)


@pytest.mark.parametrize(
    "option, wrong",
    [
        ("tls", "yes"),
        ("tls_ca", 0),  # open() would take it for a file descriptor
        ("tls_key", 0.5),
        ("tls_server_name", 5),
        ("token", 5),
        ("token_file", 0),
        ("service_config", {}),
        ("max_message_bytes", "4MiB"),
        ("timeout", "5"),
    ],
)
def test_an_option_of_another_kind_is_named(option, wrong):
    error = caught(posenc.Client, "127.0.0.1:1", **{option: wrong})
    assert (error.code, error.field) == ("INVALID_ARGUMENT", option)


def test_a_timeout_that_is_no_number_is_named(client):
    error = caught(client.get_server_info, timeout="5")
    assert error.code == "INVALID_ARGUMENT" and error.field == "timeout"


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda client, **named: posenc.Client("127.0.0.1:1", **named), "time_out"),
        (lambda client, **named: client.resolve("llama-3.1-8b", **named), "layer_indx"),
        (lambda client, **named: client.apply_rope(X, rope=SPEC, positions=0, layout="bshd", **named), "layer_index"),
    ],
)
def test_an_unknown_option_is_a_type_error(client, call, name):
    with pytest.raises(TypeError, match=f"^unexpected keyword argument '{name}'$"):
        call(client, **{name: 1})


@pytest.mark.parametrize("field, wrong", [("dtype", 5), ("for_keys", float("nan")), ("for_keys", "no")])
def test_an_argument_of_another_kind_is_named(client, field, wrong):
    error = caught(client.build_table, rope=SPEC, rows=1, **{field: wrong})
    assert (error.code, error.field) == ("INVALID_ARGUMENT", field)


def test_a_traceparent_that_is_no_text_is_named(client):
    assert caught(client.get_server_info, traceparent=5).field == "traceparent"


def test_a_stream_without_progress_ends():
    stuck = threading.Event()

    def silent(requests, context):
        stuck.wait(30)
        yield b""

    with serving({"GetServerInfo": info(), "ApplyRopeStream": silent}) as (_, address):
        with posenc.Client(address, timeout=1, stream_above_bytes=0) as client:
            error = caught(client.apply_rope, X, rope=SPEC, positions=0, layout="bshd")
            stuck.set()
    assert error.code == "DEADLINE_EXCEEDED" and "no progress" in str(error) and address in str(error)


def too_large(request, context):
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too large")


def test_a_timeout_is_that_of_all_requests_of_the_call():
    left = []

    def late(request, context):
        time.sleep(1)
        too_large(request, context)

    def told(requests, context):
        left.append(context.time_remaining())
        return iter(())

    with serving({"ApplyRopeStream": told, "ApplyRope": late}) as (_, address), posenc.Client(address) as client:
        caught(client.apply_rope, X, rope=SPEC, positions=0, layout="bshd", timeout=8)
    assert left[0] < 7.5


@pytest.mark.parametrize(
    "rope, said",
    [
        ({"pairing": "half_splt"}, r"rope.spec.pairing: 'half_splt' is no Pairing"),
        ({"pairing": "half_split", "rotary_dims": 4}, r"rope.spec.rotary_dims: is no field.*near: rotary_dim"),
        ({"pairing": "half_split", "rotary_dim": "wide"}, r"rope.spec.rotary_dim: is 'wide'"),
        ({"pairing": "half_split", "rotary_dim": 1 << 40}, r"rope.spec.rotary_dim: 1099511627776 does not fit int32"),
        ({"paring": "half_split", "rope_theta": 10000}, r"rope.spec.paring: is no field.*near: pairing"),
        ("missing/config.json", r"rope: missing/config.json: No such file"),
        (7, r"rope: is of type int; must be a preset's name"),
    ],
)
def test_mistakes_in_a_rope_name_the_field(client, rope, said):
    with pytest.raises(posenc.PosencError, match=said):
        client.apply_rope(X, rope=rope, positions=0, layout="bshd")


def test_an_unknown_preset_with_the_name_of_a_folder_or_file_is_told(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llama31").mkdir()
    (tmp_path / "params").touch()
    for name, kind in (("llama31", "folder"), ("params", "file")):
        assert str(caught(client.rope, name)).endswith(f"; there is a {kind} of this name: write ./{name}")


def test_a_target_without_a_port_is_told():
    with posenc.Client("127.0.0.1", timeout=2) as client:
        assert "write HOST:PORT" in str(caught(client.get_server_info, timeout=2))


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda client: client.apply_rope(X, rope=SPEC, layout="bshd", positions=1.5), "is 1.5; must be an int, or"),
        (lambda client: client.reposition(X, rope=SPEC, layout="bshd", shift=0.5), "shift: is 0.5; must be an int, or"),
        (lambda client: client.reposition(X, rope=SPEC, layout="bshd"), "set new_positions or shift$"),
        (lambda client: client.build_bias({"alibi": 8}, query_length=1, key_length=1), "of type int; .* or Alibi$"),
        (lambda client: client.build_bias({"alibi": {"heads": 0}}, query_length=1, key_length=1), "is 0; must be at"),
    ],
)
def test_mistakes_in_arguments_are_told(client, call, said):
    with pytest.raises(posenc.InvalidArgumentError, match=said):
        call(client)


def test_numbers_of_numpy_in_a_configuration_are_numbers(client):
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "rope_theta": 5000.0}
    typed = {**config, "hidden_size": numpy.int64(64), "rope_theta": numpy.float32(5000)}
    assert client.resolve(typed).inv_freq == client.resolve(config).inv_freq


def test_a_request_over_the_clients_limit_says_so(target):
    with posenc.Client(target, max_message_bytes=1000) as client:
        encoding = {"sinusoidal": {"dim": 8, "order": 1}}
        error = caught(client.add_encoding, numpy.zeros((100, 8)), encoding=encoding, positions=0)
    assert error.code == "RESOURCE_EXHAUSTED" and "max_message_bytes" in str(error)


# ---- Metadata ---------------------------------------------------------------


def answers_rope(request, context):
    return b""


def test_every_call_announces_its_bytes_and_shows_an_id():
    with serving({"GetServerInfo": info(), "ResolveRope": answers_rope}) as (fake, address):
        with posenc.Client(address) as client:
            client.resolve("llama-3.1-8b", traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
            client.get_server_info(request_id="mine")
    (_, resolve, request), (_, second, _) = fake.calls
    assert int(resolve["posenc-message-bytes"]) == len(request) and len(resolve["x-request-id"]) == 32
    assert resolve["traceparent"].startswith("00-0af7")
    assert second["x-request-id"] == "mine" and "authorization" not in second


def test_calls_are_tried_again_while_the_server_is_not_available():
    tries = []

    def flaky(request, context):
        tries.append(1)
        if len(tries) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return info()(request, context)

    with serving({"GetServerInfo": flaky}) as (_, address), posenc.Client(address) as client:
        assert client.get_server_info().version == "9.9.9"
    assert len(tries) == 3


# ---- Tokens and the environment ---------------------------------------------


def test_a_token_goes_to_loopback_in_the_clear_and_is_read_again(tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    with serving({"GetServerInfo": info()}, grpc.local_server_credentials()) as (fake, address):
        with posenc.Client(address, token_file=str(file)) as client:
            client.get_server_info()
            file.unlink()
            client.get_server_info()  # the old token is used while the file cannot be read
            file.write_text("second")
            client.get_server_info()
    assert [call[1]["authorization"] for call in fake.calls] == ["Bearer first", "Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    "options, field",
    [
        ({"token": "secret"}, "token"),
        ({"token": "two words", "tls": True}, "token"),
        ({"tls_cert": "only.pem"}, "tls_key"),
        ({"tls_ca": "/nonexistent"}, "tls_ca"),
        ({"tls_ca": __file__}, "tls_ca"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, field):
    error = caught(posenc.Client, "posenc.example:50051", **options)
    assert error.code == "INVALID_ARGUMENT" and error.field == field and "secret" not in str(error)


@pytest.mark.parametrize(
    "target, said",
    [
        ("", "such as localhost:50051"),
        (None, "such as localhost:50051"),
        (50051, "such as localhost:50051"),
        ("http://localhost:50051", "must be 'localhost:50051', without http://;"),
        ("https://posenc:1", "must be 'posenc:1', without https://;"),
        ("localhost:65536", "port 65536"),
        ("dns:///[::1]:99999", "port 99999"),
    ],
)
def test_a_target_that_is_no_address_is_refused(target, said):
    error = caught(posenc.Client, target)
    assert error.field == "target" and said in str(error)


def test_the_environment_makes_a_client(target, monkeypatch):
    monkeypatch.setenv("POSENC_SERVER", target)
    with posenc.Client.from_env(timeout=30) as client:
        assert client.get_server_info().version
    monkeypatch.setenv("POSENC_TLS", "maybe")
    assert caught(posenc.Client.from_env).field == "POSENC_TLS"


def test_a_client_serves_many_threads(client, random):
    x = random.standard_normal((8, 1, 256, 2, 128)).astype(numpy.float32)
    expected = [client.apply_rope(part, rope=SPEC, positions=0, layout="bshd")[0] for part in x]
    failed = []

    def work(i):
        for _ in range(5):
            if not (client.apply_rope(x[i], rope=SPEC, positions=0, layout="bshd")[0] == expected[i]).all():
                failed.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed and not any(thread.is_alive() for thread in threads)


def test_an_unknown_value_is_named_with_its_field_and_no_version_is_blamed(client):
    x = numpy.ones((1, 1, 1, 8), numpy.float32)
    error = caught(client.apply_rope, x, rope={"pairing": "half_split"}, positions=0, layout=99)
    assert error.field == "layout" and str(error).startswith("layout: value 99 ")
    assert "versions that agree" not in str(error)
