// Makes single calls: metadata, deadline and end, with one message each way or as a stream.
import { randomBytes } from "node:crypto";
import { Metadata, type CallOptions as GrpcOptions, type ClientDuplexStream } from "@grpc/grpc-js";
import type protobuf from "protobufjs";
import { Channels, checkKeys, clientOptions, type ClientOptions } from "./channels";
import { invalid, PosencError } from "./errors";
import { decoded, fromMessage, type Message, methodNamed } from "./schema";
import { fromGrpc } from "./status";
import { type Frame, frame, serialize } from "./wire";
import { version } from "./version";

/** Options of one call. */
export interface CallOptions {
  /** Milliseconds until the whole call, also a stream, ends as DEADLINE_EXCEEDED. Default: the client's timeoutMs. */
  timeoutMs?: number;
  /** Ends the call as CANCELLED. */
  signal?: AbortSignal;
  /** The call's id in the server's log. Default: random. */
  requestId?: string;
  /** W3C trace context, which the server passes on. */
  traceparent?: string;
  /** Called after every chunk while applyRope, reposition or buildTable moves a tensor through a stream. */
  onProgress?: (bytesDone: number, bytes: number) => void;
}

const callOptions = ["timeoutMs", "signal", "requestId", "traceparent", "onProgress"];

const service = "/posenc.v1.PositionalEncodingService/";

// The largest message of protobuf: 2 GiB - 1.
const maxProtoBytes = 2 ** 31 - 1;

// Smaller messages gain nothing from a separate connection.
const bulkBytes = 64 << 10;

// The server recommends 4 MiB. With chunks of 1 MiB, grpc-js took a quarter less time for 64 MiB: their buffers are
// reused while they are still in a processor's cache.
const maxChunkBytes = (1 << 20) - (64 << 10);

// Bytes that a message may have beside a chunk: settings, positions, framing.
const messageOverhead = 64 << 10;

// Chunks that are sent ahead of their answers: at a time, one is sent, one is computed, one is received and one is
// processed.
const streamWindow = 4;

// Deadline of a stream whose only limit is progress. Without a deadline the server would set its default.
const longestStreamMs = 24 * 3600 * 1000;

// A year. For a deadline beyond the wire's range, grpc-js throws an error that cannot be caught.
const longestDeadlineMs = 365 * 24 * 3600 * 1000;

// The longest time of Node's timers.
const longestTimerMs = 2 ** 31 - 1;

// Longest wait for the server's version, for the text of an error.
const versionTimeoutMs = 2000;

const identity = (bytes: Buffer) => bytes;

/**
 * Returns the options of a call that may make several requests: timeoutMs is the remaining time of the call's own when
 * it is read. The client's timeout bounds each request.
 */
export function forRequests(options: CallOptions = {}): CallOptions {
  checkKeys(options, callOptions, "options.");
  const { timeoutMs } = options;
  if (typeof timeoutMs !== "number" || !(timeoutMs > 0)) return options;
  const end = performance.now() + timeoutMs;
  return { ...options, get timeoutMs() { return Math.max(end - performance.now(), 1e-3); } };
}

interface Begun {
  requestId: string;
  metadata: Metadata;
  timeoutMs: number;
  grpc: GrpcOptions;
}

export class Calls {
  readonly channels: Channels;
  readonly maxMessageBytes: number;
  readonly streamAboveBytes: number;
  private readonly timeoutMs: number;
  private knownChunkBytes?: number;
  private readonly underWay = new Set<() => void>(); // ends one call each
  private closed = false;

  constructor(target: string, options: ClientOptions) {
    checkKeys(options, clientOptions);
    this.timeoutMs = number("timeoutMs", options.timeoutMs ?? 60_000);
    this.maxMessageBytes = Math.min(number("maxMessageBytes", options.maxMessageBytes ?? 512 << 20), maxProtoBytes);
    this.streamAboveBytes = Math.min(number("streamAboveBytes", options.streamAboveBytes ?? 8 << 20), this.maxMessageBytes);
    this.channels = new Channels(target, options, this.maxMessageBytes);
  }

  /** Ends running calls and the connections. */
  close(): void {
    this.closed = true;
    this.channels.close();
    for (const stop of this.underWay) stop();
  }

  /**
   * Returns the method's decoded answer. `tensors` names the request's tensor fields. `once`: the call must not be sent
   * a second time.
   */
  async unary(name: string, request: Message, tensors: readonly string[] = [], options: CallOptions = {}, once = false): Promise<protobuf.Message> {
    const { request: type, response } = methodNamed(name);
    const sent = frame(type, request, tensors);
    if (sent.size > this.maxMessageBytes) {
      const text = `request: ${sent.size} bytes; the limit is ${this.maxMessageBytes}, split the batch`;
      throw new PosencError(text, { code: "RESOURCE_EXHAUSTED", reason: "MESSAGE_TOO_LARGE" });
    }
    const call = this.begin(options);
    call.metadata.set("posenc-message-bytes", String(sent.size));
    // A small request for a table may have a large answer.
    const large = sent.size >= bulkBytes || name === "BuildTable";
    const channel = once ? this.channels.once() : large ? this.channels.bulk() : this.channels.small();
    let forget = () => {};
    try {
      const bytes = await new Promise<Buffer>((resolve, reject) => {
        const grpc = channel.makeUnaryRequest(service + name, serialize, identity, sent, call.metadata, call.grpc, (error, answer) =>
          error ? reject(error) : resolve(answer!),
        );
        forget = this.stoppable(() => grpc.cancel(), options.signal);
      });
      return decoded(response, bytes);
    } catch (error) {
      throw await this.explain(error, name, call.requestId, options);
    } finally {
      forget();
    }
  }

  /** Returns the plain object of a method's answer. */
  async plain<T>(name: string, request: Message, options?: CallOptions): Promise<T> {
    return fromMessage(methodNamed(name).response, await this.unary(name, request, [], options)) as T;
  }

  /**
   * Yields the decoded answers of a stream. Messages are sent while answers are received. `oneToOne`: each message has
   * one answer; a few are sent ahead. `announced` is the size of the largest message, if known.
   */
  async *stream(
    name: string,
    messages: Iterable<Frame> | AsyncIterable<Frame>,
    { announced, oneToOne }: { announced?: number; oneToOne: boolean },
    options: CallOptions = {},
  ): AsyncGenerator<protobuf.Message> {
    const { response } = methodNamed(name);
    const begun = this.begin(options);
    // The client's timeout does not bound the whole: a stream may take as long as it makes progress.
    const patienceMs = options.timeoutMs === undefined ? this.timeoutMs : Infinity;
    if (options.timeoutMs === undefined) begun.grpc.deadline = Date.now() + longestStreamMs;
    if (announced !== undefined) begun.metadata.set("posenc-message-bytes", String(announced));
    const stream = this.channels.bulk().makeBidiStreamRequest(service + name, serialize, identity, begun.metadata, begun.grpc);
    let failure: unknown;
    const fail = (error: unknown) => {
      failure ??= error;
      stream.cancel();
    };
    const forget = this.stoppable(() => stream.cancel(), options.signal);
    const silence = new Silence(patienceMs, () =>
      fail(new PosencError(`the stream stood still for ${patienceMs} ms; the target is ${this.channels.target}`, { code: "DEADLINE_EXCEEDED", requestId: begun.requestId })),
    );
    const writer = new Writer(stream, oneToOne ? streamWindow : Infinity, silence);
    writer.run(messages).catch(fail);
    try {
      for await (const bytes of stream) {
        silence.pause();
        if (oneToOne && writer.waiting === 0) throw new PosencError("the stream has more answers than messages", { code: "INTERNAL", requestId: begun.requestId });
        yield decoded(response, bytes);
        writer.answered();
      }
      if (failure) throw failure;
      if (oneToOne && writer.waiting > 0) throw new PosencError("the stream ended before all responses", { code: "INTERNAL" });
    } catch (error) {
      throw await this.explain(failure ?? error, name, begun.requestId, options);
    } finally {
      silence.pause();
      writer.close();
      forget();
      stream.cancel();
    }
  }

  /** Returns the size of a stream's chunks: the server's recommendation, or less. Fails only if the deadline passes: the stream would wait for as long again. */
  async chunkBytes(options: CallOptions): Promise<number> {
    if (this.knownChunkBytes !== undefined) return this.knownChunkBytes;
    const { signal, timeoutMs } = options;
    const info = this.plain<{ limits?: { streamChunkBytes: number } }>("GetServerInfo", {}, { signal, timeoutMs });
    // A server that does not answer now may answer the next call.
    const wanted = await info.then((answer) => answer.limits?.streamChunkBytes, (error: PosencError) => {
      if (error.code === "DEADLINE_EXCEEDED") throw error;
      return undefined;
    });
    const bytes = Math.max(1, Math.min(wanted || maxChunkBytes, maxChunkBytes, this.maxMessageBytes - messageOverhead));
    if (wanted) this.knownChunkBytes = bytes;
    return bytes;
  }

  /** Makes close() and the caller's signal stop a call, until the returned function is called. */
  private stoppable(stop: () => void, signal?: AbortSignal): () => void {
    this.underWay.add(stop);
    signal?.addEventListener("abort", stop);
    return () => {
      this.underWay.delete(stop);
      signal?.removeEventListener("abort", stop);
    };
  }

  private begin(options: CallOptions): Begun {
    checkKeys(options, callOptions, "options.");
    const requestId = options.requestId ?? randomBytes(16).toString("hex");
    const timeoutMs = number("timeoutMs", options.timeoutMs ?? this.timeoutMs);
    if (timeoutMs <= 0) throw new PosencError(`timeoutMs: is ${timeoutMs}; must be above 0`, { code: "DEADLINE_EXCEEDED", requestId });
    if (options.signal !== undefined && typeof options.signal?.addEventListener !== "function") throw invalid("signal", "must be an AbortSignal");
    if (options.onProgress !== undefined && typeof options.onProgress !== "function") throw invalid("onProgress", "must be a function");
    if (options.signal?.aborted) throw new PosencError("the call was aborted", { code: "CANCELLED", requestId, cause: options.signal.reason });
    const metadata = new Metadata();
    metadata.set("x-request-id", visible("requestId", requestId));
    if (options.traceparent !== undefined) metadata.set("traceparent", visible("traceparent", options.traceparent));
    const token = this.channels.bearer();
    if (token !== undefined) metadata.set("authorization", `Bearer ${token}`);
    return { requestId, metadata, timeoutMs, grpc: { deadline: Date.now() + Math.min(timeoutMs, longestDeadlineMs) } };
  }

  private async explain(error: unknown, name: string, requestId: string, options: CallOptions): Promise<unknown> {
    if (options.signal?.aborted) return new PosencError("the call was aborted", { code: "CANCELLED", requestId, cause: options.signal.reason });
    if (this.closed) return new PosencError("the client was closed during the call", { code: "CANCELLED", requestId, cause: error });
    const explained = fromGrpc(error, this.channels.target, requestId);
    if (!(explained instanceof PosencError) || explained.code !== "UNIMPLEMENTED" || name === "GetServerInfo") return explained;
    // The server has already named the field that it does not know, or the reason.
    if (explained.reason !== "") return explained;
    const timeoutMs = Math.min(versionTimeoutMs, options.timeoutMs ?? this.timeoutMs);
    const info = await this.plain<{ version: string }>("GetServerInfo", {}, { signal: options.signal, timeoutMs }).catch(() => undefined);
    explained.message += `; the server is of another version (${info?.version || "unknown"}) than this client (${version}), and does not know ${name} or what it asks for`;
    return explained;
  }
}

function number(option: string, value: unknown): number {
  if (typeof value !== "number" || Number.isNaN(value)) throw invalid(option, "must be a number");
  return value;
}

function visible(option: string, value: unknown): string {
  if (typeof value !== "string" || !/^[\x20-\x7e]*$/.test(value)) throw invalid(option, "must be text of visible ASCII characters");
  return value;
}

/** Calls back if the server is silent for too long. */
class Silence {
  private timer?: NodeJS.Timeout;

  constructor(
    private readonly patienceMs: number,
    private readonly onSilence: () => void,
  ) {}

  wait(): void {
    this.pause();
    if (this.patienceMs <= longestTimerMs) this.timer = setTimeout(this.onSilence, this.patienceMs);
  }

  pause(): void {
    clearTimeout(this.timer);
  }
}

/** Writes messages to a stream, at most `window` ahead of the answers. */
class Writer {
  waiting = 0; // messages without an answer
  private wake = () => {}; // there is an answer
  private abandon = () => {}; // ends the wait for the write
  private closed = false;

  constructor(
    private readonly stream: ClientDuplexStream<Frame, Buffer>,
    private readonly window: number,
    private readonly silence: Silence,
  ) {}

  async run(messages: Iterable<Frame> | AsyncIterable<Frame>): Promise<void> {
    for await (const message of messages) {
      while (!this.closed && this.waiting >= this.window) await new Promise<void>((resolve) => (this.wake = resolve));
      if (this.closed) return;
      ++this.waiting;
      this.silence.wait();
      // The next message is made after the transport has taken this one.
      await new Promise<void>((resolve) => {
        this.abandon = resolve;
        this.stream.write(message, () => resolve());
      });
    }
    this.silence.wait();
    this.stream.end();
  }

  answered(): void {
    --this.waiting;
    if (this.waiting > 0 || this.stream.writableEnded) this.silence.wait();
    this.wake();
  }

  close(): void {
    this.closed = true;
    this.wake();
    this.abandon();
  }
}
