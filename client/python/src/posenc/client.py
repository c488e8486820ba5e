"""Client, whose calls wait for their answers."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, TypedDict

import grpc

from . import messages as m
from . import methods
from .blocking import Runner
from .channels import Call, Connections
from .options import Options, from_environment
from .shared import SharedRegion
from .sources import places_of, rope_source
from .tables import RotaryTable, build_table

if TYPE_CHECKING:
    from typing_extensions import Unpack


class CallOptions(TypedDict, total=False):
    """Every method takes these by keyword.

    timeout: seconds for the whole call or stream, instead of the client's.
    request_id: appears in the server's log; random by default.
    traceparent: of W3C Trace Context.
    """

    timeout: Optional[float]
    request_id: Optional[str]
    traceparent: Optional[str]


class Client:
    """A client of one or several servers at `target`.

        with posenc.Client("dns:///posenc:50051") as client:
            q, k = client.apply_rope(q, k, rope="llama-3.1-8b", positions=0, layout="bshd")

    target: "host:port", "dns:///posenc:50051" or "unix:/run/posenc.sock".
    timeout: seconds that a call may take, by default 60; for streams the
        longest time without progress.
    tls, tls_ca, tls_cert, tls_key, tls_server_name: TLS, and PEM files. Any of
        them switches TLS on; without tls_ca the system's authorities are trusted.
    token, token_file: a bearer token. The file is read again when it changes.
    max_message_bytes: larger messages are neither sent nor received.
    stream_above_bytes: larger rotations and tables go in chunks; by default 4
    MiB.
    bulk_channels: connections for messages of 64 KiB and more.
    service_config: gRPC's, as JSON, instead of the published one.

    Arrays are numpy's, torch's or of any library with a buffer, DLPack or the
    array API; results are of the same kind. The constructor never waits for the
    network. A client is safe for any number of threads. Errors are PosencError.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: Optional[float] = None,
        tls: bool = False,
        tls_ca: Optional[str] = None,
        tls_cert: Optional[str] = None,
        tls_key: Optional[str] = None,
        tls_server_name: Optional[str] = None,
        token: Optional[str] = None,
        token_file: Optional[str] = None,
        max_message_bytes: int = 512 << 20,
        stream_above_bytes: Optional[int] = None,
        bulk_channels: int = 4,
        service_config: Optional[str] = None,
    ) -> None:
        options = Options(
            target=target,
            timeout=timeout,
            tls=tls,
            tls_ca=tls_ca,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_server_name=tls_server_name,
            token=token,
            token_file=token_file,
            max_message_bytes=max_message_bytes,
            stream_above_bytes=stream_above_bytes,
            bulk_channels=bulk_channels,
            service_config=service_config,
        )
        self._connections = Connections(options, grpc)
        self._memory = self._connections.limits, self._connections.regions
        self._runner = Runner(self._connections, target)

    @classmethod
    def from_env(cls, **options: Any) -> Client:
        """Makes a client from POSENC_SERVER, POSENC_TLS, POSENC_TLS_CA, ..._CERT,
        ..._KEY, ..._SERVER_NAME, POSENC_TOKEN and POSENC_TOKEN_FILE; `options`
        win."""
        return cls(**{**from_environment(), **options})

    def close(self) -> None:
        """Ends running calls, and closes the connections."""
        for channel in self._connections.take_all():
            channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def _run(self, steps: Any, options: CallOptions) -> Any:
        return self._runner.run(steps, Call(**options))

    def get_server_info(self, **options: Unpack[CallOptions]) -> m.GetServerInfoResponse:
        """Returns version, instruction set, limits, presets."""
        return self._run(methods.get_server_info(), options)  # type: ignore[no-any-return]

    def shared_region(
        self,
        bytes: int,
        *,
        name: Optional[str] = None,
        directory: Optional[str] = None,
        **options: Unpack[CallOptions],
    ) -> SharedRegion:
        """Makes memory that the server maps, too: calls with views of it carry no
        tensors.

            with client.shared_region(q_bytes) as region:
                q = region.array((1, 4096, 32, 128), "float16")
                client.apply_rope(q, rope="llama-3.1-8b", positions=0, layout="bshd", out=q)

        name: of the file; by default the server's prefix and random digits.
        directory: this process's path of the server's directory, if it differs.
        If the server shares no memory with this client, the calls send bytes.
        The file is removed when the region or the client is closed. A call in
        place is never sent twice: after an error that says so, write q again.
        """
        steps = methods.shared_region(self._connections.regions, bytes, name, directory)
        return self._run(steps, options)  # type: ignore[no-any-return]

    def resolve(
        self,
        rope: Any,
        *,
        head_dim: int = 0,
        compare_with: Any = None,
        profile: Any = None,
        profile_version: Optional[str] = None,
        part: Any = None,
        layer_type: Optional[str] = None,
        layer_index: Optional[int] = None,
        sequence_length: Optional[int] = None,
        length: int = 0,
        **options: Unpack[CallOptions],
    ) -> m.ResolveRopeResponse:
        """Returns what a preset, a config.json or a specification means: the
        complete spec, inv_freq, amplitude, and every assumption by name. With
        `compare_with` also how the two differ, in scores up to distance `length`."""
        steps = methods.resolve(
            rope,
            head_dim,
            compare_with,
            length,
            profile=profile,
            profile_version=profile_version,
            part=part,
            layer_type=layer_type,
            layer_index=layer_index,
            sequence_length=sequence_length,
        )
        return self._run(steps, options)  # type: ignore[no-any-return]

    def rope(
        self,
        rope: Any,
        *,
        head_dim: int = 0,
        profile: Any = None,
        profile_version: Optional[str] = None,
        part: Any = None,
        layer_type: Optional[str] = None,
        layer_index: Optional[int] = None,
        sequence_length: Optional[int] = None,
        **options: Unpack[CallOptions],
    ) -> Rope:
        """Resolves a rope once, for many calls."""
        chosen = {
            "profile": profile,
            "profile_version": profile_version,
            "part": part,
            "layer_type": layer_type,
            "layer_index": layer_index,
        }
        resolved = self.resolve(rope, head_dim=head_dim, sequence_length=sequence_length, **chosen, **options)
        return Rope(self, resolved, rope_source(rope, sequence_length=sequence_length).sequence_length)

    def apply_rope(
        self,
        q: Any,
        k: Any = None,
        *,
        rope: Any,
        positions: Any,
        layout: Any,
        direction: Any = None,
        query_scale: Any = None,
        saturation: Any = None,
        out: Any = None,
        **options: Unpack[CallOptions],
    ) -> tuple[Any, Any]:
        """Rotates q, k or both: [B, S, H, D] in the order of `layout`, or [T, H, D].

        rope: a preset's name, a path, a dict or text of a config.json, a dict of
            a specification ({"pairing": "half_split", "rope_theta": 500000}), a
            transformers configuration, or a result of client.rope().
        positions: an int is the first token's position; an array or a list has
            one for each token; {"starts": [0, 7]} has each sequence's first,
            and posenc.packed(cu_seqlens) is for "thd".
        layout: "bshd", "bhsd", "sbhd" or "thd".
        direction: "inverse" undoes a rotation, "adjoint" is its gradient.
        saturation: needed for FP8. Results past its largest number become that
            number ("finite"), or infinity ("none"; in E4M3 NaN).
        out: the results' memory, (q, k), or one array; may be q and k themselves.

        Returns (q, k); a tensor that was not given is None.
        """
        steps = methods.apply_rope(
            *self._memory, q, k, rope, positions, layout, direction, query_scale, saturation, out
        )
        return self._run(steps, options)  # type: ignore[no-any-return]

    def reposition(
        self,
        k: Any,
        *,
        rope: Any,
        layout: Any,
        new_rope: Any = None,
        old_positions: Any = None,
        new_positions: Any = None,
        shift: Any = None,
        saturation: Any = None,
        out: Any = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Moves rotated keys to other positions, or from one encoding to another.

        Takes either `shift` (an int, or one for each token), or old_positions
        and new_positions, as in apply_rope. rope: the encoding that rotated k.
        FP8 needs `saturation`, as in apply_rope.
        """
        steps = methods.reposition(
            *self._memory, k, rope, new_rope, old_positions, new_positions, shift, layout, saturation, out
        )
        return self._run(steps, options)

    def build_table(
        self,
        *,
        rope: Any = None,
        rows: Optional[int] = None,
        absolute: Any = None,
        positions: Any = None,
        layout: Any = None,
        dtype: Any = None,
        for_keys: bool = False,
        out: Any = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Returns rows of a table: (cos, sin) of a rope, or one array of an absolute
        encoding.

        positions: by default 0. layout: "half" (default), "duplicated",
        "pair_repeated", or "complex", which is one array. dtype: a name,
        numpy's dtype or torch's, by default float32; torch's gives tensors of
        torch.
        out: the results' memory: (cos, sin), or the one array.
        """
        steps = build_table(*self._memory, rope, absolute, rows, positions, layout, dtype, for_keys, out)
        return self._run(steps, options)

    def build_bias(
        self,
        bias: Any,
        *,
        query_length: int,
        key_length: int,
        query_start: int = 0,
        key_start: int = 0,
        query_tile: int = 0,
        key_tile: int = 0,
        dtype: Any = None,
        causal: bool = False,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Returns an attention bias, [heads, query_length, key_length]: {"alibi": {"heads": 8}}."""
        steps = methods.build_bias(
            bias,
            dtype,
            causal,
            query_length=query_length,
            key_length=key_length,
            query_start=query_start,
            key_start=key_start,
            query_tile=query_tile,
            key_tile=key_tile,
        )
        return self._run(steps, options)

    def build_positions(self, scheme: Any, **options: Unpack[CallOptions]) -> m.BuildPositionsResponse:
        """Returns position ids for {"packed": {"lengths": [3, 5]}}, or
        "padded", "context_parallel", "grid", "multimodal", "attention_sinks",
        "vision".

        Pass the answer's `positions` to other calls unchanged.
        """
        return self._run(methods.build_positions(scheme), options)  # type: ignore[no-any-return]

    def add_encoding(
        self,
        x: Any,
        *,
        encoding: Any,
        positions: Any = None,
        combination: Any = None,
        x_scale: Optional[float] = None,
        out: Any = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Adds an absolute encoding to x, [B, S, dim], [S, dim] or [T, dim]:
        {"sinusoidal": {"dim": 512, "order": "interleaved"}}."""
        steps = methods.add_encoding(*self._memory, x, encoding, positions, combination, x_scale, out)
        return self._run(steps, options)

    def score_relative(
        self,
        q: Any,
        k: Any,
        *,
        score: Any,
        query_start: int = 0,
        key_start: int = 0,
        dtype: Any = None,
        out: Any = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Returns attention scores of encodings that act inside attention: q [B,
        H, Sq, D] and k [B, H, Sk, D] give [B, H, Sq, Sk], not divided by
        sqrt(D)."""
        steps = methods.score_relative(*self._memory, q, k, score, query_start, key_start, dtype, out)
        return self._run(steps, options)

    def convert_pairing(
        self,
        weight: Any,
        *,
        old_pairing: Any,
        new_pairing: Any,
        heads: int,
        rotary_dim: int = 0,
        slice: Any = None,
        out: Any = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Reorders the rows of a projection's weight or bias, [heads * head_dim, ...],
        so that a checkpoint for one pairing works with the other."""
        steps = methods.convert_pairing(*self._memory, weight, old_pairing, new_pairing, heads, rotary_dim, slice, out)
        return self._run(steps, options)

    def analyze_rope(
        self,
        rope: Any,
        *,
        head_dim: int = 0,
        max_distance: int = 0,
        distance_step: int = 0,
        trained_length: int = 0,
        compare_with: Any = None,
        **options: Unpack[CallOptions],
    ) -> m.AnalyzeRopeResponse:
        """Returns wavelengths, long-term decay and similarity between positions."""
        steps = methods.analyze_rope(
            rope,
            compare_with,
            head_dim=head_dim,
            max_distance=max_distance,
            distance_step=distance_step,
            trained_length=trained_length,
        )
        return self._run(steps, options)  # type: ignore[no-any-return]

    def diagnose_rope(
        self,
        inputs: Any,
        *,
        readers: Any = (),
        length: int = 0,
        runtime: str = "",
        **options: Unpack[CallOptions],
    ) -> m.DiagnoseRopeResponse:
        """Reads all descriptions of one checkpoint as each of its readers does, and
        says which readers disagree, from which distance on, and which key fixes
        it.

        inputs: ModelDescriptions, or dicts of their fields: {"kind": "config",
        "text": ...}. readers: readers to check ("hf", "vllm"); by default all.
        """
        steps = methods.diagnose_rope(inputs, readers, length, runtime)
        return self._run(steps, options)  # type: ignore[no-any-return]


class Rope:
    """A rope that was resolved once: client.rope("config.json")."""

    def __init__(self, client: Client, resolved: m.ResolveRopeResponse, sequence_length: Optional[int]) -> None:
        self._client = client
        self.resolved = resolved
        self.spec = resolved.spec or m.RopeSpec()
        # Length-dependent scalings need the length in every call.
        self.source = m.RopeSource(spec=self.spec, sequence_length=sequence_length, head_dim=resolved.head_dim)

    def apply(
        self,
        q: Any,
        k: Any = None,
        *,
        layout: Any,
        start: Any = None,
        positions: Any = None,
        direction: Any = None,
        query_scale: Any = None,
        saturation: Any = None,
        out: Any = None,
        **options: Unpack[CallOptions],
    ) -> tuple[Any, Any]:
        """Calls Client.apply_rope(). Takes either `start`, the first token's position, or `positions`."""
        return self._client.apply_rope(
            q,
            k,
            rope=self.source,
            positions=places_of(start, positions),
            layout=layout,
            direction=direction,
            query_scale=query_scale,
            saturation=saturation,
            out=out,
            **options,
        )

    def reposition(self, k: Any, *, layout: Any, **arguments: Any) -> Any:
        """Calls Client.reposition()."""
        return self._client.reposition(k, rope=self.source, layout=layout, **arguments)

    def table(self, *, rows: Optional[int] = None, **arguments: Any) -> Any:
        """Calls Client.build_table(), and returns (cos, sin)."""
        return self._client.build_table(rope=self.source, rows=rows, **arguments)


def connect(target: str, **options: Any) -> Client:
    """Returns Client(target, ...)."""
    return Client(target, **options)


__all__ = ["CallOptions", "Client", "RotaryTable", "Rope", "connect"]
