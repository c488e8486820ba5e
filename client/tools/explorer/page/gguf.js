// Shortens the header of a GGUF file: keys with long arrays, which are
// vocabularies, are left out. The server interprets the rest and reports
// faults.

const MOST_HEADER_BYTES = 64 << 20;
const LONG_ARRAY = 1024;
// Sizes in bytes of the value types 0 to 12; 0 if the size varies.
const VALUE_BYTES = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
const STRING = 8;
const ARRAY = 9;
const FACTORS = ['rope_freqs.weight', 'rope_factors_long.weight', 'rope_factors_short.weight'];
const F32 = 0;

// Reads values from a buffer. DataView throws a RangeError at the end.
class GgufReader {
  constructor(buffer) {
    this.view = new DataView(buffer);
    this.at = 0;
  }
  u32() {
    this.at += 4;
    return this.view.getUint32(this.at - 4, true);
  }
  u64() {
    this.at += 8;
    return Number(this.view.getBigUint64(this.at - 8, true));
  }
  skip(bytes) {
    if (!(bytes <= this.view.byteLength - this.at)) throw new RangeError('past the end');
    this.at += bytes;
  }
  text() {
    const length = this.u64();
    const begin = this.at;
    this.skip(length);
    return new TextDecoder().decode(new Uint8Array(this.view.buffer, begin, length));
  }
  // Skips a value, and returns how many elements it has.
  value(type) {
    if (type === STRING) {
      this.skip(this.u64());
      return 1;
    }
    if (type === ARRAY) {
      const element = this.u32();
      const count = this.u64();
      if (element === STRING) {
        for (let i = 0; i < count; ++i) this.skip(this.u64());
      } else {
        this.skip(count * (VALUE_BYTES[element] || 1));
      }
      return count;
    }
    this.skip(VALUE_BYTES[type] || 1);
    return 1;
  }
}

// Returns {header, tables} of a file whose first bytes are in `buffer`.
// `readAt(offset, bytes)` reads other bytes of the file. Throws a RangeError if
// the header is longer than the buffer.
async function shortenGguf(buffer, readAt) {
  const reader = new GgufReader(buffer);
  const source = new Uint8Array(buffer);
  const magic = reader.u32();
  const version = reader.u32();
  // Sends only the beginning of a file that is not a GGUF of version 2 or 3.
  // The server reports the fault.
  if (magic !== 0x46554747 || version < 2 || version > 3) {
    return {header: source.subarray(0, 64), tables: []};
  }
  const tensors = reader.u64();
  const keys = reader.u64();
  const pieces = [];
  let kept = 0;
  let alignment = 32;
  for (let i = 0; i < keys; ++i) {
    const begin = reader.at;
    const name = reader.text();
    const type = reader.u32();
    if (name === 'general.alignment' && type === 4) alignment = reader.view.getUint32(reader.at, true) || 32;
    if (reader.value(type) > LONG_ARRAY) continue;
    pieces.push(source.subarray(begin, reader.at));
    kept += 1;
  }
  const infos = reader.at;
  const wanted = [];
  for (let i = 0; i < tensors; ++i) {
    const name = reader.text();
    const dimensions = reader.u32();
    const shape = [];
    for (let d = 0; d < Math.min(dimensions, 4); ++d) shape.push(reader.u64());
    const type = reader.u32();
    const offset = reader.u64();
    if (FACTORS.includes(name) && type === F32 && shape.length === 1) wanted.push({name, shape, offset});
  }
  const data = Math.ceil(reader.at / alignment) * alignment;
  pieces.push(source.subarray(infos, reader.at));
  const start = new DataView(new ArrayBuffer(24));
  start.setUint32(0, magic, true);
  start.setUint32(4, version, true);
  start.setBigUint64(8, BigInt(tensors), true);
  start.setBigUint64(16, BigInt(kept), true);
  pieces.unshift(new Uint8Array(start.buffer));
  const tables = [];
  for (const {name, shape, offset} of wanted) {
    if (shape[0] > 4096) continue;
    const bytes = new Uint8Array(await readAt(data + offset, 4 * shape[0]));
    tables.push({name, tensor: {dtype: 'DTYPE_FLOAT32', shape: [String(shape[0])], data: toBase64(bytes)}});
  }
  const header = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    header.set(piece, at);
    at += piece.length;
  }
  return {header, tables};
}

// Returns the ModelDescription of a File.
async function describeGguf(file) {
  const readAt = (offset, bytes) => file.slice(offset, offset + bytes).arrayBuffer();
  for (let bytes = 1 << 20; ; bytes *= 4) {
    const buffer = await readAt(0, bytes);
    try {
      const {header, tables} = await shortenGguf(buffer, readAt);
      return {path: file.name, kind: 'DESCRIPTION_KIND_GGUF', gguf: toBase64(header), tables};
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      // The file is damaged. Its beginning is enough for the server to report
      // the damage.
      if (bytes >= file.size || bytes >= MOST_HEADER_BYTES) {
        const start = new Uint8Array(buffer).subarray(0, 512 << 10);
        return {path: file.name, kind: 'DESCRIPTION_KIND_GGUF', gguf: toBase64(start), tables: []};
      }
    }
  }
}
