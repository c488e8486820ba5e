// Memory that client and server share. Calls send only the places of tensors. Node cannot map files, so this code
// writes and reads the tensors of a region, with one copy in each direction. A call over a socket would make six
// copies.
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { invalid, PosencError } from "./errors";
import type { SharedMemoryInfo } from "./messages";
import { allocate, bytesOf, type Dtype, type Elements, type Place, sizeOf } from "./tensor";

export interface RegionOptions {
  /** Name of the file. Default: the server's prefix and random digits. */
  name?: string;
  /** The path of the server's directory in this process. Default: the server's own path. */
  directory?: string;
}

// The open regions of all clients. Their files are removed when the process ends.
const openRegions = new Set<SharedRegion>();
process.on("exit", () => openRegions.forEach((region) => region.close()));

const isCount = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0;

/** Memory for tensors; client.sharedRegion() makes it. */
export class SharedRegion {
  /** The file's name; "" if the server shares no memory with the client. Calls then send the bytes. */
  readonly name: string = "";
  private readonly path: string = "";
  private file = -1;
  private memory?: Uint8Array; // the memory if there is no file
  /** @internal */
  isOpen = true;

  /** Use client.sharedRegion(). */
  constructor(
    readonly bytes: number,
    info: SharedMemoryInfo | undefined,
    { name, directory }: RegionOptions,
  ) {
    if (!isCount(bytes) || bytes === 0) throw invalid("bytes", `is ${bytes}; must be a whole number above 0`);
    if (info === undefined) {
      this.memory = new Uint8Array(bytes);
      return;
    }
    const { prefix, maxBytes } = info;
    if (maxBytes > 0 && bytes > maxBytes) throw invalid("bytes", `is ${bytes}; the server maps at most ${maxBytes}`);
    this.name = name ?? `${prefix}${process.pid}-${randomBytes(8).toString("hex")}`;
    if (!/^(?!\.\.?$)[A-Za-z0-9._-]{1,255}$/.test(this.name) || !this.name.startsWith(prefix)) {
      const rule = `1 to 255 letters, digits, ".", "_" and "-", beginning with "${prefix}", and not "." or ".."`;
      throw invalid("name", `is ${JSON.stringify(name)}; must be ${rule}`);
    }
    this.path = path.join(directory ?? info.directory, this.name);
    this.file = newFile(this.path, bytes);
    openRegions.add(this);
  }

  /**
   * Returns a tensor of the region; by default it is float32, and begins at offset 0. Calls take the tensor as q, k, x
   * or weight, and as `out`.
   */
  tensor(shape: readonly number[], dtype: Dtype = "float32", offset = 0): SharedTensor {
    this.checkOpen("region");
    const size = sizeOf({ dtype, shape: [] });
    if (Number.isNaN(size)) throw invalid("dtype", `is ${JSON.stringify(dtype)}, which is none`);
    if (!isCount(offset) || offset % size !== 0) throw invalid("offset", `is ${offset}; must be a multiple of ${size}`);
    if (!Array.isArray(shape) || !shape.every(isCount)) {
      throw invalid("shape", `is ${JSON.stringify(shape)}; must be an array of whole numbers, 0 or more`);
    }
    const end = sizeOf({ dtype, shape }) + offset;
    if (end > this.bytes) {
      throw invalid(
        "shape",
        `${JSON.stringify(shape)} at offset ${offset} needs ${end} bytes; there are ${this.bytes}`,
      );
    }
    return new SharedTensor(this, shape, dtype, offset);
  }

  /** Removes the file. Do not close a region while calls use its tensors. */
  close(): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.memory = undefined;
    openRegions.delete(this);
    if (this.name === "") return;
    fs.closeSync(this.file);
    fs.rmSync(this.path, { force: true });
  }

  /** @internal */
  checkOpen(field: string): void {
    const fact = field === "region" ? "is closed; make another one" : "lies in a shared region that is closed";
    if (!this.isOpen) throw invalid(field, fact);
  }

  /**
   * @internal If `way` is "read", copies the region's bytes from `offset` on to `memory`. If it is "write", copies
   * `memory` to these bytes.
   */
  copy(memory: Uint8Array, offset: number, way: "read" | "write"): void {
    this.checkOpen("region");
    const own = this.memory?.subarray(offset, offset + memory.length);
    if (own !== undefined) (way === "read" ? memory : own).set(way === "read" ? own : memory);
    const move: (file: number, to: Uint8Array, at: number, length: number, position: number) => number =
      way === "read" ? fs.readSync : fs.writeSync;
    // On Linux, one read or write transfers at most 2 GiB minus a page.
    for (let at = own?.length ?? 0; at < memory.length;) {
      const moved = move(this.file, memory, at, Math.min(memory.length - at, 1 << 30), offset + at);
      if (moved === 0) throw new PosencError(`the shared file was cut short`, { code: "FAILED_PRECONDITION" });
      at += moved;
    }
  }
}

/** A tensor in a SharedRegion. A result in a region is a SharedTensor; other results are Tensors. */
export class SharedTensor implements Place {
  constructor(
    readonly region: SharedRegion,
    readonly shape: readonly number[],
    readonly dtype: Dtype,
    readonly offset: number,
  ) {}

  get byteLength(): number {
    return sizeOf(this);
  }

  /** A copy of the elements, as read() returns it. */
  get data(): Elements {
    return this.read();
  }

  /** Copies elements to the region. */
  write(elements: Elements): this {
    this.region.copy(this.checked(elements, "elements"), this.offset, "write");
    return this;
  }

  /** Returns a copy of the elements, in `into` or in new memory. */
  read<E extends Elements = Elements>(into?: E): E {
    const elements = into ?? (allocate(this) as E);
    this.region.copy(this.checked(elements, "into"), this.offset, "read");
    return elements;
  }

  /** @internal Returns the tensor as a message: with its place if the region is a file, otherwise with its elements. */
  message(field: string, asBytes: boolean): object {
    this.region.checkOpen(field);
    const { shape, dtype, offset, region } = this;
    return asBytes || region.name === ""
      ? { dtype, shape, data: this.read() }
      : { dtype, shape, shared: { name: region.name, offset } };
  }

  private checked(elements: Elements, field: string): Uint8Array {
    if (!ArrayBuffer.isView(elements)) throw invalid(field, "must be a typed array");
    if (elements.byteLength === this.byteLength) return bytesOf(elements);
    throw invalid(field, `has ${elements.byteLength} bytes; the tensor has ${this.byteLength}`);
  }
}

// With these codes, except ABORTED, the server has written nothing. The text of an ABORTED error already says what to
// do.
const untouched = ["INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "ABORTED", "UNIMPLEMENTED"];

/**
 * Throws the error of a call with places. Does not throw if the call can be made with bytes instead, because the server
 * does not know places, or refuses places of this caller. `inPlace` are the tensors that their results replace.
 */
export function checkRefused(error: unknown, inPlace: readonly string[]): void {
  if (!(error instanceof PosencError)) throw error;
  const isOfPlaces = ["SHARED_MEMORY_UNAVAILABLE", "FIELD_UNKNOWN"].includes(error.reason);
  if (isOfPlaces && ["UNIMPLEMENTED", "PERMISSION_DENIED"].includes(error.code)) return;
  if (inPlace.length > 0 && !untouched.includes(error.code)) {
    error.message += `; ${inPlace.join(" and ")} may have been rotated by then, in part or whole: write it anew`;
  }
  throw error;
}

/** Makes a file, and allocates its full size. */
function newFile(file: string, bytes: number): number {
  let handle: number;
  try {
    handle = fs.openSync(file, "wx+", 0o600);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "EEXIST") throw invalid("name", `${file} is there already; choose another one`);
    throw invalid("directory", `${message}; must be the server's, as this process sees it`);
  }
  try {
    // On a full file system, these writes fail. Without these writes, the server would fail when it writes.
    const zeros = new Uint8Array(1 << 20);
    for (let at = 0; at < bytes; at += zeros.length)
      fs.writeSync(handle, zeros, 0, Math.min(zeros.length, bytes - at), at);
    // In a directory with the set-group-ID bit, files belong to the group of the directory. An example is a Kubernetes
    // volume with an fsGroup.
    if (fs.statSync(path.dirname(file)).mode & 0o2000) fs.fchmodSync(handle, 0o660);
    // On a nearly full file system a write may end early without an error.
    if (fs.fstatSync(handle).size !== bytes) throw new Error("no space left");
    return handle;
  } catch (error) {
    fs.closeSync(handle);
    fs.rmSync(file, { force: true });
    const text = `bytes: no room for ${bytes} in ${path.dirname(file)}: ${(error as Error).message}`;
    throw new PosencError(text, { code: "RESOURCE_EXHAUSTED", field: "bytes" });
  }
}
