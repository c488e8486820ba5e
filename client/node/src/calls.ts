// Makes unary requests and streams, with their metadata and deadlines.
import { randomBytes } from "node:crypto";
import { type CallOptions as GrpcOptions, Metadata } from "@grpc/grpc-js";
import { type Channel, checkNumber, type ClientOptions, openChannel } from "./connection";
import { version } from "./contract";
import { checkKeys, invalid, PosencError } from "./errors";
import { decoded, type Fields, fromMessage, methodNamed } from "./schema";
import { fromGrpc } from "./status";
import { type Frame, frame, serialize } from "./wire";

/** Options of one call. */
export interface CallOptions {
  /** Milliseconds until the whole call, also a stream, ends with DEADLINE_EXCEEDED. Default: the client's timeoutMs. */
  timeoutMs?: number;
  /** Ends the call with CANCELLED. */
  signal?: AbortSignal;
  /** The call's id in the server's log. Default: random. */
  requestId?: string;
  /** The W3C trace context, which is sent to the server. */
  traceparent?: string;
  /** Called for every received part of a tensor while applyRope or reposition uses a stream. */
  onProgress?: (bytesDone: number, bytes: number) => void;
}

/** A call. It may need several requests, which share the call's id and deadline. */
export interface Call extends CallOptions {
  requestId: string;
  /** Milliseconds since 1970; undefined if the client's timeout limits each request. */
  deadline: number | undefined;
}

/** Returns why a server does not answer, as the end of an error's text. */
export type WhyGone = () => Promise<string>;

const service = "/posenc.v1.PositionalEncodingService/";

// The deadline of calls without a limit is a year. Without a deadline, the server would set its own deadline. For a
// deadline beyond the range of gRPC's header, grpc-js throws an error that cannot be caught.
const longestDeadlineMs = 365 * 24 * 3600 * 1000;

// The longest time that Node's timers accept.
const longestTimerMs = 2 ** 31 - 1;

// The time for which a failed call waits for the server's version, which becomes a part of the error's text.
const versionTimeoutMs = 2000;

const identity = (bytes: Buffer) => bytes;

function checkVisible(option: string, value: unknown): void {
  if (typeof value === "string" && /^[\x20-\x7e]*$/.test(value)) return;
  throw invalid(option, "must be text of visible ASCII characters");
}

export class Calls {
  readonly channel: Channel;
  private readonly underWay = new Set<() => void>(); // each function ends a running request
  private isClosed = false;

  constructor(
    private readonly target: string,
    options: ClientOptions,
    private readonly whyGone: WhyGone = () => Promise.resolve(""),
  ) {
    this.channel = openChannel(target, options);
  }

  /** Ends running calls and the connections. */
  close(): void {
    this.isClosed = true;
    this.channel.retrying.close();
    this.channel.once.close();
    for (const stop of this.underWay) stop();
  }

  begin(options: CallOptions = {}): Call {
    checkKeys(options, ["timeoutMs", "signal", "requestId", "traceparent", "onProgress"], "options");
    const { requestId = randomBytes(16).toString("hex"), timeoutMs, traceparent = "" } = options;
    checkVisible("requestId", requestId);
    checkVisible("traceparent", traceparent);
    const limitMs = checkNumber("timeoutMs", timeoutMs ?? this.channel.timeoutMs);
    if (limitMs <= 0) {
      throw new PosencError(`timeoutMs: is ${limitMs}; must be above 0`, { code: "DEADLINE_EXCEEDED", requestId });
    }
    const deadline = timeoutMs === undefined ? undefined : Date.now() + Math.min(timeoutMs, longestDeadlineMs);
    return { ...options, requestId, deadline };
  }

  /** Makes a unary request and returns the decoded answer. `once`: the request must not be sent a second time. */
  async unary(name: string, sent: Frame, call: Call, once = false): Promise<object> {
    const { maxMessageBytes, timeoutMs } = this.channel;
    const { requestId } = call;
    if (sent.size > maxMessageBytes) {
      const text = `request: ${sent.size} bytes; the limit is ${maxMessageBytes}, split the batch`;
      throw new PosencError(text, { code: "RESOURCE_EXHAUSTED", reason: "MESSAGE_TOO_LARGE", requestId });
    }
    const [metadata, options] = this.start(call, sent.size, timeoutMs);
    const connection = once ? this.channel.once : this.channel.retrying;
    let forget = () => {};
    try {
      const bytes = await new Promise<Buffer>((resolve, reject) => {
        const done = (error: Error | null, answer?: Buffer) => (answer ? resolve(answer) : reject(error!));
        const path = service + name;
        const request = connection.makeUnaryRequest(path, serialize, identity, sent, metadata, options, done);
        forget = this.stoppable(() => request.cancel(), call);
      });
      return decoded(methodNamed(name).response, bytes);
    } catch (error) {
      throw await this.explained(error, name, call);
    } finally {
      forget();
    }
  }

  /** Makes a unary request and returns the answer as a plain object. */
  async plain<T>(name: string, request: Fields, call: Call): Promise<T> {
    const types = methodNamed(name);
    return fromMessage(types.response, await this.unary(name, frame(types.request, request), call)) as T;
  }

  /**
   * Yields the decoded answers of a stream, and sends messages at the same time. `largest` is the size of the largest
   * message. The client's timeout does not limit the whole stream, which may continue while it makes progress.
   */
  async *stream(
    name: string,
    messages: Iterable<Frame> | AsyncIterable<Frame>,
    largest: number,
    call: Call,
  ): AsyncGenerator<object> {
    const { retrying, timeoutMs } = this.channel;
    const [metadata, options] = this.start(call, largest, longestDeadlineMs);
    // gRPC serializes a message only after the transport has accepted the previous message. So every
    // serialized message is progress.
    let taken = () => {};
    const send = (message: Frame) => (taken(), timer?.refresh(), serialize(message));
    const stream = retrying.makeBidiStreamRequest(service + name, send, identity, metadata, options);
    const forget = this.stoppable(() => stream.cancel(), call);
    let failure: unknown;
    const fail = (error: unknown) => {
      failure ??= error;
      stream.cancel();
    };
    let isOver = false;
    const sendAll = async () => {
      for await (const message of messages) {
        if (!isOver) {
          const isTaken = new Promise<void>((resolve) => (taken = resolve));
          stream.write(message);
          await isTaken; // pipe() would request 16 more messages from the caller
        }
        if (isOver) return; // this also ends the caller's iterator
      }
      stream.end();
    };
    sendAll().catch(fail);
    stream.on("error", () => {}); // the event may also come after the last read

    // Only the time in which the client waits for the server counts as time without progress. The
    // time in which the caller makes messages or processes answers does not count.
    let isYielding = false;
    const silent = () => {
      if (isYielding || (stream.writableLength === 0 && !stream.writableEnded)) return timer?.refresh();
      const text = `the stream stood still for ${timeoutMs} ms; the target is ${this.target}`;
      return fail(new PosencError(text, { code: "DEADLINE_EXCEEDED", requestId: call.requestId }));
    };
    const timer = call.deadline === undefined ? setTimeout(silent, Math.min(timeoutMs, longestTimerMs)) : undefined;
    try {
      for await (const bytes of stream as AsyncIterable<Buffer>) {
        isYielding = true;
        yield decoded(methodNamed(name).response, bytes);
        isYielding = false;
        timer?.refresh();
      }
      if (failure) throw failure as Error;
    } catch (error) {
      throw await this.explained(failure ?? error, name, call);
    } finally {
      clearTimeout(timer);
      isOver = true;
      taken();
      forget();
      stream.cancel();
    }
  }

  /** Returns the metadata and the options of a request. */
  private start(call: Call, messageBytes: number, timeoutMs: number): [Metadata, GrpcOptions] {
    const { requestId, traceparent, signal } = call;
    if (signal?.aborted) throw aborted(call);
    if (this.isClosed)
      throw new PosencError("the client is closed; make another one", { code: "CANCELLED", requestId });
    const metadata = new Metadata();
    metadata.set("x-request-id", requestId);
    metadata.set("posenc-message-bytes", String(messageBytes));
    if (traceparent !== undefined) metadata.set("traceparent", traceparent);
    const token = this.channel.token?.();
    if (token !== undefined) metadata.set("authorization", `Bearer ${token}`);
    const deadline = call.deadline ?? Date.now() + Math.min(timeoutMs, longestDeadlineMs);
    return [metadata, { deadline }];
  }

  /** Makes close() and the caller's signal stop a request, until the returned function is called. */
  private stoppable(stop: () => void, { signal }: Call): () => void {
    this.underWay.add(stop);
    signal?.addEventListener("abort", stop);
    return () => {
      this.underWay.delete(stop);
      signal?.removeEventListener("abort", stop);
    };
  }

  private async explained(error: unknown, name: string, call: Call): Promise<unknown> {
    const { requestId, signal } = call;
    if (signal?.aborted) return aborted(call);
    if (this.isClosed) {
      return new PosencError("the client was closed during the call", { code: "CANCELLED", requestId, cause: error });
    }
    const explained = fromGrpc(error, this.target, requestId);
    // If the error has a reason, the server's text already names what the server does not know.
    if (!(explained instanceof PosencError) || explained.reason !== "") return explained;
    if (explained.code === "UNAVAILABLE") explained.message += await this.whyGone();
    if (explained.code !== "UNIMPLEMENTED" || name === "GetServerInfo") return explained;
    const deadline = Math.min(call.deadline ?? Infinity, Date.now() + versionTimeoutMs);
    const info = this.plain<{ version: string }>("GetServerInfo", {}, { ...call, deadline });
    const is = (await info.catch(() => undefined))?.version || "unknown";
    explained.message += `; the server is of another version (${is}) than this client (${version}), and does not know ${name} or what it asks for`;
    return explained;
  }
}

function aborted({ requestId, signal }: Call): PosencError {
  return new PosencError("the call was aborted", { code: "CANCELLED", requestId, cause: signal?.reason });
}
