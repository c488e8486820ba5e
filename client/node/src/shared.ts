// Memory that client and server share: calls carry only the place of a tensor.
// Node cannot map files, so this code writes and reads a region's tensors, with one copy each way; a call over a socket
// costs six and the wire.
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { invalid, PosencError } from "./errors";
import type { SharedMemoryInfo } from "./messages";
import { allocate, bytesOf, type Dtype, type Elements, elementBytes, kindFor, Tensor } from "./tensor";

export interface RegionOptions {
  /** Name of the file. Default: the server's prefix and random digits. */
  name?: string;
  /** This process's path of the server's directory, if it differs. */
  directory?: string;
}

/** Memory for tensors; client.sharedRegion() makes it. */
export class SharedRegion {
  /** Of the file; "" if the server shares no memory with the client. Calls then send the bytes. */
  readonly name: string = "";
  private readonly path: string = "";
  private file = -1;
  private memory?: Uint8Array; // instead of a file
  private open = true;

  /** Use client.sharedRegion(). */
  constructor(
    readonly bytes: number,
    info: SharedMemoryInfo | undefined,
    { name, directory }: RegionOptions = {},
    private readonly onClose: (region: SharedRegion) => void = () => {},
  ) {
    if (!Number.isSafeInteger(bytes) || bytes <= 0) throw invalid("bytes", `is ${String(bytes)}; must be a whole number above 0`);
    if (info === undefined) {
      this.memory = new Uint8Array(bytes);
      return;
    }
    if (info.maxBytes > 0 && bytes > info.maxBytes) throw invalid("bytes", `is ${bytes}; the server maps at most ${info.maxBytes}`);
    this.name = name ?? `${info.prefix}${process.pid}-${randomBytes(8).toString("hex")}`;
    if (!/^[A-Za-z0-9._-]{1,255}$/.test(this.name) || /^\.\.?$/.test(this.name)) {
      throw invalid("name", `is ${JSON.stringify(name)}; must be 1 to 255 letters, digits, ".", "_" and "-", and not "." or ".."`);
    }
    if (!this.name.startsWith(info.prefix)) throw invalid("name", `is ${JSON.stringify(name)}; must begin with ${JSON.stringify(info.prefix)}`);
    this.path = path.join(directory ?? info.directory, this.name);
    this.file = newFile(this.path, bytes);
  }

  /** A tensor of the region, which calls take as q, k, x or weight, and as `out`. float32 from the beginning unless given. */
  tensor(shape: readonly number[], dtype: Dtype = "float32", offset = 0): SharedTensor {
    this.checkOpen("region");
    const size = elementBytes(dtype);
    if (size === undefined) throw invalid("dtype", `is ${JSON.stringify(dtype)}, which is none`);
    if (!Number.isSafeInteger(offset) || offset < 0 || offset % size !== 0) throw invalid("offset", `is ${offset}; must be a multiple of ${size}, 0 or more`);
    if (!Array.isArray(shape) || shape.some((extent) => !Number.isSafeInteger(extent) || extent < 0)) {
      throw invalid("shape", `is ${JSON.stringify(shape)}; must be an array of whole numbers, 0 or more`);
    }
    const end = shape.reduce((product, extent) => product * extent, size) + offset;
    if (end > this.bytes) throw invalid("shape", `${JSON.stringify(shape)} at offset ${offset} needs ${end} bytes; there are ${this.bytes}`);
    return new SharedTensor(this, shape, dtype, offset);
  }

  /** Removes the file. No call with its tensors may be running. */
  close(): void {
    if (!this.open) return;
    this.open = false;
    this.memory = undefined;
    this.onClose(this);
    if (this.name === "") return;
    fs.closeSync(this.file);
    fs.rmSync(this.path, { force: true });
  }

  checkOpen(field: string): void {
    if (!this.open) throw invalid(field, field === "region" ? "is closed; make another one" : "lies in a shared region that is closed");
  }

  /** @internal */
  copyTo(to: Uint8Array, offset: number): void {
    if (this.memory !== undefined) to.set(this.memory.subarray(offset, offset + to.byteLength));
    else move(to.byteLength, "read", (from, length) => fs.readSync(this.file, to, from, length, offset + from));
  }

  /** @internal */
  copyFrom(from: Uint8Array, offset: number): void {
    if (this.memory !== undefined) this.memory.set(from, offset);
    else move(from.byteLength, "written", (at, length) => fs.writeSync(this.file, from, at, length, offset + at));
  }
}

/** A tensor in a SharedRegion. Results in a region are SharedTensors, others are Tensors. */
export class SharedTensor {
  constructor(
    readonly region: SharedRegion,
    readonly shape: readonly number[],
    readonly dtype: Dtype,
    readonly offset: number,
  ) {}

  get byteLength(): number {
    return this.shape.reduce((product, extent) => product * extent, elementBytes(this.dtype)!);
  }

  /** A copy of the elements: read(). */
  get data(): Elements {
    return this.read();
  }

  /** Copies elements to the region. */
  write(elements: Elements): this {
    this.region.checkOpen("region");
    if (!ArrayBuffer.isView(elements)) throw invalid("elements", "must be a typed array");
    if (elements.byteLength !== this.byteLength) throw invalid("elements", `has ${elements.byteLength} bytes; the tensor has ${this.byteLength}`);
    this.region.copyFrom(bytesOf(elements), this.offset);
    return this;
  }

  /** A copy of the elements, in `into` or fresh memory. */
  read<E extends Elements = Elements>(into?: E): E {
    this.region.checkOpen("region");
    const elements = into ?? (allocate(kindFor(this.dtype), this.byteLength) as E);
    if (elements.byteLength !== this.byteLength) throw invalid("into", `has ${elements.byteLength} bytes; the tensor has ${this.byteLength}`);
    this.region.copyTo(bytesOf(elements), this.offset);
    return elements;
  }

  /** Returns a copy as a Tensor in memory of this process. */
  copy(): Tensor {
    return new Tensor(this.read(), this.shape, this.dtype);
  }
}

/** The regions of a client: none outlives it, or the process. */
export class Regions {
  private readonly all = new Set<SharedRegion>();
  private readonly atExit = () => this.close();

  make(bytes: number, info: SharedMemoryInfo | undefined, options: RegionOptions): SharedRegion {
    const region = new SharedRegion(bytes, info, options, (closed) => {
      this.all.delete(closed);
      if (this.all.size === 0) process.off("exit", this.atExit);
    });
    if (this.all.size === 0) process.on("exit", this.atExit);
    this.all.add(region);
    return region;
  }

  close(): void {
    for (const region of this.all) region.close();
  }
}

type Given = Record<string, unknown>;

/** A call with tensors in regions: its request with places or with bytes, and its result. */
export class SharedCall {
  private constructor(
    private readonly given: Given,
    private readonly outs: Record<string, SharedTensor>,
    /** Tensors that their results replace. Such a call must not be sent twice. */
    readonly inPlace: string[],
    /** Whether all regions are files. */
    readonly hasPlaces: boolean,
  ) {}

  /** Undefined if nothing lies in a region. `outs` are the results' places, by the results' names. */
  static of(given: object, outs: Record<string, unknown>): SharedCall | undefined {
    const inputs = Object.entries(given).filter((entry): entry is [string, SharedTensor] => entry[1] instanceof SharedTensor);
    const results = Object.entries(outs).filter((entry): entry is [string, SharedTensor] => entry[1] instanceof SharedTensor);
    if (inputs.length + results.length === 0) return undefined;
    for (const [name, { region }] of inputs) region.checkOpen(name);
    for (const [name, { region }] of results) region.checkOpen(`${name}_output`);
    const isInput = (out: SharedTensor) => inputs.some(([, each]) => each.region === out.region && each.offset === out.offset);
    const inPlace = results.filter(([, out]) => isInput(out)).map(([name]) => name);
    const hasPlaces = [...inputs, ...results].every(([, { region }]) => region.name !== "");
    return new SharedCall(given as Given, Object.fromEntries(results), inPlace, hasPlaces);
  }

  withPlaces(): Given {
    const request = this.each(({ region, shape, dtype, offset }) => ({ dtype, shape, shared: { name: region.name, offset } }));
    for (const [name, { region, offset }] of Object.entries(this.outs)) request[`${name}Output`] = { name: region.name, offset };
    return request;
  }

  withBytes(): Given {
    return this.each((tensor) => tensor.copy());
  }

  /** The answer, its tensors in their places: there already, or to be written from the answer's. */
  placed<Answer extends object>(answer: Answer, written: boolean): Answer {
    const result = { ...answer } as Given;
    for (const [name, out] of Object.entries(this.outs)) {
      if (!written) {
        const { data } = result[name] as Tensor;
        if (data.byteLength !== out.byteLength) throw invalid(`${name}_output`, `has ${out.byteLength} bytes; the result has ${data.byteLength}`);
        out.write(data);
      }
      result[name] = out;
    }
    return result as Answer;
  }

  /** The error of a call with places, for its caller; undefined if bytes may be sent instead. */
  failed(error: unknown): unknown {
    if (!(error instanceof PosencError)) return error;
    // An older server does not know the fields.
    const refused = ["SHARED_MEMORY_UNAVAILABLE", "FIELD_UNKNOWN"].includes(error.reason);
    if (refused && ["UNIMPLEMENTED", "PERMISSION_DENIED"].includes(error.code)) return undefined;
    // By these errors the server refuses a call before it writes anything.
    const untouched = ["INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "ABORTED", "UNIMPLEMENTED"];
    if (this.inPlace.length > 0 && !untouched.includes(error.code)) {
      error.message += `; ${this.inPlace.join(" and ")} may have been rotated by then, in part or whole: write it anew`;
    }
    return error;
  }

  private each(change: (tensor: SharedTensor) => unknown): Given {
    return Object.fromEntries(Object.entries(this.given).map(([name, value]) => [name, value instanceof SharedTensor ? change(value) : value]));
  }
}

// On Linux one read or write moves at most a page less than 2 GiB.
const mostAtOnce = 1 << 30;

function move(bytes: number, done: string, step: (from: number, length: number) => number): void {
  for (let at = 0; at < bytes; ) {
    const moved = step(at, Math.min(bytes - at, mostAtOnce));
    if (moved === 0) throw new PosencError(`the shared file was cut short: ${at} of ${bytes} bytes were ${done}`, { code: "FAILED_PRECONDITION" });
    at += moved;
  }
}

/** Makes a file of its full size. */
function newFile(file: string, bytes: number): number {
  const { O_RDWR, O_CREAT, O_EXCL, O_NOFOLLOW } = fs.constants;
  let handle: number;
  try {
    handle = fs.openSync(file, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "EEXIST") throw invalid("name", `${file} is there already; choose another one`);
    throw invalid("directory", `${message}; must be the server's, as this process sees it`);
  }
  try {
    // A full file system fails here, and not when the server writes.
    const zeros = new Uint8Array(Math.min(bytes, 1 << 20));
    for (let at = 0; at < bytes; at += zeros.length) fs.writeSync(handle, zeros, 0, Math.min(zeros.length, bytes - at), at);
    // Files in such a directory belong to its group, for example in a volume with an fsGroup.
    if (fs.statSync(path.dirname(file)).mode & 0o2000) fs.fchmodSync(handle, 0o660);
    // On a nearly full file system a write may end early without an error.
    if (fs.fstatSync(handle).size !== bytes) throw new Error("no space left");
  } catch (error) {
    fs.closeSync(handle);
    fs.rmSync(file, { force: true });
    throw new PosencError(`bytes: no room for ${bytes} in ${path.dirname(file)}: ${(error as Error).message}`, { code: "RESOURCE_EXHAUSTED", field: "bytes" });
  }
  return handle;
}
