import assert from "node:assert";
import { after, before, describe, test } from "node:test";
import posenc, { tensor } from "../index.mjs";
import { numbers } from "./oracle.mjs";
import { Ends, startFake, startServer } from "./servers.mjs";

const half = { pairing: "half_split" };
const bytes = (data) => Buffer.from(data.buffer, data.byteOffset, data.byteLength);

describe("streams", () => {
  let address, whole, cut;
  const ends = new Ends();
  after(() => ends.run());
  before(async () => {
    address = await startServer(ends);
    whole = posenc.connect(address);
    // Messages of at most 64 KiB and this many bytes leave chunks of 1024.
    cut = posenc.connect(address, { streamAboveBytes: 0, maxMessageBytes: (64 << 10) + 1024 });
  });

  async function sameBytes(given) {
    let calls = 0;
    const one = await whole.applyRope(given);
    const many = await cut.applyRope(given, { onProgress: () => ++calls });
    for (const name of ["q", "k"]) {
      assert.strictEqual(one[name] === undefined, many[name] === undefined);
      if (!one[name]) continue;
      assert.deepStrictEqual(many[name].shape, one[name].shape);
      assert.strictEqual(many[name].dtype, one[name].dtype);
      assert.ok(bytes(many[name].data).equals(bytes(one[name].data)), name);
    }
    return calls;
  }

  test("GiveTheBytesOfOneMessageInEveryLayoutAndForEveryKindOfPositions", async () => {
    const [B, S, H, D] = [2, 24, 4, 16];
    const shapes = { bshd: [B, S, H, D], bhsd: [B, H, S, D], sbhd: [S, B, H, D] };
    const ids = Float64Array.from({ length: B * S }, (_, i) => (i * 7) % 61);
    const places = [{ start: 5 }, { starts: [3, 1000] }, { ids: ids.subarray(0, S) }, { ids: tensor(ids, [B, S]) }];
    for (const [layout, shape] of Object.entries(shapes)) {
      const q = tensor(Float32Array.from(numbers(B * S * H * D)), shape);
      const kShape = shape.map((extent) => (extent === H ? 1 : extent));
      const k = tensor(Float64Array.from(numbers(B * S * D, 5)), kShape);
      for (const where of places) {
        const calls = await sameBytes({ rope: half, q, k, layout, ...where });
        assert.ok(calls > 8, `${calls} chunks`);
      }
    }
  });

  test("CutPackedSequencesAnywhere", async () => {
    const q = tensor(Float32Array.from(numbers(50 * 2 * 16)), [50, 2, 16]);
    const packed = { cuSeqlens: [0, 3, 3, 20, 50], starts: [0, 9, 100, -4] };
    assert.ok((await sameBytes({ rope: half, q, layout: "thd", packed })) > 4);
    assert.ok((await sameBytes({ rope: half, q, layout: "thd", packed: { cuSeqlens: [0, 7, 50] } })) > 4);
  });

  test("TellIdsOfAxesFromIdsOfSequences", async () => {
    // [2, S] are two axes here, though the batch has two sequences too.
    const spec = { ...half, rotaryDim: 16, axes: { assignment: "sectioned", sections: [4, 4] } };
    const q = tensor(Float32Array.from(numbers(2 * 30 * 16)), [2, 30, 1, 16]);
    const ids = tensor(Int32Array.from({ length: 60 }, (_, i) => (i * 5) % 41), [2, 30]);
    assert.ok((await sameBytes({ rope: spec, q, layout: "bshd", ids })) >= 3);
  });

  test("RepositionTheBytesOfOneMessage", async () => {
    const k = tensor(Float32Array.from(numbers(2 * 40 * 16)), [2, 40, 1, 16]);
    const shifts = { shifts: Float64Array.from({ length: 40 }, (_, i) => i - 9) };
    const ends = { oldPositions: { start: 7 }, newPositions: { starts: [0, 90] } };
    for (const movement of [{ shift: 33 }, shifts, ends]) {
      const given = { oldRope: half, k, layout: "bshd", ...movement };
      const [one, many] = [await whole.reposition(given), await cut.reposition(given)];
      assert.ok(bytes(many.data).equals(bytes(one.data)));
    }
  });

  test("WorkInPlace", async () => {
    const values = Float32Array.from(numbers(40 * 32));
    const given = { rope: half, start: 3, layout: "bshd" };
    const { q } = await whole.applyRope({ ...given, q: tensor(values, [1, 40, 1, 32]) });
    const progress = [];
    const onProgress = (done, all) => progress.push([done, all]);
    await cut.applyRope({ ...given, q: tensor(values, [1, 40, 1, 32]), out: { q: values } }, { onProgress });
    assert.deepStrictEqual(values, q.data);
    assert.deepStrictEqual(progress.at(-1), [5120, 5120]);
    assert.strictEqual(progress.length, 5);
  });

  test("LetTheServerSayWhatDoesNotFit", async () => {
    const q = tensor(new Float32Array(64), [1, 4, 2, 8]);
    const cases = [
      [{ q, start: 0 }, "FIELD_REQUIRED", "layout"],
      [{ q: tensor(new Float32Array(64), [1, 4, 2, 9]), start: 0, layout: "bshd" }, "TENSOR_SIZE_MISMATCH", "q.data"],
      [{ q, ids: [1, 2], layout: "bshd" }, "SHAPE_MISMATCH", "positions.ids.shape"],
      [{ q, layout: "bshd" }, "FIELD_REQUIRED", "positions"],
    ];
    for (const [given, reason, field] of cases) {
      await assert.rejects(cut.applyRope({ rope: half, ...given }), { name: "PosencError", code: "INVALID_ARGUMENT", reason, field });
    }
  });

  test("AreUsedIfTheServersLimitIsLower", async (t) => {
    const small = posenc.connect(await startServer(t, "--max-request-bytes", "5MiB", "--max-response-bytes", "5MiB"));
    const q = tensor(new Float32Array(2 << 20).fill(1), [1, 128, 128, 128]);
    let calls = 0;
    const turned = await small.applyRope({ rope: half, q, start: 0, layout: "bshd" }, { onProgress: () => ++calls });
    assert.ok(calls >= 2);
    const { q: expected } = await whole.applyRope({ rope: half, q, start: 0, layout: "bshd" });
    assert.ok(bytes(turned.q.data).equals(bytes(expected.data)));
    const table = { rope: { ...half, rotaryDim: 128 }, start: 0, rows: 12000 };
    const [byRows, atOnce] = [await small.buildTable(table), await whole.buildTable(table)];
    assert.deepStrictEqual(byRows.sin.shape, [12000, 64]);
    assert.ok(bytes(byRows.cos.data).equals(bytes(atOnce.cos.data)));
    assert.ok(bytes(byRows.sin.data).equals(bytes(atOnce.sin.data)));
  });

  test("TakeChunksOfWhatIsLargerThanMemory", async () => {
    const values = Float32Array.from(numbers(8 * 16));
    const chunk = (i) => tensor(values.subarray(i * 16, (i + 1) * 16), [1, 1, 1, 16]);
    async function* chunks() {
      for (let i = 0; i < 8; ++i) yield { q: chunk(i), start: i };
    }
    const rows = [];
    for await (const { q } of whole.applyRopeStream({ rope: half, layout: "bshd" }, chunks())) rows.push(...q.data);
    const { q } = await whole.applyRope({ rope: half, q: tensor(values, [1, 8, 1, 16]), start: 0, layout: "bshd" });
    assert.deepStrictEqual(Float32Array.from(rows), q.data);

    const moved = [];
    const keys = [{ k: chunk(0), shift: 3 }, { k: chunk(1), shift: 4 }];
    for await (const { k } of whole.repositionStream({ oldRope: half, layout: "bshd" }, keys)) moved.push(k.data.length);
    assert.deepStrictEqual(moved, [16, 16]);
  });

  test("TellWhichMessageIsAtFaultAndEndTheCallersChunks", async () => {
    let ended = false;
    async function* chunks() {
      try {
        yield { q: tensor(new Float32Array(8), [1, 1, 1, 8]), start: 0 };
        yield { q: tensor(new Float32Array(8), [1, 1, 1, 9]), start: 0 };
        for (;;) yield { q: tensor(new Float32Array(8), [1, 1, 1, 8]), start: 0 };
      } finally {
        ended = true;
      }
    }
    let answers = 0;
    await assert.rejects(
      async () => {
        for await (const answer of whole.applyRopeStream({ rope: half, layout: "bshd" }, chunks())) answers += answer.q.data.length;
      },
      (error) => error.reason === "TENSOR_SIZE_MISMATCH" && error.metadata.messageIndex === "1",
    );
    assert.strictEqual(answers, 8);
    // The writer sees the end at its next turn.
    for (let i = 0; i < 100 && !ended; ++i) await new Promise(setImmediate);
    assert.ok(ended);
  });

  test("EndWithTheErrorOfTheCallersChunks", async () => {
    async function* chunks() {
      yield { q: tensor(new Float32Array(8), [1, 1, 1, 8]), start: 0 };
      throw new RangeError("the disk is gone");
    }
    await assert.rejects(async () => {
      for await (const _ of whole.applyRopeStream({ rope: half, layout: "bshd" }, chunks()));
    }, RangeError);
  });

  test("EndWhenTheClientIsClosed", async () => {
    const closed = posenc.connect(whole.target);
    async function* chunks() {
      for (;;) yield { q: tensor(new Float32Array(8), [1, 1, 1, 8]), start: 0 };
    }
    await assert.rejects(
      async () => {
        for await (const _ of closed.applyRopeStream({ rope: half, layout: "bshd" }, chunks())) closed.close();
      },
      { name: "PosencError", code: "CANCELLED", message: /was closed during the call/ },
    );
  });

  test("BuildABiasFromTilesOfAnySize", async () => {
    const given = { bias: { alibi: { heads: 4 } }, queryStart: 3, queryLength: 5, keyLength: 9 };
    const slopes = [1, 2, 3, 4].map((h) => 2 ** (-2 * h));
    const expected = slopes.flatMap((slope) => Array.from({ length: 45 }, (_, i) => -slope * Math.abs(3 + Math.floor(i / 9) - (i % 9))));
    for (const tiles of [{}, { queryTile: 2, keyTile: 4 }, { queryTile: 1, keyTile: 9 }]) {
      const bias = await whole.buildBias({ ...given, ...tiles });
      assert.deepStrictEqual(bias.shape, [4, 5, 9]);
      assert.deepStrictEqual([...bias.data].map((value) => value + 0), expected.map((value) => value + 0));
    }
  });

  test("AreNotTriedWhenTheServerDoesNotAnswerInTime", async (t) => {
    let streams = 0;
    const handle = (call) => ++streams && call.end();
    const silent = await startFake(t, { GetServerInfo: { handle: () => {} }, ApplyRopeStream: { streams: true, handle } });
    const client = posenc.connect(silent, { streamAboveBytes: 0, timeoutMs: 300 });
    t.after(() => client.close());
    const q = tensor(new Float32Array(8), [1, 1, 1, 8]);
    await assert.rejects(client.applyRope({ rope: half, q, start: 0, layout: "bshd" }), (error) => error.code === "DEADLINE_EXCEEDED" && error.message.includes(silent));
    assert.strictEqual(streams, 0);
  });

  test("LeaveTheFirstErrorOfAMessageThatIsTooLargeWhenTheServerDoesNotTellItsChunks", async (t) => {
    const handle = (call, respond) => respond({ code: 8, details: "too large" });
    const silent = await startFake(t, { GetServerInfo: { handle: () => {} }, ApplyRope: { handle } });
    const client = posenc.connect(silent, { timeoutMs: 2000 });
    t.after(() => client.close());
    const q = tensor(new Float32Array(8), [1, 1, 1, 8]);
    await assert.rejects(client.applyRope({ rope: half, q, start: 0, layout: "bshd" }), { code: "RESOURCE_EXHAUSTED" });
  });

  test("EndWhenTheServerIsSilent", async (t) => {
    const silent = await startFake(t, { ApplyRopeStream: { streams: true, handle: (call) => call.on("data", () => {}) } });
    const client = posenc.connect(silent, { streamAboveBytes: 0, timeoutMs: 300 });
    const q = tensor(new Float32Array(8), [1, 1, 1, 8]);
    await assert.rejects(client.applyRope({ rope: half, q, start: 0, layout: "bshd" }), (error) => error.code === "DEADLINE_EXCEEDED" && error.message.includes(silent));
  });
});
