import assert from "node:assert";
import { once } from "node:events";
import { createRequire } from "node:module";
import net from "node:net";
import { after, before, describe, test } from "node:test";
import grpc from "@grpc/grpc-js";
import posenc, { tensor } from "../index.mjs";
import { numbers } from "./oracle.mjs";
import { Ends, startFake, startServer } from "./servers.mjs";

const { methodNamed } = createRequire(import.meta.url)("../dist/schema.js");

const half = { pairing: "half_split" };
const bytesOf = ({ data }) => Buffer.from(data.buffer, data.byteOffset, data.byteLength);

/** Returns a function of n. It returns pseudo-random integers from 0 to n - 1, which are the same in each run. */
function randomOf(seed) {
  let state = seed;
  return (n) => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return Math.floor((state / 2147483648) * n);
  };
}

/** Cuts bytes at random places between elements. Some parts are empty. */
function* cutAtRandom(bytes, elementBytes, random) {
  for (let at = 0; at < bytes.length;) {
    const length = random(4) === 0 ? 0 : Math.min(bytes.length - at, (1 + random(200)) * elementBytes);
    yield bytes.subarray(at, at + length);
    at += length;
  }
}

async function joined(parts) {
  const all = [];
  for await (const part of parts) all.push(Buffer.from(part));
  return Buffer.concat(all);
}

async function freeAddress() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  return `127.0.0.1:${port}`;
}

/** Returns the value of a metric of the server; undefined if the server does not have this metric. */
async function metric(admin, name) {
  const text = await (await fetch(`http://${admin}/metrics`)).text();
  return text.match(new RegExp(`^${name} (.*)$`, "m"))?.[1];
}

describe("streams", () => {
  let address, whole, streaming;
  const ends = new Ends();
  after(() => {
    whole.close();
    streaming.close();
    return ends.run();
  });
  before(async () => {
    address = await startServer(ends);
    whole = posenc.connect(address);
    // Messages are small, so that every tensor is cut.
    streaming = posenc.connect(address, { streamAboveBytes: 0, maxMessageBytes: 16 + 1000 });
  });

  /**
   * Checks that applyRope gives the same bytes in one message, with the client's chunks, and with random chunks.
   * Returns the number of answers.
   */
  async function sameBytes(given, seed = 1) {
    let answers = 0;
    const one = await whole.applyRope(given);
    const many = await streaming.applyRope(given, { onProgress: () => ++answers });
    const expected = [];
    for (const name of ["q", "k"]) {
      assert.strictEqual(one[name] === undefined, many[name] === undefined);
      if (!one[name]) continue;
      assert.deepStrictEqual([many[name].shape, many[name].dtype], [one[name].shape, one[name].dtype]);
      assert.ok(bytesOf(many[name]).equals(bytesOf(one[name])), name);
      expected.push(bytesOf(one[name]));
    }
    const described = Object.fromEntries(
      ["q", "k"]
        .filter((name) => given[name])
        .map((name) => [name, { dtype: given[name].dtype, shape: given[name].shape }]),
    );
    const sent = Buffer.concat(Object.keys(described).map((name) => bytesOf(given[name])));
    const parts = cutAtRandom(sent, 8, randomOf(seed));
    assert.ok(
      (await joined(whole.applyRopeStream({ ...given, ...described }, parts))).equals(Buffer.concat(expected)),
      `cut at random, seed ${seed}`,
    );
    return answers;
  }

  test("GiveTheBytesOfOneMessageInEveryLayoutAndForEveryKindOfPositions", async () => {
    const [B, S, H, D] = [2, 24, 4, 16];
    const shapes = { bshd: [B, S, H, D], bhsd: [B, H, S, D], sbhd: [S, B, H, D] };
    const ids = Float64Array.from({ length: B * S }, (_, i) => (i * 7) % 61);
    const places = [{ start: 5 }, { starts: [3, 1000] }, { ids: ids.subarray(0, S) }, { ids: tensor(ids, [B, S]) }];
    let seed = 0;
    for (const [layout, shape] of Object.entries(shapes)) {
      const q = tensor(Float32Array.from(numbers(B * S * H * D)), shape);
      const kShape = shape.map((extent) => (extent === H ? 1 : extent));
      const k = tensor(Float64Array.from(numbers(B * S * D, 5)), kShape);
      for (const where of places) {
        const answers = await sameBytes({ rope: half, q, k, layout, ...where }, ++seed);
        assert.ok(answers > 1, `${answers} answers`);
      }
    }
  });

  test("CarryPackedSequencesNarrowTypesAndIdsOfSeveralAxes", async () => {
    const packed = { cuSeqlens: [0, 3, 3, 20, 50], starts: [0, 9, 100, -4] };
    const flat = tensor(Float32Array.from(numbers(50 * 2 * 16)), [50, 2, 16]);
    const spec = { ...half, rotaryDim: 16, axes: { assignment: "sectioned", sections: [4, 4] } };
    const q = tensor(Float32Array.from(numbers(2 * 30 * 16)), [2, 30, 1, 16]);
    const ids = tensor(
      Int32Array.from({ length: 60 }, (_, i) => (i * 5) % 41),
      [2, 30],
    );
    const bits = tensor(
      Uint8Array.from({ length: 2 * 30 * 16 }, (_, i) => i % 120),
      [2, 30, 1, 16],
      "float8_e4m3fn",
    );
    const cases = [
      { rope: half, q: flat, layout: "thd", packed },
      { rope: spec, q, layout: "bshd", ids },
      { rope: half, q: bits, k: q, start: 3, layout: "bshd", saturation: "finite" },
    ];
    for (const [seed, given] of cases.entries()) await sameBytes(given, 100 + seed);
  });

  test("RepositionTheBytesOfOneMessage", async () => {
    const k = tensor(Float32Array.from(numbers(2 * 40 * 16)), [2, 40, 1, 16]);
    const shifts = { shifts: Float64Array.from({ length: 40 }, (_, i) => i - 9) };
    const two = {
      oldPositions: { ids: Int32Array.from({ length: 40 }, (_, i) => i) },
      newPositions: { ids: tensor(Float64Array.from(numbers(80)), [2, 40]) },
    };
    for (const movement of [
      { shift: 33 },
      shifts,
      two,
      { oldPositions: { start: 7 }, newPositions: { starts: [0, 90] } },
    ]) {
      const given = { oldRope: half, k, layout: "bshd", ...movement };
      const one = bytesOf(await whole.reposition(given));
      assert.ok(bytesOf(await streaming.reposition(given)).equals(one));
      const parts = cutAtRandom(bytesOf(k), 4, randomOf(7));
      const { dtype, shape } = k;
      assert.ok((await joined(whole.repositionStream({ ...given, k: { dtype, shape } }, parts))).equals(one));
    }
  });

  test("WorkInPlaceAndTellTheirProgress", async () => {
    const values = Float32Array.from(numbers(40 * 32));
    const given = { rope: half, start: 3, layout: "bshd" };
    const { q } = await whole.applyRope({ ...given, q: tensor(values, [1, 40, 1, 32]) });
    const progress = [];
    const onProgress = (done, all) => progress.push([done, all]);
    await streaming.applyRope({ ...given, q: tensor(values, [1, 40, 1, 32]), out: { q: values } }, { onProgress });
    assert.deepStrictEqual(values, q.data);
    assert.deepStrictEqual(progress.at(-1), [5120, 5120]);
    assert.ok(progress.length > 1);
  });

  test("HaveNoAnswerIfNothingIsToBeRotated", async () => {
    const q = tensor(new Float32Array(0), [1, 0, 2, 8]);
    assert.deepStrictEqual(
      (await streaming.applyRope({ rope: half, q, start: 0, layout: "bshd" })).q.shape,
      [1, 0, 2, 8],
    );
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
      await assert.rejects(streaming.applyRope({ rope: half, ...given }), {
        name: "PosencError",
        code: "INVALID_ARGUMENT",
        reason,
        field,
      });
    }
  });

  test("OfTheWrongNumberOfBytesSayHowManyWereDescribed", async () => {
    const given = { rope: half, start: 0, layout: "bshd", q: { dtype: "float32", shape: [1, 2, 1, 8] } };
    const cases = [
      [[new Float32Array(8)], "TENSOR_SIZE_MISMATCH", { expectedBytes: "64", actualBytes: "32" }],
      [[], "TENSOR_SIZE_MISMATCH", { expectedBytes: "64", actualBytes: "0" }],
      [[new Float32Array(8), new Float32Array(16)], "TENSOR_SIZE_MISMATCH", { expectedBytes: "64" }],
      [[new Uint8Array(30), new Uint8Array(34)], "FIELD_INVALID", { messageIndex: "1" }],
    ];
    for (const [chunks, reason, metadata] of cases) {
      await assert.rejects(joined(whole.applyRopeStream(given, chunks)), (error) => {
        assert.deepStrictEqual([error.code, error.reason, error.field], ["INVALID_ARGUMENT", reason, "data"]);
        for (const [key, value] of Object.entries(metadata)) assert.strictEqual(error.metadata[key], value, key);
        return true;
      });
    }
  });

  test("EndIfTheDescriptionIsMissingOrComesAgain", async () => {
    const { request } = methodNamed("ApplyRopeStream");
    const connection = new grpc.Client(address, grpc.credentials.createInsecure());
    const serialize = (message) => Buffer.from(request.encode(request.fromObject(message)).finish());
    const call = {
      rope: { spec: { pairing: 1 } },
      positions: { start: 0 },
      layout: 1,
      q: { dtype: 1, shape: [1, 1, 1, 8] },
    };
    for (const [messages, reason] of [
      [[{ call }, { call }], "FIELD_INVALID"],
      [[{ data: new Uint8Array(32) }], "FIELD_REQUIRED"],
    ]) {
      const stream = connection.makeBidiStreamRequest(
        "/posenc.v1.PositionalEncodingService/ApplyRopeStream",
        serialize,
        (bytes) => bytes,
      );
      for (const message of messages) stream.write(message);
      stream.end();
      stream.resume();
      const [error] = await once(stream, "error");
      const [details] = error.metadata.get("grpc-status-details-bin");
      assert.strictEqual(error.code, grpc.status.INVALID_ARGUMENT);
      assert.ok(details.includes(`ERROR_REASON_${reason}`) && details.includes("call"), error.details);
    }
    connection.close();
  });

  test("OfTensorsThatHaveElementsInTheirDescriptionAreRefused", async () => {
    const q = tensor(new Float32Array(8), [1, 1, 1, 8]);
    const values = { dtype: "float32", shape: [1, 1, 1, 2], values: [1, 2] };
    await assert.rejects(joined(whole.applyRopeStream({ rope: half, start: 0, layout: "bshd", q: values }, [])), {
      reason: "FIELD_INVALID",
      field: "q.values",
    });
    // If q has elements, the stream sends them, and needs no chunks.
    assert.strictEqual(
      (await joined(whole.applyRopeStream({ rope: half, start: 0, layout: "bshd", q }, []))).length,
      32,
    );
  });

  test("AreUsedIfTheServersLimitIsLower", async (t) => {
    const small = posenc.connect(await startServer(t, "--max-request-bytes", "5MiB", "--max-response-bytes", "5MiB"));
    t.after(() => small.close());
    const q = tensor(new Float32Array(2 << 20).fill(1), [1, 128, 128, 128]);
    let calls = 0;
    const turned = await small.applyRope({ rope: half, q, start: 0, layout: "bshd" }, { onProgress: () => ++calls });
    assert.ok(calls >= 2);
    const { q: expected } = await whole.applyRope({ rope: half, q, start: 0, layout: "bshd" });
    assert.ok(bytesOf(turned.q).equals(bytesOf(expected)));
    const table = { rope: { ...half, rotaryDim: 128 }, start: 0, rows: 12000 };
    for (const layout of ["half", "complex"]) {
      const [byRows, atOnce] = [
        await small.buildTable({ ...table, layout }),
        await whole.buildTable({ ...table, layout }),
      ];
      for (const name of ["cos", "sin", "table"].filter((each) => atOnce[each])) {
        assert.deepStrictEqual(byRows[name].shape, atOnce[name].shape);
        assert.ok(bytesOf(byRows[name]).equals(bytesOf(atOnce[name])), `${layout}: ${name}`);
      }
    }
  });

  test("TablesThatDifferByHeadAreJoinedFromTheirRows", async (t) => {
    const small = posenc.connect(await startServer(t, "--max-response-bytes", "64KiB"));
    t.after(() => small.close());
    const values = Array.from({ length: 3 * 4 }, (_, i) => 1 / (i + 1));
    const table = { rope: { ...half, rotaryDim: 8, explicitFrequencies: { heads: 3, values } }, start: 0, rows: 3000 };
    const [byRows, atOnce] = [await small.buildTable(table), await whole.buildTable(table)];
    assert.deepStrictEqual(byRows.cos.shape, [3, 3000, 4]);
    assert.ok(bytesOf(byRows.sin).equals(bytesOf(atOnce.sin)));
  });

  test("EndWithTheErrorOfTheCallersChunks", async () => {
    async function* chunks() {
      yield new Float32Array(8);
      throw new RangeError("the disk is gone");
    }
    const given = { rope: half, start: 0, layout: "bshd", q: { dtype: "float32", shape: [1, 9, 1, 8] } };
    await assert.rejects(joined(whole.applyRopeStream(given, chunks())), RangeError);
    await assert.rejects(joined(whole.applyRopeStream(given, ["text"])), { field: "chunks" });
  });

  // Starts a stream of a million tokens, and stops after a few of them.
  async function endless(client, signal, stop) {
    let ended = false;
    async function* chunks() {
      try {
        for (;;) {
          yield new Float32Array(8);
          await new Promise(setImmediate);
        }
      } finally {
        ended = true;
      }
    }
    const given = { rope: half, start: 0, layout: "bshd", q: { dtype: "float32", shape: [1, 1 << 20, 1, 8] } };
    try {
      for await (const _ of client.applyRopeStream(given, chunks(), { signal })) if (stop()) break;
    } finally {
      for (let i = 0; i < 100 && !ended; ++i) await new Promise(setImmediate);
      assert.ok(ended, "the caller's chunks end with the call");
    }
  }

  test("CanBeCancelledClosedOrLeftInTheMiddle", async () => {
    const controller = new AbortController();
    await assert.rejects(
      endless(whole, controller.signal, () => controller.abort()),
      { name: "PosencError", code: "CANCELLED", message: /aborted/ },
    );
    const closed = posenc.connect(whole.target);
    await assert.rejects(
      endless(closed, undefined, () => closed.close()),
      { code: "CANCELLED", message: /was closed during the call/ },
    );
    await endless(whole, undefined, () => true);
  });

  // Tests a client that stops sending, a client that never reads, and a client that cancels.
  test("LeftInTheMiddleEndClearlyAndTheServerKeepsNothing", async (t) => {
    const admin = await freeAddress();
    const client = posenc.connect(await startServer(t, "--admin", admin));
    t.after(() => client.close());
    const given = { rope: half, start: 0, layout: "bshd", q: { dtype: "float32", shape: [1, 1 << 20, 1, 64] } };
    const forever = new Promise((resolve) => t.after(resolve));
    async function* stalled() {
      yield new Float32Array(1 << 18);
      await forever;
    }
    async function* endless() {
      for (let i = 0; i < 256; ++i) yield new Float32Array(1 << 18);
    }
    const controller = new AbortController();
    const cases = {
      "a stalled sender": [stalled, { timeoutMs: 300 }, "DEADLINE_EXCEEDED", () => {}],
      "a reader who never reads": [
        endless,
        { timeoutMs: 300 },
        "DEADLINE_EXCEEDED",
        () => new Promise((resolve) => setTimeout(resolve, 600)),
      ],
      "a change of mind": [endless, { signal: controller.signal }, "CANCELLED", () => controller.abort()],
    };
    for (const [name, [chunks, options, code, act]] of Object.entries(cases)) {
      const answers = client.applyRopeStream(given, chunks(), options);
      const ended = async () => {
        await answers.next();
        await act();
        await joined(answers);
      };
      await assert.rejects(ended(), { name: "PosencError", code }, name);
      let claimed = "";
      for (let i = 0; i < 100 && claimed !== "0"; ++i) {
        claimed = await metric(admin, "posenc_claimed_bytes");
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      assert.strictEqual(claimed, "0", name);
    }
  });

  test("BuildABiasFromTilesOfAnySize", async () => {
    const given = { bias: { alibi: { heads: 4 } }, queryStart: 3, queryLength: 5, keyLength: 9 };
    const slopes = [1, 2, 3, 4].map((h) => 2 ** (-2 * h));
    const expected = slopes.flatMap((slope) =>
      Array.from({ length: 45 }, (_, i) => -slope * Math.abs(3 + Math.floor(i / 9) - (i % 9))),
    );
    for (const tiles of [{}, { queryTile: 2, keyTile: 4 }, { queryTile: 1, keyTile: 9 }]) {
      const bias = await whole.buildBias({ ...given, ...tiles });
      assert.deepStrictEqual(bias.shape, [4, 5, 9]);
      assert.deepStrictEqual(
        [...bias.data].map((value) => value + 0),
        expected.map((value) => value + 0),
      );
    }
  });

  const data = (...numbers) => {
    const { response } = methodNamed("ApplyRopeStream");
    return Buffer.from(response.encode({ data: new Uint8Array(Float32Array.from(numbers).buffer) }).finish());
  };
  /** Starts a server whose streams are handled by `handle`. Returns a client that uses streams. */
  async function streamsThat(t, handle, options) {
    const client = posenc.connect(await startFake(t, { ApplyRopeStream: { streams: true, handle } }), {
      streamAboveBytes: 0,
      ...options,
    });
    t.after(() => client.close());
    const q = tensor(new Float32Array(8), [1, 1, 1, 8]);
    return { client, call: () => client.applyRope({ rope: half, q, start: 0, layout: "bshd" }) };
  }

  test("BeginWithTheDescriptionAndAskNothingBefore", async (t) => {
    const requests = [];
    const { call } = await streamsThat(t, (stream) => {
      stream.on("data", (bytes) => requests.push(methodNamed("ApplyRopeStream").request.decode(bytes)));
      stream.on("end", () => (stream.write(data(1, 2, 3)), stream.write(data(4, 5, 6, 7, 8)), stream.end()));
    });
    assert.deepStrictEqual([...(await call()).q.data], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert.deepStrictEqual(
      requests.map(({ call: described, data }) => [described?.q.data.length, data.length]),
      [
        [0, 0],
        [undefined, 32],
      ],
    );
  });

  test("AnswersThatDoNotFitTheTensorsAreTheServersFault", async (t) => {
    for (const numbers of [[], [1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
      const { call } = await streamsThat(
        t,
        (stream) => (stream.resume(), stream.write(data(...numbers)), stream.end()),
      );
      await assert.rejects(call(), { code: "INTERNAL", message: /^the server's answer does not fit/ }, `${numbers}`);
    }
  });

  test("LeaveTheFirstErrorOfASmallMessageThatIsTooLarge", async (t) => {
    const handle = (call, respond) => respond({ code: 8, details: "too large" });
    const client = posenc.connect(await startFake(t, { ApplyRope: { handle } }));
    t.after(() => client.close());
    const q = tensor(new Float32Array(8), [1, 1, 1, 8]);
    await assert.rejects(client.applyRope({ rope: half, q, start: 0, layout: "bshd" }), { code: "RESOURCE_EXHAUSTED" });
  });

  test("EndWhenTheServerIsSilent", async (t) => {
    const { client, call } = await streamsThat(t, (stream) => stream.resume(), { timeoutMs: 300 });
    await assert.rejects(
      call(),
      (error) => error.code === "DEADLINE_EXCEEDED" && error.message.includes(client.target),
    );
  });

  test("DoNotEndWhileTheCallerActs", async (t) => {
    const { client } = await streamsThat(
      t,
      (stream) =>
        stream.on("data", (bytes) => bytes.at(0) === 0x7a && stream.write(bytes)).on("end", () => stream.end()),
      { timeoutMs: 100 },
    );
    const pause = () => new Promise((resolve) => setTimeout(resolve, 350));
    async function* chunks() {
      yield new Float32Array(4);
      await pause();
      yield new Float32Array(4);
    }
    const given = { rope: half, start: 0, layout: "bshd", q: { dtype: "float32", shape: [1, 1, 1, 8] } };
    let bytes = 0;
    for await (const part of client.applyRopeStream(given, chunks())) {
      bytes += part.length;
      await pause();
    }
    assert.strictEqual(bytes, 32);
  });
});
