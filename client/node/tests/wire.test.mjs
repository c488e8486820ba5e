import assert from "node:assert";
import { createRequire } from "node:module";
import { test } from "node:test";

const { copied, join, serialize, serializerFor } = createRequire(import.meta.url)("../dist/wire.js");

test("AMessageCopiesItselfToWhereItIsWantedAsItIsInOnePiece", () => {
  const pieces = [Uint8Array.of(1, 2), new Uint8Array(0), Uint8Array.of(3, 4, 5)];
  const frame = { pieces, size: 5 };
  const output = Buffer.alloc(7, 9);
  const message = copied(frame);
  assert.strictEqual(message.length, 5);
  message.copy(output, 1);
  assert.deepStrictEqual([...output], [9, ...join(frame), 9]);
});

test("OnlyVersionsOfGrpcWhoseWayIsKnownGetMessagesInPieces", () => {
  assert.strictEqual(serializerFor("1.14.7"), copied);
  for (const other of ["1.15.0", "2.14.0", "1.1.4"]) assert.strictEqual(serializerFor(other), join);
  // All other tests use the serializer for the installed version.
  assert.strictEqual(serialize, copied);
});
