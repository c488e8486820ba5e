"""Raw HTTP/2 (RFC 9113) as far as attacks and slow peers need it.

This is not a complete client: it sends any bytes, also wrong ones, and reads frames
without checking them. It sends headers as plain literals. The server's headers are plain
literals, too, because the settings forbid a dynamic table, and gRPC's server does not use
Huffman codes.
"""
import socket
import ssl
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM = ACK = 1
END_HEADERS = 4
PADDED = 8
WITH_PRIORITY = 32

SERVICE = "/posenc.v1.PositionalEncodingService/"


def frame(kind, flags=0, stream=0, payload=b"", length=None):
    """Returns a frame; `length`, if given, is a false length of the payload."""
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def setting(key, value):
    return struct.pack(">HI", key, value)


def settings(*pairs):
    return frame(SETTINGS, 0, 0, b"".join(setting(key, value) for key, value in pairs))


def integer(value, bits=7, first=0):
    """Encodes an integer for header compression, with a prefix of `bits`
    bits."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((first | value,))
    out = bytearray((first | most,))
    value -= most
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value):
    raw = value.encode() if isinstance(value, str) else value
    return integer(len(raw)) + raw


def header(name, value):
    return b"\0" + text(name) + text(value)


def block(path, timeout=None, more=(), without=()):
    """Returns the headers of a gRPC call. Pairs in `more` come last; names in
    `without` are left out."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path),
              (":authority", "posenc"), ("te", "trailers"),
              ("content-type", "application/grpc")]
    if timeout:
        fields.append(("grpc-timeout", timeout))
    return b"".join(header(name, value) for name, value in [*fields, *more]
                    if name not in without)


def message(body=b"", compressed=0):
    return struct.pack(">BI", compressed, len(body)) + body


def connect(address, timeout=10.0, source=None, context=None, server_name="localhost"):
    """Returns a socket that is connected to unix:/path or host:port, with TLS if there is a
    context."""
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(timeout)
        sock.connect(address[5:])
    else:
        host, port = address.rsplit(":", 1)
        sock = socket.socket(socket.AF_INET)
        sock.settimeout(timeout)
        if source:
            sock.bind((source, 0))
        sock.connect((host, int(port)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        return sock
    return context.wrap_socket(sock, server_hostname=server_name)


class Frame:
    def __init__(self, kind, flags, stream, payload):
        self.kind, self.flags, self.stream, self.payload = kind, flags, stream, payload


class Connection:
    """A connection that has sent its preface, and whose settings forbid
    dynamic tables. `window` is each stream's initial window."""

    def __init__(self, address, window=0x7fffffff, grow=True, preface=True, **options):
        self.sock = connect(address, **options)
        self.buffer = b""
        self.next_stream = 1
        # The server's windows: of the connection (0) and of each stream.
        self.windows = {0: 65535}
        self.initial_window = 65535
        self.closed = False
        self.goaway = False
        self.on_goaway = None
        if preface:
            first = PREFACE + settings((1, 0), (2, 0), (4, window))
            if grow:
                first += frame(WINDOW, 0, 0, struct.pack(">I", 0x7fffffff - 65535))
            self.sock.sendall(first)

    def close(self):
        self.closed = True
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, raw):
        """Sends bytes. Returns False if the peer has closed the
        connection."""
        try:
            self.sock.sendall(raw)
            return True
        except (OSError, ssl.SSLError):
            self.closed = True
            return False

    def headers(self, path, end=False, timeout=None, more=()):
        """Starts a call; returns its stream."""
        stream = self.next_stream
        self.next_stream += 2
        self.send(frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream,
                        block(path, timeout, more)))
        return stream

    def data(self, stream, payload, end=True):
        for at in range(0, max(len(payload), 1), 16384):
            part = payload[at:at + 16384]
            last = at + 16384 >= len(payload)
            self.send(frame(DATA, END_STREAM if end and last else 0, stream, part))

    def patient_data(self, stream, payload, timeout=10.0, end=True):
        """Sends DATA when the server's windows allow it. Returns False if the stream or
        the time ended early; the frame that ended the stream is in `last`."""
        until, at, self.last = time.monotonic() + timeout, 0, None
        while at < len(payload) and time.monotonic() < until and not self.closed:
            room = min(self.windows[0], self.windows.get(stream, self.initial_window), 16384)
            if room <= 0:
                got = self.read(0.5)
                if got and got.stream == stream and (got.kind == RST or got.flags & END_STREAM
                                                     and got.kind == HEADERS):
                    self.last = got
                    return False
                continue
            part = payload[at:at + room]
            at += len(part)
            self.windows[0] -= len(part)
            self.windows[stream] = self.windows.get(stream, self.initial_window) - len(part)
            last = end and at == len(payload)
            self.send(frame(DATA, END_STREAM if last else 0, stream, part))
        return at == len(payload)

    def read(self, timeout):
        """Returns the next frame; None after `timeout` seconds, or if the
        peer has closed (then `closed` is set). Answers pings and settings."""
        end = time.monotonic() + timeout
        while True:
            if len(self.buffer) >= 9:
                size = int.from_bytes(self.buffer[:3], "big")
                if len(self.buffer) >= 9 + size:
                    return self._take(size)
            left = end - time.monotonic()
            if left <= 0 or self.closed:
                return None
            try:
                self.sock.settimeout(left)
                more = self.sock.recv(1 << 20)
            except (socket.timeout, ssl.SSLWantReadError):
                return None
            except OSError:
                more = b""
            if not more:
                self.closed = True
                return None
            self.buffer += more

    def _take(self, size):
        raw = self.buffer[:9 + size]
        self.buffer = self.buffer[9 + size:]
        got = Frame(raw[3], raw[4], int.from_bytes(raw[5:9], "big") & 0x7fffffff, raw[9:])
        self.sock.settimeout(10)
        if got.kind == WINDOW:
            more = int.from_bytes(got.payload, "big")
            self.windows[got.stream] = self.windows.get(got.stream, self.initial_window) + more
        elif got.kind == SETTINGS and not got.flags & ACK:
            for key, value in struct.iter_unpack(">HI", got.payload):
                if key == 4:
                    for stream in self.windows:
                        self.windows[stream] += value - self.initial_window if stream else 0
                    self.initial_window = value
            self.send(frame(SETTINGS, ACK))
        elif got.kind == PING and not got.flags & ACK:
            self.send(frame(PING, ACK, 0, got.payload))
        elif got.kind == GOAWAY:
            self.goaway = True
        return got

    def finish(self, stream, timeout=10.0):
        """Waits for the stream's end. Returns (gRPC status or None, bytes of
        DATA, HTTP/2 error code of a reset or None)."""
        status, data = None, b""
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            got = self.read(left)
            if got is None:
                break
            if got.stream != stream:
                continue
            if got.kind == DATA:
                data += got.payload
            if got.kind in (HEADERS, CONTINUATION):
                found = status_of(got.payload)
                status = found if found is not None else status
            if got.kind == RST:
                return status, data, int.from_bytes(got.payload, "big")
            if got.kind in (DATA, HEADERS) and got.flags & END_STREAM:
                return status, data, None
        return status, data, None

    def call(self, path, body=b"", timeout=10.0, more=()):
        """Makes a whole unary call. Returns its gRPC status, or None without one."""
        stream = self.headers(path, more=more, timeout=f"{max(1, int(timeout * 1000))}m")
        self.data(stream, message(body))
        return self.finish(stream, timeout + 1)[0]


def status_of(headers):
    """Returns the grpc-status in a block of headers, or None."""
    at = headers.find(b"grpc-status")
    if at < 0:
        return None
    size = headers[at + 11]
    try:
        return int(headers[at + 12:at + 12 + size])
    except ValueError:
        return None
