import {
  type AddEncodingArguments,
  type AnalyzeRopeArguments,
  type ApplyRopeArguments,
  type BuildTableArguments,
  type ConvertPairingArguments,
  type RepositionArguments,
  type ResolveRopeArguments,
  type ScoreRelativeArguments,
  withMovement,
  withPositions,
} from "./arguments";
import { Calls, type CallOptions, forRequests } from "./calls";
import { checkKeys, type ClientOptions } from "./channels";
import { invalid, outside, PosencError } from "./errors";
import type {
  AnalyzeRopeResponse,
  ApplyRopeRequest,
  BuildBiasRequest,
  BuildBiasResponse,
  BuildPositionsRequest,
  BuildPositionsResponse,
  BuildTableResponse,
  BuildTableStreamResponse,
  DiagnoseRopeRequest,
  DiagnoseRopeResponse,
  GetServerInfoResponse,
  RepositionRequest,
  ResolveRopeResponse,
} from "./messages";
import { Rope } from "./rope";
import { applyRope, isTooLarge, kindOfTensor, reposition, rotate, type Rotation } from "./rotations";
import { checkPresent, fromMessage, type Message, methodNamed, toMessage } from "./schema";
import { type RegionOptions, Regions, SharedCall, type SharedRegion, SharedTensor } from "./shared";
import { type Rope as RopeArgument, ropeSource } from "./source";
import { checkAllRows, checkNextRows, checkTableMemory, checkTableOut, headsOf, joinRows, tableDtype, tableNames, tableShape } from "./tables";
import { allocate, bytesOf, checkMemory, checkOut, kindOf, Tensor, type Wanted } from "./tensor";
import { frame } from "./wire";

/** Rotated tensors, with the shapes and types of the sent ones. */
export interface Rotated {
  q?: Tensor;
  k?: Tensor;
}

/** A part of a tensor that is larger than memory, and the positions of its tokens. */
export type ApplyRopeChunk = Pick<ApplyRopeArguments, "q" | "k" | "start" | "starts" | "ids" | "packed" | "positions">;
export type RepositionChunk = Pick<RepositionArguments, "k" | "shift" | "shifts" | "oldPositions" | "newPositions" | "movement">;

type WantedAnywhere = Omit<Wanted, "out"> & { out?: ArrayBufferView | SharedTensor };

/** Results in shared memory come only as places, or are written there afterwards. */
function notShared(wanted: Record<string, WantedAnywhere>): Record<string, Wanted> {
  const own = (each: WantedAnywhere) => ({ ...each, out: each.out instanceof SharedTensor ? undefined : each.out, placed: each.out instanceof SharedTensor });
  return Object.fromEntries(Object.entries(wanted).map(([name, each]) => [name, own(each)]));
}

/** Returns the type and shape of a request's only tensor, for its result. */
function kindOfResult(request: Message, tensors: readonly string[], sized: boolean): Pick<Wanted, "dtype" | "shape"> {
  const tensor = request[tensors[0]] as Message | undefined;
  return sized && tensors.length === 1 && tensor !== undefined ? kindOfTensor(tensor) : {};
}

/** Checks an argument that JavaScript lets callers leave out. */
function checkGiven<Given extends object>(given: Given, name = "arguments"): Given {
  if (typeof given !== "object" || given === null) throw invalid(name, `must be an object; is ${given === null ? "null" : typeof given}`);
  return given;
}

/** The parts of a stream that a caller sends. */
async function* checkChunks<Chunk extends object>(chunks: Iterable<Chunk> | AsyncIterable<Chunk>): AsyncGenerator<Chunk> {
  const given = chunks as Partial<Iterable<Chunk> & AsyncIterable<Chunk>> | undefined | null;
  if (typeof (given?.[Symbol.asyncIterator] ?? given?.[Symbol.iterator]) !== "function") throw invalid("chunks", "must be an array, or what `for await` takes");
  let index = 0;
  for await (const chunk of chunks) yield checkGiven(chunk, `chunks[${index++}]`);
}

const shapeOf = (tensor: unknown) => ((tensor as { shape?: unknown[] } | undefined)?.shape ?? []).map(Number);
const dtypeOf = (tensor: unknown) => String((tensor as { dtype?: string } | undefined)?.dtype ?? "").toLowerCase().replace(/^dtype_/, "");

/** Checks a place's size and type: the server would write the whole result even to a smaller place. */
function checkPlace(out: SharedTensor, shape: readonly number[], dtype: string, field: string): void {
  if (JSON.stringify(out.shape) !== JSON.stringify(shape)) throw invalid(field, `has shape ${JSON.stringify(out.shape)}; the result has ${JSON.stringify(shape)}`);
  const wanted = dtype.toLowerCase().replace(/^dtype_/, "");
  if (out.dtype !== wanted) throw invalid(field, `is ${out.dtype}; must be ${wanted}`);
}

/** Checks an output for a result with this tensor's shape and type, before anything is sent. */
function checkResult(out: unknown, like: unknown, field: string): void {
  if (out instanceof SharedTensor) checkPlace(out, shapeOf(like), dtypeOf(like), field);
  else if (out !== undefined && like instanceof Tensor) checkOut(out, like.dtype, Number(like.data?.byteLength), field);
}

const dataOf = (tensor: unknown) => (tensor instanceof Tensor ? tensor.data : undefined);

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
  async rope(rope: RopeArgument, options?: CallOptions): Promise<Rope> {
    const resolved = await this.resolveRope({ rope }, options).catch((error) => {
      // A specification without rotary_dim rotates whole heads, whose width only the tensors show.
      if (error instanceof PosencError && error.field === "rope.spec.rotary_dim" && error.reason === "FIELD_REQUIRED") return undefined;
      throw error;
    });
    const source = resolved?.spec === undefined ? await ropeSource(rope, "rope") : { spec: resolved.spec, headDim: resolved.headDim };
    return new Rope(this, source as RopeArgument, resolved);
  }

  /** Returns version, instruction set, limits, presets and dtypes. */
  getServerInfo(options?: CallOptions): Promise<GetServerInfoResponse> {
    return this.calls.plain("GetServerInfo", {}, options);
  }

  /**
   * Makes memory that a server on this host maps, too: calls with its tensors carry no bytes. If the server shares no
   * memory with this client, calls send the bytes. The file is removed when the region or the client is closed, or the
   * program ends.
   */
  async sharedRegion(bytes: number, options: RegionOptions & CallOptions = {}): Promise<SharedRegion> {
    const { name, directory, ...call } = checkGiven(options, "options");
    return this.regions.make(bytes, (await this.getServerInfo(call)).sharedMemory, { name, directory });
  }

  /** Turns a preset, a config.json or a specification into exact frequencies, and says what was assumed. */
  async resolveRope(given: ResolveRopeArguments, options?: CallOptions): Promise<ResolveRopeResponse> {
    const ropes = { rope: await ropeSource(checkGiven(given).rope, "rope"), compareWith: await ropeSource(given.compareWith, "compare_with") };
    return this.calls.plain("ResolveRope", this.request("ResolveRope", { ...given, ...ropes }), options);
  }

  /** Returns wavelengths, long-term decay and similarity between positions, as numbers for plots. */
  async analyzeRope(given: AnalyzeRopeArguments, options?: CallOptions): Promise<AnalyzeRopeResponse> {
    const ropes = { rope: await ropeSource(checkGiven(given).rope, "rope"), compareWith: await ropeSource(given.compareWith, "compare_with") };
    return this.calls.plain("AnalyzeRope", this.request("AnalyzeRope", { ...given, ...ropes }), options);
  }

  /** Returns which descriptions of a checkpoint, and which of their readers, disagree, from which distance on, and which key fixes it. */
  async diagnoseRope(given: DiagnoseRopeRequest, options?: CallOptions): Promise<DiagnoseRopeResponse> {
    return this.calls.plain("DiagnoseRope", this.request("DiagnoseRope", given), options);
  }

  /** Builds position ids for batches that are packed, padded, split over devices, or mix text and images. */
  async buildPositions(given: BuildPositionsRequest, options?: CallOptions): Promise<BuildPositionsResponse> {
    return this.calls.plain("BuildPositions", this.request("BuildPositions", given), options);
  }

  /**
   * Builds rows of a table. A table over a limit is requested again as a stream. `out` is memory for its tensors; the
   * server itself writes to a region if `rope` is resolved or absolute, so that the table's size is known.
   */
  async buildTable(given: BuildTableArguments, options?: CallOptions): Promise<BuildTableResponse> {
    const { out = {}, ...rest } = checkGiven(given);
    const table = await this.tableFields(rest);
    const request = this.request("BuildTable", table);
    checkTableOut(request, out);
    const wanted: Record<string, WantedAnywhere> = {};
    for (const [name, memory] of Object.entries(out)) wanted[name] = { out: memory, name: `${name}_output` };
    const requests = forRequests(options);
    const run = (asked: Message) => this.tableOnce(asked, notShared(wanted), requests);
    return this.shared("BuildTable", table, { ...out }, () => tableShape(request) !== undefined, run);
  }

  /** Builds a table, some rows at a time. */
  async *buildTableStream(given: Omit<BuildTableArguments, "out"> & { rowsPerMessage?: number }, options?: CallOptions): AsyncGenerator<BuildTableStreamResponse> {
    const { rowsPerMessage, ...table } = checkGiven(given);
    yield* this.tableRows({ ...toMessage(methodNamed("BuildTableStream").request, { rowsPerMessage }), table: this.request("BuildTable", await this.tableFields(table)) }, options);
  }

  /** Builds an attention bias for a range of queries and keys, [heads, queryLength, keyLength]. */
  async buildBias(given: BuildBiasRequest, options?: CallOptions): Promise<Tensor> {
    let whole: Tensor | undefined;
    let done = 0; // bytes
    for await (const { queryStart, keyStart, tile } of this.buildBiasTiles(given, options)) {
      if (tile === undefined) throw new PosencError("a bias tile without its tensor", { code: "INTERNAL" });
      const [heads, rows, columns] = tile.shape;
      if (tile.shape.length !== 3 || tile.data.byteLength === 0) throw new PosencError(`the bias came with a tile of [${tile.shape}]`, { code: "INTERNAL" });
      const queries = Number(given.queryLength ?? 0);
      const keys = Number(given.keyLength ?? 0);
      const size = kindOf(tile.data).BYTES_PER_ELEMENT;
      if (whole === undefined) checkMemory(heads * queries * keys * size);
      whole ??= new Tensor(allocate(kindOf(tile.data), heads * queries * keys * size), [heads, queries, keys], tile.dtype);
      const from = bytesOf(tile.data);
      const to = bytesOf(whole.data);
      const row = queryStart - Number(given.queryStart ?? 0);
      const column = keyStart - Number(given.keyStart ?? 0);
      const inside = row >= 0 && row + rows <= queries && column >= 0 && column + columns <= keys;
      if (!inside || tile.dtype !== whole.dtype || heads !== whole.shape[0]) {
        throw new PosencError(`the bias came with a tile at query ${queryStart}, key ${keyStart} that does not fit it`, { code: "INTERNAL" });
      }
      done += tile.data.byteLength;
      for (let i = 0; i < heads * rows; ++i) {
        const place = (Math.floor(i / rows) * queries + row + (i % rows)) * keys + column;
        to.set(from.subarray(i * columns * size, (i + 1) * columns * size), place * size);
      }
    }
    if (whole === undefined) throw new PosencError("the bias has no tiles", { code: "INTERNAL" });
    if (done !== whole.data.byteLength) throw new PosencError("the bias came with tiles missing or twice", { code: "INTERNAL" });
    return whole;
  }

  /** Builds a bias tile by tile, in row-major order of the matrix. */
  async *buildBiasTiles(given: BuildBiasRequest, options?: CallOptions): AsyncGenerator<BuildBiasResponse> {
    const { request, response } = methodNamed("BuildBias");
    const asked = frame(request, this.request("BuildBias", given), []);
    for await (const answer of this.calls.stream("BuildBias", [asked], { announced: asked.size, oneToOne: false }, options)) {
      yield fromMessage(response, answer) as unknown as BuildBiasResponse;
    }
  }

  /** Rotates q, k or both: [B, S, H, D] in the order of `layout`, or [T, H, D]. Large tensors go as a stream. */
  async applyRope(given: ApplyRopeArguments, options: CallOptions = {}): Promise<Rotated> {
    const { out = {}, ...rest } = checkGiven(given);
    if (out === null || typeof out !== "object") throw invalid("out", "must be an object with q, k or both");
    checkKeys(out, ["q", "k"], "out.");
    for (const name of ["q", "k"] as const) {
      if (out[name] !== undefined && given[name] === undefined) throw invalid(`${name}_output`, `is set, but ${name} is not; set both or neither`);
    }
    const asked = { ...withPositions(rest), rope: await ropeSource(given.rope, "rope") };
    const wanted = {
      q: { out: out.q, like: dataOf(given.q), name: "q_output" },
      k: { out: out.k, like: dataOf(given.k), name: "k_output" },
    };
    return this.rotate(applyRope, asked, wanted, options);
  }

  /** Rotates tensors larger than memory: takes chunks, and yields their results in order. */
  applyRopeStream(
    settings: Pick<ApplyRopeArguments, "rope" | "layout" | "direction" | "queryScale" | "saturation">,
    chunks: Iterable<ApplyRopeChunk> | AsyncIterable<ApplyRopeChunk>,
    options?: CallOptions,
  ): AsyncGenerator<Rotated> {
    const first = async () => ({ ...settings, rope: await ropeSource(checkGiven(settings, "settings").rope, "rope") });
    return this.chunks<ApplyRopeRequest>("ApplyRope", applyRope.tensors, first, chunks, withPositions, options);
  }

  /** Moves rotated keys to other positions, or from one encoding to another, in one rotation. */
  async reposition(given: RepositionArguments, options: CallOptions = {}): Promise<Tensor> {
    const { out, ...rest } = checkGiven(given);
    const ropes = { oldRope: await ropeSource(given.oldRope, "old_rope"), newRope: await ropeSource(given.newRope, "new_rope") };
    const wanted = { k: { out, like: dataOf(given.k), name: "k_output" } };
    return (await this.rotate(reposition, { ...withMovement(rest), ...ropes }, wanted, options)).k as Tensor;
  }

  /** Repositions caches larger than memory. */
  repositionStream(
    settings: Pick<RepositionArguments, "oldRope" | "newRope" | "layout" | "saturation">,
    chunks: Iterable<RepositionChunk> | AsyncIterable<RepositionChunk>,
    options?: CallOptions,
  ): AsyncGenerator<Rotated> {
    const first = async () => ({
      ...settings,
      oldRope: await ropeSource(checkGiven(settings, "settings").oldRope, "old_rope"),
      newRope: await ropeSource(settings.newRope, "new_rope"),
    });
    return this.chunks<RepositionRequest>("Reposition", reposition.tensors, first, chunks, withMovement, options);
  }

  /** Combines embeddings x, [B, S, dim], [S, dim] or [T, dim], with an absolute encoding. */
  async addEncoding(given: AddEncodingArguments, options?: CallOptions): Promise<Tensor> {
    const { out, ...rest } = checkGiven(given);
    // Only the server knows the size of a concatenation, so it comes as bytes.
    const sized = !/^(combination_)?concatenate$|^3$/i.test(String(given.combination));
    if (sized) checkResult(out, given.x, "x_output");
    return this.tensorCall("AddEncoding", withPositions(rest), ["x"], "x", { out, like: dataOf(given.x), name: "x_output" }, options, sized);
  }

  /** Computes attention scores: q [B, H, Sq, D] and k [B, H, Sk, D] give [B, H, Sq, Sk], not divided by sqrt(D). */
  async scoreRelative(given: ScoreRelativeArguments, options?: CallOptions): Promise<Tensor> {
    const { out, ...rest } = checkGiven(given);
    if (out instanceof SharedTensor) {
      const [q, k] = [shapeOf(given.q), shapeOf(given.k)];
      const dtype = given.dtype ?? (dtypeOf(given.q) === "float64" ? "float64" : "float32");
      checkPlace(out, [...q.slice(0, 3), ...k.slice(2, 3)], dtype, "scores_output");
    }
    return this.tensorCall("ScoreRelative", rest, ["q", "k"], "scores", { out, name: "scores_output" }, options);
  }

  /** Reorders the rows of a projection's weight or bias, [H * D, ...], for another pairing. */
  async convertPairing(given: ConvertPairingArguments, options?: CallOptions): Promise<Tensor> {
    const { out, ...rest } = checkGiven(given);
    checkResult(out, given.weight, "weight_output");
    return this.tensorCall("ConvertPairing", rest, ["weight"], "weight", { out, like: dataOf(given.weight), name: "weight_output" }, options);
  }

  /** Ends the connections; running calls, and later ones, are CANCELLED. Not needed before a program ends. */
  close(): void {
    this.regions.close();
    this.calls.close();
  }

  private request(name: string, given: object): Message {
    return toMessage(methodNamed(name).request, given);
  }

  private async tableFields(given: BuildTableArguments): Promise<Record<string, unknown>> {
    return { ...withPositions(given), rope: await ropeSource(given.rope, "rope") };
  }

  private async tableOnce(request: Message, wanted: Record<string, Wanted>, options?: CallOptions): Promise<BuildTableResponse> {
    try {
      const answer = await this.calls.unary("BuildTable", request, [], options);
      const [names, shape] = [tableNames(request), tableShape(request)];
      const dtype = tableDtype(request);
      const like = Object.fromEntries(names.map((name) => [name, { ...wanted[name], dtype, shape }]));
      const table = fromMessage(methodNamed("BuildTable").response, answer, like) as unknown as BuildTableResponse;
      checkPresent(table, names);
      return table;
    } catch (error) {
      // An answer is small if its tensors go to shared memory.
      const placed = request.cosOutput ?? request.sinOutput ?? request.tableOutput;
      if (!isTooLarge(error) || placed !== undefined) throw error;
      return this.tableInRows(request, wanted, options);
    }
  }

  private async *tableRows(request: Message, options?: CallOptions): AsyncGenerator<BuildTableStreamResponse> {
    const types = methodNamed("BuildTableStream");
    const asked = frame(types.request, request, []);
    for await (const answer of this.calls.stream("BuildTableStream", [asked], { announced: asked.size, oneToOne: false }, options)) {
      yield fromMessage(types.response, answer) as unknown as BuildTableStreamResponse;
    }
  }

  private async tableInRows(table: Message, wanted: Record<string, Wanted>, options: CallOptions = {}): Promise<BuildTableResponse> {
    const messages: BuildTableStreamResponse[] = [];
    try {
      for await (const message of this.tableRows({ table }, options)) {
        checkNextRows(table, messages, message);
        if (messages.length === 0) checkTableMemory(table, message);
        messages.push(message);
      }
    } catch (error) {
      throw outside("table", error); // callers do not know the message `table`
    }
    checkAllRows(table, messages);
    const result: BuildTableResponse = { amplitude: messages[0]?.amplitude ?? 1 };
    for (const name of tableNames(table)) {
      result[name] = joinRows(messages, name, headsOf(table) > 0, wanted[name] ?? {});
    }
    return result;
  }

  private async *chunks<Request>(
    name: string,
    tensors: readonly string[],
    first: () => Promise<object>,
    chunks: Iterable<object> | AsyncIterable<object>,
    places: (chunk: object) => object,
    options?: CallOptions,
  ): AsyncGenerator<Rotated & Partial<Request>> {
    const { request, response } = methodNamed(`${name}Stream`);
    const sent: Record<string, Wanted>[] = []; // not answered yet
    async function* frames() {
      let settings: object | undefined = await first();
      for await (const chunk of checkChunks(chunks)) {
        const message = { ...settings, ...places(chunk) } as Record<string, unknown>;
        settings = undefined;
        sent.push(Object.fromEntries(tensors.map((tensor) => [tensor, { like: dataOf(message[tensor]) }])));
        yield frame(request, toMessage(request, message), tensors);
      }
    }
    for await (const answer of this.calls.stream(`${name}Stream`, frames(), { oneToOne: true }, options)) {
      yield fromMessage(response, answer, sent.shift()) as Rotated & Partial<Request>;
    }
  }

  private async rotate(rpc: Rotation, given: Record<string, unknown>, wanted: Record<string, WantedAnywhere>, options: CallOptions): Promise<Rotated> {
    for (const [name, { out, name: field }] of Object.entries(wanted)) checkResult(out, given[name], field!);
    const outs = Object.fromEntries(Object.entries(wanted).map(([name, { out }]) => [name, out]));
    const fits = (request: Message) => frame(methodNamed(rpc.name).request, request, rpc.tensors).size <= this.calls.streamAboveBytes;
    const requests = forRequests(options);
    return this.shared(rpc.name, given, outs, fits, (request, once) => rotate(this.calls, rpc, request, notShared(wanted), requests, once));
  }

  private async tensorCall(name: string, given: object, tensors: string[], result: string, wanted: WantedAnywhere, options?: CallOptions, sized = true): Promise<Tensor> {
    const requests = forRequests(options);
    const run = async (request: Message, once: boolean) => {
      const answer = await this.calls.unary(name, request, tensors, requests, once);
      const message = fromMessage(methodNamed(name).response, answer, notShared({ [result]: { ...wanted, ...kindOfResult(request, tensors, sized) } }));
      checkPresent(message, [result]);
      return message;
    };
    const answer: Message = await this.shared(name, given as Record<string, unknown>, { [result]: wanted.out }, () => sized, run);
    return answer[result] as Tensor;
  }

  /** Makes a call with places of shared memory, or with bytes if it has none or the server accepts none. */
  private async shared<Answer extends object>(
    name: string,
    given: Record<string, unknown>,
    outs: Record<string, unknown>,
    fits: (request: Message) => boolean,
    run: (request: Message, once: boolean) => Promise<Answer>,
  ): Promise<Answer> {
    const call = SharedCall.of(given, outs);
    if (call === undefined) return run(this.request(name, given), false);
    const request = call.hasPlaces ? this.request(name, call.withPlaces()) : undefined;
    if (request !== undefined && fits(request)) {
      try {
        return call.placed(await run(request, call.inPlace.length > 0), true);
      } catch (error) {
        const told = call.failed(error);
        if (told !== undefined) throw told;
      }
    }
    return call.placed(await run(this.request(name, call.withBytes()), false), false);
  }
}
