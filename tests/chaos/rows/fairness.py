"""R7: one client that offers five times the capacity, beside ten small clients."""
from process import Server
from world import failures, ms, within


def run(world):
    # The server listens on TCP, because peers on a unix socket share one name.
    with Server(world, "--in-flight-bytes", "256MiB", "--max-request-bytes", "64MiB",
                "--max-response-bytes", "64MiB", tcp=True) as server:
        seconds = world.size(4, 15)

        def small():
            return world.offer(server, rpc="BuildTable", size="256KiB", rate=200, connections=10,
                               seconds=seconds, deadline_ms=1000)

        peak = world.throughput(server, "BuildTable", "4MiB")
        alone = small().wait()
        large = world.offer(server, rpc="BuildTable", size="4MiB", rate=5 * peak, connections=1,
                            seconds=seconds + 1, deadline_ms=1000)
        beside = small().wait()
        greedy = large.wait()
        bound = max(2 * (alone["good_p99_ms"] or 0), 20)
        bad = failures(beside)
        world.add("R7", "ten small clients beside one at 5x: their calls", "0 fail",
                  f"{bad} of {beside['due']} fail", bad == 0)
        world.add("R7", "their p99", f"{ms(bound)} (2x alone, at least 20 ms)",
                  f"{ms(beside['good_p99_ms'])} (alone {ms(alone['good_p99_ms'])})",
                  within(beside["good_p99_ms"], bound))
        world.add("R7", "the large client is not starved", "more than 0",
                  f"{greedy['good_per_second']:.0f} of {peak:.0f}/s", greedy["good"] > 0)
