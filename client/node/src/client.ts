import type * as given from "./arguments";
import { ropeSource, withMovement, withPositions, withRopes } from "./arguments";
import { type Call, type CallOptions, Calls } from "./calls";
import type { ClientOptions } from "./connection";
import { checkKeys, checkObject, falseAnswer, invalid, PosencError, withoutTable } from "./errors";
import type * as messages from "./messages";
import { describe, type Fields, fromMessage, methodNamed, toMessage } from "./schema";
import { isRefused, type RegionOptions, Regions, type SharedRegion, SharedTensor, withAdvice } from "./shared";
import { isTooLarge } from "./status";
import { Assembly, chunkBytesFor, rotateAsStream, rotatedBytes, split, splitWhole } from "./streams";
import { describeTable, rowAxisOf } from "./tables";
import { bytesOf, checkMemory, checkOut, type Described, sizeOf, Tensor, type Wanted } from "./tensor";
import { frame } from "./wire";

/** Rotated tensors, with the shapes and types of the sent ones. */
export interface Rotated {
  q?: Tensor;
  k?: Tensor;
}

/** Bytes of tensors, cut between any two elements. */
export type Chunks = Iterable<ArrayBufferView> | AsyncIterable<ArrayBufferView>;

/** A call whose tensors may lie in a shared region. */
interface TensorCall {
  /** The tensors that it sends. */
  sent: string[];
  /** The tensors that it gives; undefined if only the server can describe one. */
  results: (request: Fields) => Record<string, Described | undefined>;
}

const tensorCalls: Record<string, TensorCall> = {
  ApplyRope: {
    sent: ["q", "k"],
    results: ({ q, k }) => ({ ...(q ? { q: describe(q) } : {}), ...(k ? { k: describe(k) } : {}) }),
  },
  Reposition: { sent: ["k"], results: ({ k }) => ({ k: describe(k) }) },
  // Only the server knows the size of a concatenation (COMBINATION_CONCATENATE).
  AddEncoding: { sent: ["x"], results: ({ x, combination }) => ({ x: combination === 3 ? undefined : describe(x) }) },
  ScoreRelative: { sent: ["q", "k"], results: (request) => ({ scores: describeScores(request) }) },
  ConvertPairing: { sent: ["weight"], results: ({ weight }) => ({ weight: describe(weight) }) },
  BuildTable: { sent: [], results: describeTable },
};

function describeScores({ q, k, dtype }: Fields): Described | undefined {
  const [queries, keys, wanted] = [describe(q), describe(k), describe({ dtype })];
  if (queries?.shape.length !== 4 || keys?.shape.length !== 4) return undefined; // the server refuses it
  const byInput = queries.dtype === "float64" ? "float64" : "float32";
  return { dtype: dtype ? wanted!.dtype : byInput, shape: [...queries.shape.slice(0, 3), keys.shape[2]] };
}

/** The bytes that a caller sends through a stream. */
async function* bytesIn(chunks: Chunks): AsyncGenerator<Uint8Array> {
  const given = chunks as Partial<Iterable<unknown> & AsyncIterable<unknown>> | undefined | null;
  if (typeof (given?.[Symbol.asyncIterator] ?? given?.[Symbol.iterator]) !== "function") {
    throw invalid("chunks", "must be an array, or what `for await` takes");
  }
  let index = 0;
  for await (const chunk of chunks) {
    if (!ArrayBuffer.isView(chunk)) throw invalid(`chunks[${index}]`, "must be a typed array");
    ++index;
    yield bytesOf(chunk);
  }
}

/**
 * A client of one or several servers at a gRPC target. It connects at the first call. Every call may end with a
 * PosencError.
 */
export class Client {
  private readonly calls: Calls;
  private readonly regions = new Regions();

  constructor(
    readonly target: string,
    options: ClientOptions = {},
  ) {
    this.calls = new Calls(target, options);
  }

  /** Resolves an encoding once, for many short calls. */
  async rope(rope: given.RopeArgument, options?: CallOptions): Promise<Rope> {
    const resolved = await this.resolveRope({ rope }, options).catch((error: unknown) => {
      // A specification without rotary_dim rotates whole heads, whose width only the tensors show.
      const { field, reason } = error as Partial<PosencError>;
      if (field !== "rope.spec.rotary_dim" || reason !== "FIELD_REQUIRED") throw error;
      return undefined;
    });
    const known = resolved?.spec && { spec: resolved.spec, headDim: resolved.headDim };
    return new Rope(this, (known ?? (await ropeSource(rope))) as given.RopeArgument, resolved);
  }

  /** Returns version, instruction set, limits, presets and dtypes. */
  async getServerInfo(options?: CallOptions): Promise<messages.GetServerInfoResponse> {
    return this.plain("GetServerInfo", {}, options);
  }

  /**
   * Makes memory that a server on this host maps, too: calls with its tensors carry no bytes. If the server shares no
   * memory with this client, calls send the bytes. The file is removed when the region or the client is closed, or the
   * program ends.
   */
  async sharedRegion(bytes: number, options: RegionOptions & CallOptions = {}): Promise<SharedRegion> {
    checkObject(options, "options");
    const { name, directory, ...call } = options;
    return this.regions.make(bytes, (await this.getServerInfo(call)).sharedMemory, { name, directory });
  }

  /** Turns a preset, a config.json or a specification into exact frequencies, and says what was assumed. */
  async resolveRope(given: given.ResolveRopeArguments, options?: CallOptions): Promise<messages.ResolveRopeResponse> {
    return this.plain("ResolveRope", await withRopes(given, "rope", "compareWith"), options);
  }

  /** Returns wavelengths, long-term decay and similarity between positions, as numbers for plots. */
  async analyzeRope(given: given.AnalyzeRopeArguments, options?: CallOptions): Promise<messages.AnalyzeRopeResponse> {
    return this.plain("AnalyzeRope", await withRopes(given, "rope", "compareWith"), options);
  }

  /** Returns which descriptions of a checkpoint, and which of their readers, disagree, from which distance on, and which key fixes it. */
  async diagnoseRope(
    given: messages.DiagnoseRopeRequest,
    options?: CallOptions,
  ): Promise<messages.DiagnoseRopeResponse> {
    return this.plain("DiagnoseRope", given, options);
  }

  /** Builds position ids for batches that are packed, padded, split over devices, or mix text and images. */
  async buildPositions(
    given: messages.BuildPositionsRequest,
    options?: CallOptions,
  ): Promise<messages.BuildPositionsResponse> {
    return this.plain("BuildPositions", given, options);
  }

  /**
   * Builds rows of a table. A table over a limit is requested again as a stream. `out` is memory for its tensors; the
   * server itself writes to a region if `rope` is resolved or absolute, so that the table's size is known.
   */
  async buildTable(given: given.BuildTableArguments, options?: CallOptions): Promise<messages.BuildTableResponse> {
    return this.tensors("BuildTable", await withRopes(withPositions(given), "rope"), options);
  }

  /** Builds a table, some rows at a time. */
  async *buildTableStream(
    given: Omit<given.BuildTableArguments, "out"> & { rowsPerMessage?: number },
    options?: CallOptions,
  ): AsyncGenerator<messages.BuildTableStreamResponse> {
    const { rowsPerMessage, ...rest } = await withRopes(withPositions(given), "rope");
    const { request } = methodNamed("BuildTableStream");
    const table = toMessage(methodNamed("BuildTable").request, rest);
    yield* this.parts(
      "BuildTableStream",
      { ...toMessage(request, { rowsPerMessage }), table },
      this.calls.begin(options),
    );
  }

  /** Builds an attention bias for a range of queries and keys, [heads, queryLength, keyLength]. */
  async buildBias(given: messages.BuildBiasRequest, options?: CallOptions): Promise<Tensor> {
    let whole: Assembly | undefined;
    for await (const { tile, wholeShape, queryStart, keyStart } of this.buildBiasTiles(given, options)) {
      if (tile === undefined) throw falseAnswer("a part of the bias has no tile");
      whole ??= this.assemblies({ bias: tile }, wholeShape, 1).bias;
      whole.place(tile, queryStart - Number(given.queryStart ?? 0), keyStart - Number(given.keyStart ?? 0));
    }
    if (whole === undefined) throw falseAnswer("the bias has no tiles");
    return whole.tensor() as Tensor;
  }

  /** Builds a bias tile by tile, in row-major order of the matrix. */
  async *buildBiasTiles(
    given: messages.BuildBiasRequest,
    options?: CallOptions,
  ): AsyncGenerator<messages.BuildBiasResponse> {
    yield* this.parts("BuildBias", toMessage(methodNamed("BuildBias").request, given), this.calls.begin(options));
  }

  /** Rotates q, k or both: [B, S, H, D] in the order of `layout`, or [T, H, D]. Large tensors go as a stream. */
  async applyRope(given: given.ApplyRopeArguments, options?: CallOptions): Promise<Rotated> {
    return this.tensors("ApplyRope", await withRopes(withPositions(given), "rope"), options);
  }

  /**
   * Rotates tensors larger than memory: sends the bytes of q, then of k, which are given with dtype and shape only, and
   * yields the rotated bytes in the same order. Both are cut anywhere, and not alike.
   */
  async *applyRopeStream(
    given: Omit<given.ApplyRopeArguments, "out">,
    chunks: Chunks,
    options?: CallOptions,
  ): AsyncGenerator<Uint8Array> {
    yield* this.bytes("ApplyRope", await withRopes(withPositions(given), "rope"), chunks, options);
  }

  /** Moves rotated keys to other positions, or from one encoding to another, in one rotation. */
  async reposition(given: given.RepositionArguments, options?: CallOptions): Promise<Tensor> {
    return this.tensor("Reposition", await withRopes(withMovement(given), "oldRope", "newRope"), "k", options);
  }

  /** Repositions caches larger than memory; see applyRopeStream. */
  async *repositionStream(
    given: Omit<given.RepositionArguments, "out">,
    chunks: Chunks,
    options?: CallOptions,
  ): AsyncGenerator<Uint8Array> {
    yield* this.bytes("Reposition", await withRopes(withMovement(given), "oldRope", "newRope"), chunks, options);
  }

  /** Combines embeddings x, [B, S, dim], [S, dim] or [T, dim], with an absolute encoding. */
  async addEncoding(given: given.AddEncodingArguments, options?: CallOptions): Promise<Tensor> {
    return this.tensor("AddEncoding", withPositions(given), "x", options);
  }

  /** Computes attention scores: q [B, H, Sq, D] and k [B, H, Sk, D] give [B, H, Sq, Sk], not divided by sqrt(D). */
  async scoreRelative(given: given.ScoreRelativeArguments, options?: CallOptions): Promise<Tensor> {
    return this.tensor("ScoreRelative", given, "scores", options);
  }

  /** Reorders the rows of a projection's weight or bias, [H * D, ...], for another pairing. */
  async convertPairing(given: given.ConvertPairingArguments, options?: CallOptions): Promise<Tensor> {
    return this.tensor("ConvertPairing", given, "weight", options);
  }

  /** Ends the connections; running calls, and later ones, are CANCELLED. Not needed before a program ends. */
  close(): void {
    this.regions.close();
    this.calls.close();
  }

  private async plain<T>(name: string, given: object, options?: CallOptions): Promise<T> {
    return this.calls.plain(name, toMessage(methodNamed(name).request, given), this.calls.begin(options));
  }

  /** The answers of a method that takes one message and gives a stream. */
  private async *parts<Part>(name: string, request: Fields, call: Call, wanted = {}): AsyncGenerator<Part> {
    const types = methodNamed(name);
    const sent = frame(types.request, request);
    for await (const answer of this.calls.stream(name, [sent], sent.size, call)) {
      yield fromMessage(types.response, answer, wanted) as Part;
    }
  }

  private bytes(name: string, given: Fields, chunks: Chunks, options?: CallOptions): AsyncGenerator<Uint8Array> {
    const { request, data } = split(name, toMessage(methodNamed(name).request, given));
    async function* all() {
      yield* data;
      yield* bytesIn(chunks);
    }
    const chunkBytes = chunkBytesFor(this.calls.channel.maxMessageBytes);
    return rotatedBytes(this.calls, name, { request, data: all() }, this.calls.begin(options), chunkBytes);
  }

  /** A call with one result, for which `out` is the memory. */
  private async tensor(name: string, given: object, result: string, options?: CallOptions): Promise<Tensor> {
    checkObject(given, "arguments");
    const { out, ...rest } = given as Fields;
    return (await this.tensors<Fields>(name, { ...rest, out: { [result]: out } }, options))[result] as Tensor;
  }

  /** Makes a call by places in shared memory, by one message, or by a stream. Its results are in `out`, or new. */
  private async tensors<Answer>(name: string, { out = {}, ...given }: Fields, options?: CallOptions): Promise<Answer> {
    const call = this.calls.begin(options);
    const { request: type, response } = methodNamed(name);
    const { sent, results } = tensorCalls[name];
    let request = toMessage(type, given);
    const wanted: Record<string, Wanted> = {};
    for (const [result, described] of Object.entries(results(request))) {
      const input = given[result];
      wanted[result] = { described, like: input instanceof Tensor ? input.data : undefined };
    }
    checkKeys(out, name === "BuildTable" ? ["cos", "sin", "table"] : [...sent, "scores"], "out");
    const places: [string, SharedTensor][] = [];
    for (const [result, memory] of Object.entries(out)) {
      if (memory === undefined) continue;
      const field = `${result}_output`;
      if (!(result in wanted)) throw invalid(field, `is given; the result has ${Object.keys(wanted).join(" and ")}`);
      const { described } = wanted[result];
      if (memory instanceof SharedTensor) memory.region.checkOpen(field);
      if (described !== undefined) checkOut(memory, described, field);
      if (memory instanceof SharedTensor) places.push([result, memory]);
      wanted[result].out = memory as ArrayBufferView;
    }

    const inputs = sent.map((input) => given[input]).filter((input) => input instanceof SharedTensor);
    const shared = [...inputs, ...places.map(([, place]) => place)];
    // The server would write the whole result even to a smaller place, so its size must be known.
    const areKnown = places.every(([result]) => wanted[result].described !== undefined);
    if (shared.length > 0 && areKnown && shared.every(({ region }) => region.name !== "")) {
      for (const [result, { region, offset }] of places) request[`${result}Output`] = { name: region.name, offset };
      const isInput = ({ region, offset }: SharedTensor) =>
        inputs.some((each) => each.region === region && each.offset === offset);
      const inPlace = places.filter(([, place]) => isInput(place)).map(([result]) => result);
      const message = frame(type, request, sent);
      if (message.size <= this.calls.channel.streamAboveBytes) {
        try {
          const answer = await this.calls.unary(name, message, call, inPlace.length > 0);
          const placed = places.map(([result]) => [result, { ...wanted[result], isPlaced: true }]);
          return fromMessage(response, answer, { ...wanted, ...Object.fromEntries(placed) }) as Answer;
        } catch (error) {
          if (!isRefused(error)) throw withAdvice(error, inPlace);
        }
      }
      request = toMessage(type, given, true);
    }
    return this.byWire(name, request, wanted, call) as Answer;
  }

  private async byWire(name: string, request: Fields, wanted: Record<string, Wanted>, call: Call): Promise<Fields> {
    const types = methodNamed(name);
    const message = frame(types.request, request, tensorCalls[name].sent);
    const { maxMessageBytes, streamAboveBytes } = this.calls.channel;
    const parts = splitWhole(name, request);
    if (parts && message.size > streamAboveBytes) {
      return rotateAsStream(this.calls, name, parts, wanted, call, chunkBytesFor(maxMessageBytes));
    }
    try {
      return fromMessage(types.response, await this.calls.unary(name, message, call), wanted);
    } catch (error) {
      // The server's limit may be lower than ours. A message no larger than a chunk would only be refused again.
      if (!isTooLarge(error)) throw error;
      if (name === "BuildTable") return this.tableByRows(request, wanted, call);
      const chunkBytes = chunkBytesFor(Math.min(maxMessageBytes, Number(error.metadata.limitBytes ?? Infinity)));
      if (!parts || message.size <= chunkBytes) throw error;
      return rotateAsStream(this.calls, name, parts, wanted, call, chunkBytes);
    }
  }

  private async tableByRows(table: Fields, wanted: Record<string, Wanted>, call: Call): Promise<Fields> {
    const names = Object.keys(wanted);
    const present = Object.fromEntries(names.map((name) => [name, {}]));
    let wholes: Record<string, Assembly> | undefined;
    let amplitude: unknown;
    try {
      for await (const part of this.parts<Fields>("BuildTableStream", { table }, call, present)) {
        const tensors = Object.fromEntries(names.map((name) => [name, part[name] as Tensor]));
        const shape = part.wholeShape as number[];
        wholes ??= this.assemblies(tensors, shape, rowAxisOf(table, shape), wanted);
        amplitude ??= part.amplitude;
        for (const name of names) wholes[name].place(tensors[name], part.firstRow as number);
      }
    } catch (error) {
      throw withoutTable(error);
    }
    if (wholes === undefined) throw falseAnswer("the table has no rows");
    return { amplitude, ...Object.fromEntries(Object.entries(wholes).map(([name, whole]) => [name, whole.tensor()])) };
  }

  /** Memory for tensors by the first of their parts. */
  private assemblies(
    parts: Record<string, Tensor>,
    shape: readonly number[],
    rowAxis: number,
    wanted: Record<string, Wanted> = {},
  ): Record<string, Assembly> {
    const described = Object.entries(parts).map(([name, { dtype }]) => ({ name, dtype, shape }));
    checkMemory(described.map(sizeOf));
    return Object.fromEntries(
      described.map((each) => [each.name, new Assembly(each, rowAxis, each.name, wanted[each.name])]),
    );
  }
}

/** An encoding that was resolved once. Calls send its specification, which is short and needs no parsing. */
export class Rope {
  constructor(
    private readonly client: Client,
    /** What calls send as the encoding. */
    readonly source: given.RopeArgument,
    /** Frequencies, assumptions and warnings; absent if only a tensor's head_dim makes the encoding complete. */
    readonly resolved: messages.ResolveRopeResponse | undefined,
  ) {}

  /** The complete specification. */
  get spec(): messages.ResolveRopeResponse["spec"] {
    return this.resolved?.spec;
  }

  /** Rotates q, k or both; see Client.applyRope. */
  apply(given: Omit<given.ApplyRopeArguments, "rope">, options?: CallOptions): Promise<Rotated> {
    return this.client.applyRope({ ...given, rope: this.source }, options);
  }

  /** Moves keys that this encoding rotated; see Client.reposition. */
  reposition(given: Omit<given.RepositionArguments, "oldRope">, options?: CallOptions): Promise<Tensor> {
    return this.client.reposition({ ...given, oldRope: this.source }, options);
  }

  /** Rows of cosines and sines, from position 0 unless it is given; see Client.buildTable. */
  table(
    given: Omit<given.BuildTableArguments, "rope" | "absolute">,
    options?: CallOptions,
  ): Promise<messages.BuildTableResponse> {
    const { start, starts, ids, packed, positions } = given ?? {};
    const isAnywhere = [start, starts, ids, packed, positions].every((each) => each === undefined);
    return this.client.buildTable({ ...given, ...(isAnywhere && { start: 0 }), rope: this.source }, options);
  }
}
