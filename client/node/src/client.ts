import type * as given from "./arguments";
import { ropeSource, withMovement, withPositions, withRopes } from "./arguments";
import { type Call, type CallOptions, Calls, type WhyGone } from "./calls";
import type { ClientOptions } from "./connection";
import { checkObject, falseAnswer, invalid, type PosencError, withoutTable } from "./errors";
import type * as messages from "./messages";
import { describe, type Fields, fromMessage, methodNamed, toMessage } from "./schema";
import { checkRefused, type RegionOptions, SharedRegion, SharedTensor } from "./shared";
import { isTooLarge } from "./status";
import { Assembly, chunkBytesFor, type Chunks, rotateAsStream, rotatedBytes, split, splitWhole } from "./streams";
import { checkOut, type Described, Tensor, type Wanted } from "./tensor";
import { frame } from "./wire";

/** The rotated tensors, with the shapes and types of the sent tensors. */
export interface Rotated {
  q?: Tensor;
  k?: Tensor;
}

const concatenate = 3; // COMBINATION_CONCATENATE
const complex = 4; // TABLE_LAYOUT_COMPLEX

const tablesOf = ({ rope, layout }: Fields) => (rope === undefined || layout === complex ? ["table"] : ["cos", "sin"]);

/** Describes the tensors of a call's answer, by their names. Undefined: only the server knows type and shape. */
function resultsOf(name: string, request: Fields): Record<string, Described | undefined> {
  const tensors = ["q", "k", "x", "weight"].filter((each) => request[each] !== undefined);
  const described = Object.fromEntries(tensors.map((each) => [each, describe(request[each])!]));
  if (name === "BuildTable") return Object.fromEntries(tablesOf(request).map((table) => [table, undefined]));
  if (name === "AddEncoding" && request.combination === concatenate) return { x: undefined };
  if (name !== "ScoreRelative") return described;
  const { q, k } = described;
  if (q?.shape.length !== 4 || k?.shape.length !== 4) return { scores: undefined }; // the server refuses such shapes
  const dtype = request.dtype ? describe(request)!.dtype : q.dtype === "float64" ? "float64" : "float32";
  return { scores: { dtype, shape: [...q.shape.slice(0, 3), k.shape[2]] } };
}

/**
 * A client of one or several servers at a gRPC target. It connects at the first call. Every call may end with a
 * PosencError.
 */
export class Client {
  private readonly calls: Calls;
  private regions: SharedRegion[] = [];

  constructor(
    readonly target: string,
    options: ClientOptions = {},
    /** @internal */
    whyGone?: WhyGone,
  ) {
    this.calls = new Calls(target, options, whyGone);
  }

  /** Resolves an encoding once, so that later requests are short. */
  async rope(rope: given.RopeArgument, options?: CallOptions): Promise<Rope> {
    const source = (await ropeSource(rope)) as messages.RopeSource;
    const resolved = await this.resolveRope({ rope: source }, options).catch((error: unknown) => {
      // A specification without rotary_dim rotates whole heads. Only the tensors of a call have the width of a head. So
      // the specification cannot be resolved before a call.
      const { field, reason } = error as Partial<PosencError>;
      if (field !== "rope.spec.rotary_dim" || reason !== "FIELD_REQUIRED") throw error;
      return undefined;
    });
    const { spec, headDim } = resolved ?? {};
    const known = spec ? { spec, headDim, sequenceLength: source.sequenceLength } : source;
    return new Rope(this, known, resolved);
  }

  /** Returns version, instruction set, limits, presets and dtypes. */
  async getServerInfo(options?: CallOptions): Promise<messages.GetServerInfoResponse> {
    return this.plain("GetServerInfo", {}, options);
  }

  /**
   * Makes memory that a server on this host also maps. Calls do not carry the bytes of tensors in this memory. If the
   * server shares no memory with this client, calls send the bytes. The file is removed when the region or the client
   * is closed, or when the program ends.
   */
  async sharedRegion(bytes: number, options: RegionOptions & CallOptions = {}): Promise<SharedRegion> {
    checkObject(options, "options");
    const { name, directory, ...call } = options;
    const region = new SharedRegion(bytes, (await this.getServerInfo(call)).sharedMemory, { name, directory });
    this.regions = [...this.regions.filter(({ isOpen }) => isOpen), region];
    return region;
  }

  /** Converts a preset, a config.json or a specification to exact frequencies, and lists the assumptions. */
  async resolveRope(given: given.ResolveRopeArguments, options?: CallOptions): Promise<messages.ResolveRopeResponse> {
    return this.plain("ResolveRope", await withRopes(given, "rope", "compareWith"), options);
  }

  /** Returns wavelengths, long-term decay and similarity between positions, as numbers for plots. */
  async analyzeRope(given: given.AnalyzeRopeArguments, options?: CallOptions): Promise<messages.AnalyzeRopeResponse> {
    return this.plain("AnalyzeRope", await withRopes(given, "rope", "compareWith"), options);
  }

  /**
   * Returns which descriptions of a checkpoint disagree, and which readers read a description differently. Also returns
   * the distance from which they disagree, and the key that fixes the disagreement.
   */
  async diagnoseRope(
    given: messages.DiagnoseRopeRequest,
    options?: CallOptions,
  ): Promise<messages.DiagnoseRopeResponse> {
    return this.plain("DiagnoseRope", given, options);
  }

  /** Builds position ids for batches that are packed, padded or split over devices, or that mix text and images. */
  async buildPositions(given: messages.BuildPositionsRequest, options?: CallOptions) {
    return this.plain<messages.BuildPositionsResponse>("BuildPositions", given, options);
  }

  /**
   * Builds rows of a table. A table over a limit is requested again as a stream. `out` is memory for the table's
   * tensors. If `out` is in a shared region, an additional request first asks the server for the size of the table.
   */
  async buildTable(given: given.BuildTableArguments, options?: CallOptions): Promise<messages.BuildTableResponse> {
    return this.tensors("BuildTable", await withRopes(withPositions(given), "rope"), options);
  }

  /** Builds a table, some rows at a time. */
  async *buildTableStream(given: given.BuildTableStreamArguments, options?: CallOptions) {
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
    for await (const part of this.buildBiasTiles(given, options)) {
      const { wholeShape, queryStart, keyStart } = part;
      whole ??= new Assembly(wholeShape, 1, { ...part }, { tile: {} });
      whole.place({ ...part }, queryStart - Number(given.queryStart ?? 0), keyStart - Number(given.keyStart ?? 0));
    }
    if (whole === undefined) throw falseAnswer("it has no tiles");
    return whole.tensors().tile as Tensor;
  }

  /** Builds an attention bias, and yields its tiles in row-major order. */
  async *buildBiasTiles(given: messages.BuildBiasRequest, options?: CallOptions) {
    const request = toMessage(methodNamed("BuildBias").request, given);
    yield* this.parts<messages.BuildBiasResponse>("BuildBias", request, this.calls.begin(options));
  }

  /** Rotates q, k or both: [B, S, H, D] in the order of `layout`, or [T, H, D]. Large tensors are sent as a stream. */
  async applyRope(given: given.ApplyRopeArguments, options?: CallOptions): Promise<Rotated> {
    return this.tensors("ApplyRope", await withRopes(withPositions(given), "rope"), options);
  }

  /**
   * Rotates tensors larger than memory. q and k have only dtype and shape. `chunks` are the bytes of q, and then the
   * bytes of k. Yields the rotated bytes in the same order. Sent and received chunks may end at different places.
   */
  applyRopeStream(given: Omit<given.ApplyRopeArguments, "out">, chunks: Chunks, options?: CallOptions) {
    return this.bytes("ApplyRope", () => withRopes(withPositions(given), "rope"), chunks, options);
  }

  /** Moves rotated keys to other positions, or from one encoding to another, in one rotation. */
  async reposition(given: given.RepositionArguments, options?: CallOptions): Promise<Tensor> {
    return this.tensor("Reposition", await withRopes(withMovement(given), "oldRope", "newRope"), "k", options);
  }

  /** Repositions caches larger than memory; see applyRopeStream. */
  repositionStream(given: Omit<given.RepositionArguments, "out">, chunks: Chunks, options?: CallOptions) {
    return this.bytes("Reposition", () => withRopes(withMovement(given), "oldRope", "newRope"), chunks, options);
  }

  /** Combines embeddings x, [B, S, dim], [S, dim] or [T, dim], with an absolute encoding. */
  async addEncoding(given: given.AddEncodingArguments, options?: CallOptions): Promise<Tensor> {
    return this.tensor("AddEncoding", withPositions(given), "x", options);
  }

  /** Computes attention scores [B, H, Sq, Sk] of q [B, H, Sq, D] and k [B, H, Sk, D], not divided by sqrt(D). */
  async scoreRelative(given: given.ScoreRelativeArguments, options?: CallOptions): Promise<Tensor> {
    return this.tensor("ScoreRelative", given, "scores", options);
  }

  /** Reorders the rows of a projection's weight or bias, [H * D, ...], so that a checkpoint fits another pairing. */
  async convertPairing(given: given.ConvertPairingArguments, options?: CallOptions): Promise<Tensor> {
    return this.tensor("ConvertPairing", given, "weight", options);
  }

  /** Ends the connections. Running and later calls fail with CANCELLED. A program may end without close(). */
  close(): void {
    for (const region of this.regions) region.close();
    this.calls.close();
  }

  private async plain<T>(name: string, given: object, options?: CallOptions): Promise<T> {
    return this.calls.plain(name, toMessage(methodNamed(name).request, given), this.calls.begin(options));
  }

  /** Sends one request, and yields the answers of a stream. */
  private async *parts<Part>(name: string, request: Fields, call: Call): AsyncGenerator<Part> {
    const types = methodNamed(name);
    const sent = frame(types.request, request);
    try {
      for await (const answer of this.calls.stream(name, [sent], sent.size, call)) {
        yield fromMessage(types.response, answer) as Part;
      }
    } catch (error) {
      throw withoutTable(error);
    }
  }

  private async *bytes(name: string, given: () => Promise<Fields>, chunks: Chunks, options?: CallOptions) {
    const { request, data } = split(name, toMessage(methodNamed(name).request, await given()));
    const all = async function* () {
      yield* data;
      yield* chunks;
    };
    const chunkBytes = chunkBytesFor(this.calls.channel.maxMessageBytes);
    yield* rotatedBytes(this.calls, name, { request, data: all() }, this.calls.begin(options), chunkBytes);
  }

  /** Makes a call with one result. `out` is memory for this result. */
  private async tensor(name: string, given: object, result: string, options?: CallOptions): Promise<Tensor> {
    checkObject(given, "arguments");
    const { out, ...rest } = given as Fields;
    return (await this.tensors<Fields>(name, { ...rest, out: { [result]: out } }, options))[result] as Tensor;
  }

  /** Makes a call with places in shared memory, in one message, or as a stream. Results go to `out` or new memory. */
  private async tensors<Answer>(name: string, { out = {}, ...given }: Fields, options?: CallOptions): Promise<Answer> {
    checkObject(out, "out");
    const call = this.calls.begin(options);
    const { request: type, response } = methodNamed(name);
    let request = toMessage(type, given);
    const isShared = (entry: [string, unknown]): entry is [string, SharedTensor] => entry[1] instanceof SharedTensor;
    const inputs = Object.entries(given).filter(isShared);
    const places = Object.entries(out as Fields).filter(isShared);
    // The server writes the whole result even to a smaller place. So the client must know the size of the result.
    const isTable = name === "BuildTable" && places.length > 0;
    const described = isTable ? await this.describeTable(request, call) : resultsOf(name, request);
    const wanted: Record<string, Wanted> = {};
    for (const [result, each] of Object.entries(described)) {
      const input = given[result];
      wanted[result] = { described: each, like: input instanceof Tensor ? (input as Tensor).data : undefined };
    }
    for (const [result, memory] of Object.entries(out as Record<string, ArrayBufferView | SharedTensor | undefined>)) {
      if (memory === undefined) continue;
      const field = `${result}_output`;
      if (!(result in described))
        throw invalid(field, `is given; the result has ${Object.keys(described).join(" and ")}`);
      if (memory instanceof SharedTensor) memory.region.checkOpen(field);
      if (described[result] !== undefined) checkOut(memory, described[result], field);
      wanted[result].out = memory;
    }

    const shared = [...inputs, ...places].map(([, tensor]) => tensor);
    const areKnown = places.every(([result]) => described[result] !== undefined);
    const { maxMessageBytes, streamAboveBytes } = this.calls.channel;
    if (shared.length > 0 && areKnown && shared.every(({ region }) => region.name !== "")) {
      for (const [result, { region, offset }] of places) request[`${result}Output`] = { name: region.name, offset };
      const message = frame(type, request);
      const isInput = ({ region, offset }: SharedTensor) =>
        inputs.some(([, input]) => input.region === region && input.offset === offset);
      const inPlace = places.filter(([, place]) => isInput(place)).map(([result]) => result);
      if (message.size <= streamAboveBytes) {
        try {
          const answer = await this.calls.unary(name, message, call, inPlace.length > 0);
          const placed = { ...wanted };
          for (const [result] of places) placed[result] = { ...wanted[result], isPlaced: true };
          return fromMessage(response, answer, placed) as Answer;
        } catch (error) {
          checkRefused(error, inPlace);
        }
      }
      request = toMessage(type, given, true);
    }

    const message = frame(type, request);
    const parts = splitWhole(name, request);
    let chunkBytes = chunkBytesFor(maxMessageBytes);
    if (!parts || message.size <= streamAboveBytes) {
      try {
        return fromMessage(response, await this.calls.unary(name, message, call), wanted) as Answer;
      } catch (error) {
        // The server's limit may be lower than this client's. If the message is not larger than a chunk, the server
        // would refuse a stream, too.
        if (!isTooLarge(error)) throw error;
        if (name === "BuildTable") return (await this.tableByRows(request, wanted, call)) as Answer;
        chunkBytes = chunkBytesFor(Math.min(maxMessageBytes, Number(error.metadata.limitBytes ?? Infinity)));
        if (!parts || message.size <= chunkBytes) throw error;
      }
    }
    return (await rotateAsStream(this.calls, name, parts, wanted, call, chunkBytes)) as Answer;
  }

  /** Describes the tensors of a table. Type and shape come from a stream, of which only the first row is read. */
  private async describeTable(table: Fields, call: Call): Promise<Record<string, Described>> {
    for await (const part of this.parts<Fields>("BuildTableStream", { table, rowsPerMessage: 1 }, call)) {
      const shape = part.wholeShape as number[];
      return Object.fromEntries(tablesOf(table).map((name) => [name, { dtype: (part[name] as Tensor).dtype, shape }]));
    }
    throw falseAnswer("it has no rows");
  }

  private async tableByRows(table: Fields, wanted: Record<string, Wanted>, call: Call): Promise<Fields> {
    let [whole, amplitude]: [Assembly | undefined, unknown] = [undefined, 1];
    for await (const part of this.parts<Fields>("BuildTableStream", { table }, call)) {
      const shape = part.wholeShape as number[];
      amplitude = part.amplitude;
      whole ??= new Assembly(shape, shape.length - (table.layout === complex ? 3 : 2), part, wanted);
      whole.place(part, part.firstRow as number);
    }
    if (whole === undefined) throw falseAnswer("it has no rows");
    return { amplitude, ...whole.tensors() };
  }
}

/** An encoding that was resolved once. Calls send only its specification, which is short. */
export class Rope {
  constructor(
    private readonly client: Client,
    /** The encoding in the form in which calls send it. */
    readonly source: given.RopeArgument,
    /** Frequencies, assumptions and warnings. Undefined if the encoding needs the head_dim of a call's tensors. */
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

  /** Builds rows of cosines and sines; positions start at 0 if they are not given. See Client.buildTable. */
  table(given: Omit<given.BuildTableArguments, "rope" | "absolute">, options?: CallOptions) {
    const { start, starts, ids, packed, positions } = given ?? {};
    const isAnywhere = [start, starts, ids, packed, positions].every((each) => each === undefined);
    return this.client.buildTable({ ...given, ...(isAnywhere && { start: 0 }), rope: this.source }, options);
  }
}
