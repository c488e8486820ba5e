import assert from "node:assert";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import posenc from "../index.mjs";
import { Ends, makeCertificates, startServer, temporaryFolder } from "./servers.mjs";

describe("TLS and tokens", () => {
  const ends = new Ends();
  let folder, ours, others, target;
  after(() => ends.run());
  before(async () => {
    folder = temporaryFolder(ends);
    ours = makeCertificates(folder, "ours");
    others = makeCertificates(folder, "others");
    const tokens = path.join(folder, "tokens");
    fs.writeFileSync(
      tokens,
      "alice good-token\nbob old-token expires=2020-01-01T00:00:00Z\nbob narrow-token methods=ApplyRope\n",
      { mode: 0o600 },
    );
    const address = await startServer(ends, "--tls-cert", ours.cert, "--tls-key", ours.key, "--token-file", tokens);
    target = `localhost:${address.split(":").at(-1)}`;
  });

  const ask = (options) =>
    posenc.connect(target, { tls: { caFile: ours.ca }, ...options }).getServerInfo({ timeoutMs: 10000 });

  test("LetATrustedServerAndAKnownTokenIn", async () => {
    assert.ok((await ask({ token: "good-token" })).version);
    const byAddress = posenc.connect(`127.0.0.1:${target.split(":")[1]}`, {
      tls: { caFile: ours.ca, serverName: "localhost" },
      token: "good-token",
    });
    assert.ok((await byAddress.getServerInfo()).version);
  });

  test("RefuseACertificateThatIsNotTrusted", async () => {
    await assert.rejects(
      ask({ tls: { caFile: others.ca }, token: "good-token" }),
      (error) => error.code === "UNAVAILABLE" && error.message.includes(target) && /certificate/.test(error.message),
    );
    await assert.rejects(
      ask({ tls: { caFile: ours.ca, serverName: "elsewhere" }, token: "good-token" }),
      (error) => error.code === "UNAVAILABLE",
    );
  });

  test("TellWhatIsWrongWithAToken", async () => {
    await assert.rejects(ask({}), {
      code: "UNAUTHENTICATED",
      reason: "UNAUTHENTICATED",
      metadata: { cause: "missing" },
    });
    await assert.rejects(ask({ token: "no-such-token" }), { code: "UNAUTHENTICATED", metadata: { cause: "invalid" } });
    await assert.rejects(ask({ token: "old-token" }), { code: "UNAUTHENTICATED", metadata: { cause: "expired" } });
    await assert.rejects(ask({ token: "narrow-token" }), { code: "PERMISSION_DENIED", reason: "PERMISSION_DENIED" });
  });

  test("ReadATokenFileAgainWhenItChanges", async () => {
    const tokenFile = path.join(folder, "token");
    fs.writeFileSync(tokenFile, "old-token\n");
    const client = posenc.connect(target, { tls: { caFile: ours.ca }, tokenFile });
    await assert.rejects(client.getServerInfo(), { code: "UNAUTHENTICATED" });
    fs.writeFileSync(tokenFile, "good-token\n");
    assert.ok((await client.getServerInfo()).version);
    fs.rmSync(tokenFile);
    assert.ok((await client.getServerInfo()).version, "what the file held before still serves");
  });

  test("NeverSendATokenInTheClearToAnotherMachine", () => {
    for (const far of [
      "posenc:50051",
      "dns:///posenc:50051",
      "10.0.0.1:1",
      "localhost.example.com:1",
      "127.0.0.1.example.com:1",
      "[2001:db8::1]:1",
      "ipv6:[::1]:1,[2001:db8::1]:1",
      "dns://192.0.2.1/localhost:1",
    ]) {
      assert.throws(() => posenc.connect(far, { token: "t" }), { field: "token", message: /in the clear/ }, far);
    }
    for (const near of ["localhost:1", "dns:///localhost:1", "127.0.0.1:1", "[::1]:1", "unix:/run/posenc"])
      posenc.connect(near, { token: "t" });
  });

  test("NeverShowATokenForThisMachineToAProxy", async (t) => {
    t.after(() => delete process.env.grpc_proxy);
    const useProxy = async () => {
      const seen = { connections: 0 };
      const proxy = net.createServer((socket) => (++seen.connections, socket.destroy()));
      await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
      t.after(() => proxy.close());
      process.env.grpc_proxy = `http://127.0.0.1:${proxy.address().port}`;
      return seen;
    };
    const plain = `localhost:${(await startServer(ends)).split(":").at(-1)}`;
    const first = await useProxy();
    const open = posenc.connect(plain);
    await assert.rejects(open.getServerInfo({ timeoutMs: 10000 }), { code: "UNAVAILABLE" });
    open.close();
    assert.ok(first.connections > 0, "without a token the proxy is asked");
    // The second call uses another proxy, because the first client may still be retrying.
    const second = await useProxy();
    assert.ok((await posenc.connect(plain, { token: "t" }).getServerInfo({ timeoutMs: 10000 })).version);
    assert.strictEqual(second.connections, 0);
  });

  test("NameTheFileThatCannotBeUsed", () => {
    const missing = path.join(folder, "missing");
    assert.throws(() => posenc.connect(target, { tls: { caFile: missing } }), {
      field: "tls.caFile",
      message: /missing/,
    });
    assert.throws(() => posenc.connect(target, { tls: { certFile: ours.cert } }), { field: "tls.keyFile" });
    assert.throws(() => posenc.connect("localhost:1", { tokenFile: missing }), { field: "tokenFile" });
    assert.throws(() => posenc.connect("localhost:1", { token: "two words" }), { field: "token" });
    assert.throws(() => posenc.connect("localhost:1", { token: "a", tokenFile: "b" }), { field: "tokenFile" });
  });

  test("ComeFromTheEnvironment", async (t) => {
    const set = { POSENC_SERVER: target, POSENC_TLS_CA: ours.ca, POSENC_TOKEN: "good-token" };
    Object.assign(process.env, set);
    t.after(() => Object.keys(set).forEach((name) => delete process.env[name]));
    assert.ok((await posenc.fromEnv().getServerInfo()).version);
    delete process.env.POSENC_TOKEN;
    await assert.rejects(posenc.fromEnv().getServerInfo(), { code: "UNAUTHENTICATED" });
  });
});
