// Encodes messages with tensors by hand: protobufjs would copy a tensor twice, into its writer and out of it. Received
// messages need no such code, because protobufjs does not copy their bytes.
//
//   head                        | tag, length | dtype, shape, tag, length | data
//   all fields but the tensors    of a tensor, the highest of the message, and its elements, borrowed
import fs from "node:fs";
import type protobuf from "protobufjs";
import type { Message } from "./schema";

/** A message that is serialized when gRPC asks for it. */
export interface Frame {
  pieces: Uint8Array[];
  size: number;
}

const lengthDelimited = 2;
const tensorDataField = 15;

function varint(value: number): number[] {
  const bytes = [];
  for (; value >= 0x80; value = Math.floor(value / 0x80)) bytes.push((value % 0x80) | 0x80);
  bytes.push(value);
  return bytes;
}

/** The frame of a message; its fields named `tensors` are spliced in. */
export function frame(type: protobuf.Type, message: Message, tensors: readonly string[]): Frame {
  const small = { ...message };
  const pieces: Uint8Array[] = [];
  for (const name of tensors) {
    const field = type.fields[name];
    const tensor = message[name] as Message | undefined;
    const data = tensor?.data as Uint8Array | undefined;
    if (tensor === undefined || data === undefined) continue;
    delete small[name];
    const head = (field.resolvedType as protobuf.Type).encode({ ...tensor, data: undefined }).finish();
    const dataHead = [...varint(tensorDataField * 8 + lengthDelimited), ...varint(data.byteLength)];
    const length = head.length + dataHead.length + data.byteLength;
    pieces.push(Buffer.from([...varint(field.id * 8 + lengthDelimited), ...varint(length), ...head, ...dataHead]), data);
  }
  pieces.unshift(type.encode(small).finish());
  return { pieces, size: pieces.reduce((sum, piece) => sum + piece.byteLength, 0) };
}

/** The message in one piece. */
export function join({ pieces, size }: Frame): Buffer {
  return Buffer.concat(pieces, size);
}

/**
 * Returns the message for grpc-js, which puts it behind a head of five bytes in its own buffer: it asks for the length
 * and lets the message copy itself there (compression-filter.js). So the pieces need not be joined first.
 */
export function copied({ pieces, size }: Frame): Buffer {
  const message = {
    length: size,
    copy(to: Buffer, at: number) {
      for (const piece of pieces) {
        to.set(piece, at);
        at += piece.byteLength;
      }
      return size;
    },
  };
  return message as unknown as Buffer;
}

/** Returns the serializer for a version of grpc-js. Later versions, whose behaviour is unknown, get a message in one piece. */
export function serializerFor(grpcVersion: string): (frame: Frame) => Buffer {
  const [major, minor] = grpcVersion.split(".").map(Number);
  return major === 1 && minor === 14 ? copied : join;
}

export const serialize = serializerFor(JSON.parse(fs.readFileSync(require.resolve("@grpc/grpc-js/package.json"), "utf8")).version);
