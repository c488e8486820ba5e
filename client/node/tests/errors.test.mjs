import assert from "node:assert";
import { after, before, describe, test } from "node:test";
import { inspect } from "node:util";
import grpc from "@grpc/grpc-js";
import posenc, { PosencError, tensor } from "../index.mjs";
import { Ends, startFake, startServer } from "./servers.mjs";

const half = { pairing: "half_split" };
const q = tensor(new Float32Array(64), [1, 4, 2, 8]);

describe("errors", () => {
  const ends = new Ends();
  let client;
  after(() => ends.run());
  before(async () => {
    client = posenc.connect(await startServer(ends));
  });

  test("CarryTheServersReasonFieldRemedyAndTheCallsId", async () => {
    const call = client.applyRope(
      { rope: { pairing: "half_split", rotaryDim: 7 }, q, start: 0, layout: "bshd" },
      { requestId: "row-7" },
    );
    await assert.rejects(call, (error) => {
      assert.ok(error instanceof PosencError);
      assert.strictEqual(error.code, "INVALID_ARGUMENT");
      assert.strictEqual(error.reason, "FIELD_INVALID");
      assert.strictEqual(error.field, "rope.spec.rotary_dim");
      assert.strictEqual(error.requestId, "row-7");
      assert.match(error.message, /rotary_dim: is 7; must be even/);
      assert.strictEqual(error.violations[0].field, "rope.spec.rotary_dim");
      return true;
    });
    const unknown = client.applyRope({ rope: "llama-3.1-8B", q, start: 0, layout: "bshd" });
    await assert.rejects(unknown, { code: "NOT_FOUND", reason: "PRESET_UNKNOWN", message: /near: llama-3.1-8b/ });
  });

  test("RefuseMistypedNamesAndWrongKindsBeforeAnythingIsSent", async () => {
    // No server listens at this address, so a call that reached the network would be UNAVAILABLE.
    const away = posenc.connect("127.0.0.1:1");
    const good = { rope: half, q, start: 0, layout: "bshd" };
    const cases = [
      [{ layot: "bshd" }, "FIELD_UNKNOWN", "layot"],
      [{ layout: "bsdh" }, "FIELD_INVALID", "layout"],
      [{ rope: { pairing: "half_split", rotaryDims: 8 } }, "FIELD_UNKNOWN", "rope.spec.rotaryDims"],
      [{ rope: { spec: half, profiles: "hf" } }, "FIELD_UNKNOWN", "rope.profiles"],
      [{ rope: { preset: "llama-3.1-8b", spec: half } }, "FIELD_INVALID", "rope.spec"],
      [{ rope: { pairing: "half_split", yarn: { factor: "4" } } }, "FIELD_INVALID", "rope.spec.yarn.factor"],
      [{ start: 0.5 }, "FIELD_INVALID", "positions.start"],
      [{ start: 1n << 70n }, "FIELD_INVALID", "positions.start"],
      [{ start: undefined, ids: [0, null, 2, 3] }, "FIELD_INVALID", "positions.ids[1]"],
      [{ starts: [1] }, "FIELD_INVALID", "positions.starts"],
      [{ out: { x: new Float32Array(64) } }, "FIELD_INVALID", "x_output"],
      [{ out: { k: new Float32Array(64) } }, "FIELD_INVALID", "k_output"],
      [{ out: null }, "FIELD_INVALID", "out"],
      [{ q: [1, 2, 3] }, "FIELD_INVALID", "q"],
      [{ q: tensor(new Float32Array(8), [8], "float23") }, "FIELD_INVALID", "q.dtype"],
      [{ rope: { configFile: "/does/not/exist.json" } }, "FIELD_INVALID", "rope.config_file"],
    ];
    for (const [wrong, reason, field] of cases) {
      await assert.rejects(
        away.applyRope({ ...good, ...wrong }),
        { name: "PosencError", code: "INVALID_ARGUMENT", reason, field },
        JSON.stringify(wrong, (_, v) => (typeof v === "bigint" ? String(v) : v)),
      );
    }
    await assert.rejects(away.applyRope(good, { timeoutMS: 5 }), {
      reason: "FIELD_UNKNOWN",
      field: "options.timeoutMS",
    });
    assert.throws(() => posenc.connect("127.0.0.1:1", { tokens: "x" }), { reason: "FIELD_UNKNOWN", field: "tokens" });
    assert.throws(() => posenc.connect("127.0.0.1:1", { maxMessageBytes: "4MiB" }), {
      reason: "FIELD_INVALID",
      field: "maxMessageBytes",
    });
    assert.throws(() => posenc.connect("127.0.0.1:1", { tls: { ca: "x" } }), {
      reason: "FIELD_UNKNOWN",
      field: "tls.ca",
    });
    assert.throws(() => tensor(new Uint16Array(4)), { reason: "FIELD_REQUIRED", field: "dtype" });
    for (const option of ["requestId", "traceparent"]) {
      await assert.rejects(away.applyRope(good, { [option]: "two\nlines" }), {
        name: "PosencError",
        code: "INVALID_ARGUMENT",
        field: option,
      });
    }
    for (const [option, wrong] of [
      ["token", 5],
      ["tokenFile", 5],
      ["tls", null],
    ]) {
      assert.throws(() => posenc.connect("127.0.0.1:1", { [option]: wrong }), {
        code: "INVALID_ARGUMENT",
        field: option,
      });
    }
    assert.throws(() => posenc.connect("127.0.0.1:1", null), { code: "INVALID_ARGUMENT", field: "options" });
    assert.throws(() => tensor(new Float32Array(4), "2,2"), { reason: "FIELD_INVALID", field: "shape" });
    assert.throws(() => tensor([1, 2]), { reason: "FIELD_INVALID", field: "data" });
  });

  test("NameATensorWhoseMemoryWasGivenAway", async () => {
    const given = new Float32Array(64);
    structuredClone(given.buffer, { transfer: [given.buffer] });
    await assert.rejects(client.applyRope({ rope: half, q: tensor(given, [1, 4, 2, 8]), start: 0, layout: "bshd" }), {
      code: "INVALID_ARGUMENT",
      field: "q.data",
    });
  });

  test("RefuseAnOutputOfAnotherSizeOrKind", async () => {
    for (const streamAboveBytes of [0, 1 << 20]) {
      const other = posenc.connect(client.target, { streamAboveBytes });
      const into = (out) => other.applyRope({ rope: half, q, start: 0, layout: "bshd", out: { q: out } });
      await assert.rejects(into(new Float32Array(63)), {
        code: "INVALID_ARGUMENT",
        field: "q_output",
        message: /has 252 bytes; the result has 256/,
      });
      await assert.rejects(into(new Int32Array(64)), {
        field: "q_output",
        message: /is a Int32Array; must be a Float32Array/,
      });
      assert.ok((await into(new Uint8Array(256))).q);
    }
  });

  test("NameNaNPositionsAndMessagesOverTheLimit", async () => {
    await assert.rejects(
      client.applyRope({ rope: half, q, ids: [0, NaN, 1, 2], layout: "bshd" }),
      (error) => error.code === "INVALID_ARGUMENT" || error.code === "OUT_OF_RANGE",
    );
    const small = posenc.connect(client.target, { maxMessageBytes: 100 });
    const given = {
      oldPairing: "half_split",
      newPairing: "interleaved",
      heads: 1,
      weight: tensor(new Float32Array(64), [64]),
    };
    await assert.rejects(small.convertPairing(given), { code: "RESOURCE_EXHAUSTED", reason: "MESSAGE_TOO_LARGE" });
  });

  test("TellTheTargetOfAServerThatIsAway", async () => {
    const away = posenc.connect("127.0.0.1:1", { timeoutMs: 5000 });
    await assert.rejects(away.getServerInfo(), (error) =>
      /127.0.0.1:1.*; (is the server there|the timeout is over)/.test(error.message),
    );
  });

  test("ExplainAServerOfAnotherVersion", async (t) => {
    // A response of one field: version = 1, "0.0.9".
    const info = Buffer.from("\x0a\x050.0.9");
    const old = posenc.connect(await startFake(t, { GetServerInfo: { handle: (_, respond) => respond(null, info) } }));
    await assert.rejects(
      old.analyzeRope({ rope: "llama-3.1-8b" }),
      (error) => error.code === "UNIMPLEMENTED" && /0\.0\.9.*AnalyzeRope/.test(error.message),
    );
    old.close();
  });

  test("EndAtTheDeadlineAndAtAnAbort", async (t) => {
    const target = await startFake(t, { GetServerInfo: { handle: () => {} } });
    const silent = posenc.connect(target);
    await assert.rejects(
      silent.getServerInfo({ timeoutMs: 200 }),
      (error) => error.code === "DEADLINE_EXCEEDED" && error.message.includes(target),
    );
    await assert.rejects(silent.getServerInfo({ timeoutMs: 0 }), { code: "DEADLINE_EXCEEDED" });
    const controller = new AbortController();
    const call = silent.getServerInfo({ signal: controller.signal, requestId: "a" });
    setImmediate(() => controller.abort(new Error("the user left")));
    await assert.rejects(
      call,
      (error) => error.code === "CANCELLED" && error.cause.message === "the user left" && error.requestId === "a",
    );
    await assert.rejects(silent.getServerInfo({ signal: controller.signal }), { code: "CANCELLED" });
    silent.close();
  });

  test("DoNotComeFromATimeoutThatIsTooLongForTheWire", async () => {
    for (const timeoutMs of [1e15, Infinity]) assert.ok((await client.getServerInfo({ timeoutMs })).version);
  });

  test("TellThatAClientIsClosed", async () => {
    const closed = posenc.connect(client.target);
    await closed.getServerInfo();
    closed.close();
    await assert.rejects(closed.getServerInfo(), { name: "PosencError", code: "CANCELLED", message: /is closed/ });
  });

  test("TellOfCallsUnderWayThatTheClientWasClosed", async (t) => {
    let reached;
    const arrived = () => new Promise((resolve) => (reached = resolve));
    const target = await startFake(t, { GetServerInfo: { handle: () => reached() } });
    const closed = posenc.connect(target);
    const waiting = arrived();
    const call = closed.getServerInfo({ requestId: "last" });
    call.catch(() => {}); // assert.rejects() checks the error below
    await waiting;
    closed.close();
    await assert.rejects(call, {
      name: "PosencError",
      code: "CANCELLED",
      message: /was closed during the call/,
      requestId: "last",
    });
  });

  test("OfUnavailableServersAreRetriedWithTheMetadataOfTheCall", async (t) => {
    const seen = [];
    const handle = (call, respond) => {
      seen.push(call.metadata.getMap());
      if (seen.length < 3) respond({ code: grpc.status.UNAVAILABLE, details: "starting" });
      else respond(null, Buffer.from("\x0a\x051.2.3"));
    };
    const target = await startFake(t, { GetServerInfo: { handle } });
    const retrying = posenc.connect(target, { token: "secret" });
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assert.strictEqual((await retrying.getServerInfo({ requestId: "r1", traceparent })).version, "1.2.3");
    assert.strictEqual(seen.length, 3);
    for (const metadata of seen) {
      assert.strictEqual(metadata["x-request-id"], "r1");
      assert.strictEqual(metadata.traceparent, traceparent);
      assert.strictEqual(metadata.authorization, "Bearer secret");
      assert.strictEqual(metadata["posenc-message-bytes"], "0");
    }
    await retrying.getServerInfo();
    assert.match(seen[3]["x-request-id"], /^[0-9a-f]{32}$/);
    retrying.close();
  });

  test("AnnounceTheExactSizeOfTheMessage", async (t) => {
    const sizes = [];
    const handle = (call, respond) => {
      sizes.push([call.metadata.getMap()["posenc-message-bytes"], String(call.request.length)]);
      respond(null, Buffer.alloc(0));
    };
    const fake = posenc.connect(await startFake(t, { ApplyRope: { handle } }));
    for (const elements of [8, 1 << 15]) {
      const call = fake.applyRope({
        rope: half,
        q: tensor(new Float32Array(elements), [1, 1, elements / 8, 8]),
        start: 0,
        layout: "bshd",
      });
      await assert.rejects(call, { code: "INTERNAL", message: "the server's answer does not fit: it has no q" });
    }
    assert.strictEqual(sizes.length, 2);
    for (const [announced, actual] of sizes) assert.strictEqual(announced, actual);
    fake.close();
  });
});

test("ASchemeOfTheWebIsAnErrorOfTheTarget", () => {
  for (const target of ["http://localhost:50051", "https://posenc:1"]) {
    assert.throws(() => posenc.connect(target), { code: "INVALID_ARGUMENT", field: "target" }, target);
  }
  for (const target of ["127.0.0.1:65535", "unix:/tmp/a:99999", "[fe80::12345]:1"]) posenc.connect(target).close();
});

test("AnUnknownValueIsNamedWithItsFieldAndNoVersionIsBlamed", async (t) => {
  const client = posenc.connect(await startServer(t));
  t.after(() => client.close());
  const q = tensor(new Float32Array(8), [1, 1, 1, 8]);
  await assert.rejects(client.applyRope({ rope: { pairing: "half_split" }, q, start: 0, layout: 99 }), (error) => {
    assert.match(error.message, /^layout: value 99 /);
    assert.doesNotMatch(error.message, /another version/);
    return error.field === "layout";
  });
});

test("CallsWithoutTheirArgumentsSaySo", async (t) => {
  const client = posenc.connect("127.0.0.1:1");
  t.after(() => client.close());
  for (const name of [
    "applyRope",
    "reposition",
    "buildTable",
    "buildBias",
    "addEncoding",
    "scoreRelative",
    "convertPairing",
    "resolveRope",
    "analyzeRope",
    "diagnoseRope",
    "buildPositions",
  ]) {
    for (const given of [undefined, null, "llama-3.1-8b"]) {
      await assert.rejects(client[name](given), { code: "INVALID_ARGUMENT", field: "arguments" }, name);
    }
  }
  const q = new Float32Array(8);
  await assert.rejects(
    client.applyRope({ rope: "llama-3.1-8b", q, start: 0, layout: "bshd" }),
    /^PosencError: q: must be a tensor, as tensor\(elements, shape\) makes it/,
  );
});

test("NullIsNamedWhereAnObjectOrANumberIsWanted", async (t) => {
  const client = posenc.connect(await startServer(t));
  t.after(() => client.close());
  const good = { rope: half, q, start: 0, layout: "bshd" };
  const all = async (chunks) => {
    for await (const _ of chunks) continue;
  };
  const cases = [
    ["options", () => client.applyRope(good, null)],
    ["options", () => client.getServerInfo(null)],
    ["options", () => client.sharedRegion(64, null)],
    ["arguments", () => all(client.applyRopeStream(null, []))],
    ["chunks", () => all(client.applyRopeStream(good, [new Float32Array(0), null]))],
    // The server's error names an argument that the caller leaves out.
    ["layout", () => client.applyRope({ ...good, layout: null })],
    ["rope", () => client.applyRope({ ...good, rope: null })],
    ["positions", () => client.applyRope({ ...good, start: null })],
    ["q", () => client.applyRope({ ...good, q: null })],
    [
      "movement",
      () => client.reposition({ oldRope: half, k: q, oldPositions: null, newPositions: null, layout: "bshd" }),
    ],
    ["layout", () => client.applyRope({ ...good, layout: 1n })],
    ["dtype", () => client.buildTable({ rope: half, rows: 1, start: 0, dtype: 0.5, out: {} })],
  ];
  for (const [field, call] of cases)
    await assert.rejects(call, { name: "PosencError", code: "INVALID_ARGUMENT", field }, field);
});

test("ATimeoutIsThatOfAllRequestsOfACall", async (t) => {
  let leftMs;
  const tooLarge = { code: grpc.status.RESOURCE_EXHAUSTED, details: "too large" };
  const built = (call, respond) => setTimeout(() => respond(tooLarge), 1000);
  const streamed = (call) => {
    leftMs ??= Number(call.getDeadline()) - Date.now();
    call.emit("error", tooLarge);
  };
  const methods = { BuildTable: { handle: built }, BuildTableStream: { streams: true, handle: streamed } };
  const client = posenc.connect(await startFake(t, methods));
  t.after(() => client.close());
  const table = { rope: half, start: 0, rows: 4 };
  await assert.rejects(client.buildTable(table, { timeoutMs: 8000 }), { code: "RESOURCE_EXHAUSTED" });
  assert.ok(leftMs < 7500, `the second request had ${leftMs} of 8000 ms`);
});

test("AnErrorInALogHasItsFactsAndNoEmptyOnes", () => {
  const cause = new RangeError("far away");
  const error = new PosencError("layout: is missing", {
    code: "INVALID_ARGUMENT",
    reason: "FIELD_REQUIRED",
    field: "layout",
    cause,
  });
  const text = inspect(error);
  assert.match(text, /^PosencError: layout: is missing\n +at .*errors\.test\.mjs/);
  for (const fact of ["code: 'INVALID_ARGUMENT'", "reason: 'FIELD_REQUIRED'", "field: 'layout'", "far away"]) {
    assert.ok(text.includes(fact), fact);
  }
  assert.doesNotMatch(text, /violations|metadata|requestId/);
});
