import type { ApplyRopeArguments, BuildTableArguments, RepositionArguments } from "./arguments";
import type { CallOptions } from "./calls";
import type { Client, Rotated } from "./client";
import type { BuildTableResponse, ResolveRopeResponse } from "./messages";
import type { Rope as RopeArgument } from "./source";
import type { Tensor } from "./tensor";

/** An encoding that was resolved once. Calls send its specification, which is short and needs no parsing. */
export class Rope {
  constructor(
    private readonly client: Client,
    /** What calls send as the encoding. */
    readonly source: RopeArgument,
    /** Frequencies, assumptions and warnings; absent if only a tensor's head_dim makes the encoding complete. */
    readonly resolved: ResolveRopeResponse | undefined,
  ) {}

  /** The complete specification. */
  get spec(): ResolveRopeResponse["spec"] {
    return this.resolved?.spec;
  }

  /** Rotates q, k or both; see Client.applyRope. */
  apply(given: Omit<ApplyRopeArguments, "rope">, options?: CallOptions): Promise<Rotated> {
    return this.client.applyRope({ ...given, rope: this.source }, options);
  }

  /** Moves keys that this encoding rotated; see Client.reposition. */
  reposition(given: Omit<RepositionArguments, "oldRope">, options?: CallOptions): Promise<Tensor> {
    return this.client.reposition({ ...given, oldRope: this.source }, options);
  }

  /** Rows of cosines and sines, from position 0 unless it is given; see Client.buildTable. */
  table(given: Omit<BuildTableArguments, "rope" | "absolute">, options?: CallOptions): Promise<BuildTableResponse> {
    const { start, starts, ids, packed, positions } = given ?? {};
    const anywhere = [start, starts, ids, packed, positions].every((each) => each === undefined);
    return this.client.buildTable({ ...given, ...(anywhere ? { start: 0 } : {}), rope: this.source }, options);
  }
}
