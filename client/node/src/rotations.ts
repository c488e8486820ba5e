// ApplyRope and Reposition, in one message, or in chunks that go through a stream; positions are cut like the tensors.
import type protobuf from "protobufjs";
import type { Calls, CallOptions } from "./calls";
import { cutIds, cutPositions, cutTensor, extentsOf, type Extents, needAxes, type Part } from "./cut";
import { PosencError } from "./errors";
import { checkAnswer, checkPresent, dtypeName, fromMessage, type Message, methodNamed } from "./schema";
import { allocate, bytesOf, checkOut, type Elements, kindOf, Tensor, type Wanted } from "./tensor";
import { type Frame, frame } from "./wire";

/** How the two RPCs differ. */
export interface Rotation {
  name: string;
  tensors: readonly string[];
  places: string; // the field with the positions
  ropes: readonly string[];
  cut(places: Message | undefined, layout: unknown, extents: Extents, severalAxes: boolean, part: Part): Message | undefined;
  ids(places: Message | undefined): (Message | undefined)[];
}

const idsOf = (positions: unknown) => (positions as Message | undefined)?.ids as Message | undefined;

export const applyRope: Rotation = {
  name: "ApplyRope",
  tensors: ["q", "k"],
  places: "positions",
  ropes: ["rope"],
  cut: cutPositions,
  ids: (positions) => [idsOf(positions)],
};

export const reposition: Rotation = {
  name: "Reposition",
  tensors: ["k"],
  places: "movement",
  ropes: ["oldRope", "newRope"],
  cut(movement = {}, layout, extents, severalAxes, part) {
    const cut: Message = {};
    for (const [key, value] of Object.entries(movement)) {
      if (key === "shift") cut.shift = value;
      else if (key === "shifts") cut.shifts = cutIds(value as Message, layout, extents, severalAxes, part);
      else cut[key] = cutPositions(value as Message, layout, extents, severalAxes, part);
      if (cut[key] === undefined) return undefined;
    }
    return cut;
  },
  ids: (movement = {}) => [idsOf(movement.oldPositions), idsOf(movement.newPositions), movement.shifts as Message | undefined],
};

export type WantedTensors = Record<string, Wanted>;

/** Rotates; the result has the tensors by their names. */
export async function rotate(calls: Calls, rpc: Rotation, request: Message, wanted: WantedTensors, options: CallOptions, once = false): Promise<Message> {
  const size = frame(methodNamed(rpc.name).request, request, rpc.tensors).size;
  if (size > calls.streamAboveBytes) {
    const chunks = await cutRequest(calls, rpc, request, options);
    if (chunks) return inChunks(calls, rpc, request, chunks, wanted, options);
  }
  try {
    const answer = await calls.unary(rpc.name, request, rpc.tensors, options, once);
    const names = rpc.tensors.filter((name) => request[name] !== undefined);
    const like = Object.fromEntries(names.map((name) => [name, { ...wanted[name], ...kindOfTensor(request[name] as Message) }]));
    const result = fromMessage(methodNamed(rpc.name).response, answer, like);
    checkPresent(result, names);
    return result;
  } catch (error) {
    // The server's limit may be lower than ours. A message no larger than a chunk would only be refused again. If the
    // server does not tell the size of chunks, the first error says more.
    if (!isTooLarge(error) || size > calls.maxMessageBytes) throw error;
    if (size <= (await calls.chunkBytes(options).catch(() => Infinity))) throw error;
    const chunks = await cutRequest(calls, rpc, request, options);
    if (!chunks) throw error;
    return inChunks(calls, rpc, request, chunks, wanted, options);
  }
}

/** Type and shape of a request's tensor, which its result has too. */
export function kindOfTensor(tensor: Message): Pick<Wanted, "dtype" | "shape"> {
  return { dtype: dtypeName(tensor.dtype as number), shape: (tensor.shape as unknown[]).map(Number) };
}

export function isTooLarge(error: unknown): boolean {
  return error instanceof PosencError && error.code === "RESOURCE_EXHAUSTED" && error.reason !== "OVERLOADED";
}

interface Chunk {
  tensor: string;
  part: Part;
  frame: Frame;
}

const ropeOf = (request: Message, name: string) => request[name] as Message | undefined;

/** The request's chunks; undefined if its parts do not fit together, or if there is nothing to cut. */
async function cutRequest(calls: Calls, rpc: Rotation, request: Message, options: CallOptions): Promise<Chunk[] | undefined> {
  const { layout } = request;
  const maxBytes = await calls.chunkBytes(options);
  const places = request[rpc.places] as Message | undefined;
  const explicit = (rope?: Message) => (rope?.spec as Message | undefined)?.explicitFrequencies as Message | undefined;
  const byHead = rpc.ropes.some((name) => Number(explicit(ropeOf(request, name))?.heads ?? 0) > 0);
  const type = methodNamed(`${rpc.name}Stream`).request;
  const { [rpc.places]: _, ...settings } = request;
  for (const name of rpc.tensors) delete settings[name];

  const chunks: Chunk[] = [];
  let severalAxes: boolean | undefined;
  // Cuts each tensor separately and in order: q and k may have different numbers of heads, so equal amounts of memory
  // hold different tokens.
  for (const name of rpc.tensors) {
    const tensor = request[name] as Message | undefined;
    if (tensor === undefined) continue;
    const extents = extentsOf(tensor, layout);
    const parts = cutTensor(tensor, layout, byHead, maxBytes);
    if (extents === undefined || parts === undefined) return undefined;
    if (severalAxes === undefined && rpc.ids(places).some((ids) => needAxes(ids, layout, extents))) {
      severalAxes = await hasSeveralAxes(calls, ropeOf(request, rpc.ropes[0]), options);
    }
    for (const part of parts) {
      const cut = rpc.cut(places, layout, extents, severalAxes ?? false, part);
      if (cut === undefined) return undefined;
      const data = (tensor.data as Uint8Array).subarray(part.offset, part.offset + part.bytes);
      const message: Message = { ...(chunks.length === 0 ? settings : {}), [name]: { dtype: tensor.dtype, shape: part.shape, data } };
      if (places !== undefined) message[rpc.places] = cut;
      const framed = frame(type, message, rpc.tensors);
      if (framed.size > calls.maxMessageBytes) return undefined;
      chunks.push({ tensor: name, part, frame: framed });
    }
  }
  return chunks.length === 0 ? undefined : chunks;
}

async function hasSeveralAxes(calls: Calls, rope: Message | undefined, options: CallOptions): Promise<boolean> {
  let spec = rope?.spec as Message | undefined;
  if (spec === undefined && rope !== undefined) {
    const { signal, timeoutMs } = options;
    spec = (await calls.plain<Message>("ResolveRope", { rope }, { signal, timeoutMs })).spec as Message | undefined;
  }
  const sections = (spec?.axes as Message | undefined)?.sections as unknown[] | undefined;
  const explicit = spec?.explicitFrequencies as Message | undefined;
  return (sections?.length ?? 0) > 1 || Number(explicit?.axes ?? 0) > 1;
}

async function inChunks(calls: Calls, rpc: Rotation, request: Message, chunks: Chunk[], wanted: WantedTensors, options: CallOptions): Promise<Message> {
  const outputs: Record<string, ArrayBufferView> = {};
  let bytes = 0;
  for (const name of rpc.tensors) {
    const data = (request[name] as Message | undefined)?.data as Uint8Array | undefined;
    if (data === undefined) continue;
    const { out, like, name: field } = wanted[name];
    if (out !== undefined) checkOut(out, dtypeName((request[name] as { dtype: number }).dtype), data.byteLength, field ?? "out");
    outputs[name] = out ?? allocate(kindOf(like ?? data), data.byteLength);
    bytes += data.byteLength;
  }
  let next = 0;
  let bytesDone = 0;
  const announced = chunks.reduce((most, chunk) => Math.max(most, chunk.frame.size), 0);
  const frames = chunks.map((chunk) => chunk.frame);
  for await (const answer of calls.stream(`${rpc.name}Stream`, frames, { announced, oneToOne: true }, options)) {
    const { tensor, part } = chunks[next++];
    checkPresent({ [tensor]: tensorIn(answer, tensor) }, [tensor]);
    const { dtype, shape, data } = tensorIn(answer, tensor)!;
    const wanted = { dtype: dtypeName((request[tensor] as { dtype: number }).dtype), shape: part.shape };
    checkAnswer(tensor, dtypeName(dtype), shape.map(Number), data.byteLength, wanted);
    bytesOf(outputs[tensor]).set(data, part.offset);
    bytesDone += part.bytes;
    options.onProgress?.(bytesDone, bytes);
  }
  const result: Message = {};
  for (const [name, data] of Object.entries(outputs)) {
    const { dtype, shape } = request[name] as { dtype: number; shape: unknown[] };
    result[name] = new Tensor(data as Elements, shape.map(Number), dtypeName(dtype));
  }
  return result;
}

interface ReceivedTensor {
  dtype: number;
  shape: unknown[];
  data: Uint8Array;
}

function tensorIn(message: protobuf.Message, name: string): ReceivedTensor | undefined {
  return (message as unknown as Record<string, ReceivedTensor | null>)[name] ?? undefined;
}
