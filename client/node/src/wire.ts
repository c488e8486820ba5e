// Encodes messages with tensors without protobufjs' writer, which would copy a tensor twice: into the writer and out of
// it. Received messages need no such code, because protobufjs does not copy their bytes.
//
//   | all other fields | tag, length of a tensor | its dtype and shape | tag, length of `data` | elements, not copied |
//
// The last four parts are repeated for each tensor, because tensors have the highest field numbers of a message.
import { version } from "@grpc/grpc-js/package.json";
import protobuf from "protobufjs";
import type { Fields } from "./schema";

/** A message that is serialized when gRPC asks for it. */
export interface Frame {
  pieces: readonly Uint8Array[];
  size: number;
}

// The field number of `data` in Tensor and in the messages of streams. It is the highest number in each message.
const dataField = 15;

/** Returns the tag and the length of a field of bytes. */
const fieldHead = (field: number, length: number) =>
  protobuf.Writer.create()
    .uint32(field * 8 + 2)
    .uint32(length)
    .finish();

function frameOf(...pieces: readonly Uint8Array[]): Frame {
  return { pieces, size: pieces.reduce((sum, piece) => sum + piece.byteLength, 0) };
}

/** Returns the frame of a message. Its tensors are its last fields. Their elements are not copied. */
export function frame(type: protobuf.Type, message: Fields): Frame {
  const small = { ...message };
  const pieces: Uint8Array[] = [];
  for (const { id, name, resolvedType } of type.fieldsArray) {
    const { data, ...tensor } = (message[name] ?? {}) as { data?: Uint8Array };
    if (data === undefined || !(resolvedType instanceof protobuf.Type)) continue;
    delete small[name];
    const head = resolvedType.encode(tensor).finish();
    const dataHead = fieldHead(dataField, data.byteLength);
    const length = head.byteLength + dataHead.byteLength + data.byteLength;
    pieces.push(fieldHead(id, length), head, dataHead, data);
  }
  return frameOf(type.encode(small).finish(), ...pieces);
}

/** Returns the frame of a stream's message that has only `data`. */
export function dataFrame(data: Uint8Array): Frame {
  return frameOf(fieldHead(dataField, data.byteLength), data);
}

/** Returns the message in one piece. */
export function join({ pieces, size }: Frame): Buffer {
  return Buffer.concat(pieces, size);
}

/**
 * Returns the message in a form that grpc-js can copy. grpc-js makes a buffer of the message's length and a head of
 * five bytes, and calls `copy` to fill it (compression-filter.js). So the pieces need not be joined first.
 */
export function copied({ pieces, size }: Frame): Buffer {
  const copy = (to: Buffer, at: number) => {
    for (const piece of pieces) {
      to.set(piece, at);
      at += piece.byteLength;
    }
  };
  return { length: size, copy } as unknown as Buffer;
}

/** Returns the serializer for a version of grpc-js. Other versions, whose behaviour is unknown, get one piece. */
export function serializerFor(grpcVersion: string): (frame: Frame) => Buffer {
  return grpcVersion.startsWith("1.14.") ? copied : join;
}

export const serialize = serializerFor(version);
