import posenc, { type CallOptions, connect, PosencError, type Tensor, tensor } from "posenc";

export async function rotate(qs: Float32Array, ks: Uint16Array): Promise<Tensor | undefined> {
  const options: CallOptions = { timeoutMs: 1000, signal: new AbortController().signal };
  const rope = await connect("localhost:50051").rope({ configFile: "config.json", profile: "vllm" }, options);
  const theta: number | undefined = rope.spec?.ropeTheta;
  try {
    const q = tensor(qs, [1, 4, 2, 8]);
    const { k } = await rope.apply({
      q,
      k: tensor(ks, [1, 4, 1, 8], "bfloat16"),
      start: theta ? 0 : 1,
      layout: "bshd",
      out: { q: qs },
    });
    // @ts-expect-error: a mistyped option does not compile
    await rope.apply({ q, start: 0, layot: "bshd" });
    // @ts-expect-error: a layout that does not exist does not compile
    await rope.apply({ q, start: 0, layout: "bsdh" });
    for await (const tile of posenc
      .connect("h:1")
      .buildBiasTiles({ bias: { alibi: { heads: 8 } }, queryLength: 4n, keyLength: 4 })) {
      const first: number = tile.queryStart;
      console.log(first, tile.tile?.shape);
    }
    return k;
  } catch (error) {
    if (error instanceof PosencError && error.reason === "FIELD_REQUIRED") console.log(error.field, error.requestId);
    throw error;
  }
}

export async function onThisMachine(): Promise<string | undefined> {
  await using client = await posenc.local({ threads: 1, flags: ["--log-calls=1"] });
  return posenc.local(async (other) => client.target + (await other.getServerInfo()).version);
}
