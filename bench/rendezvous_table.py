"""From runs to text: the tables, and what became of the targets."""
import functools
import statistics
import textwrap

from launch_table import verdict

WIDTH = 100
LOAD_BUSY_MAX = 0.95  # of a processor: from there on the load may be what limits
OPS_RATIO_MIN = 2.0
OPS_CLIENTS = 64
LARGEST = 16384
BARRIER_MS_MAX = 20
CONNECT_S_MAX = 1
HEAD_BYTES_MAX = 2048


def dig(run, path):
    for name in path:
        run = run[name]
    return run


def number(value):
    """With three digits that count, in at most six characters below 100,000."""
    if value is None:
        return ""
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def people(clients):
    return f"{clients:,} client" + ("s" if clients > 1 else "")


def server_us(cell):
    """Of processor, of all processes of the server, an operation."""
    return statistics.median(sum(use["cpu_us"] for name, use in run["processes"].items()
                                 if name != "load") for run in cell.runs)


def load_busy(cell):
    """Share of one processor that the load has used."""
    return cell.value("processes", "load", "cpu_us") * cell.value("ops_per_s") * 1e-6


def bytes_per_client(process, clients, cell):
    """By which a process has grown since before the first connection; None: no such process."""
    if not cell.runs or process not in cell.runs[0]["processes"]:
        return None
    before, after = (statistics.median(run["processes"][process]["pss_kb"][i] for run in cell.runs)
                     for i in (0, 1))
    return max(0.0, after - before) * 1024 / clients


class Column:
    """A figure of a workload, for one number of clients."""

    def __init__(self, bench, workload, clients, heading, figure, is_first):
        self.bench, self.workload, self.clients = bench, workload, clients
        self.heading, self.figure, self.is_first = heading, figure, is_first

    def entry(self, peer):
        cell = self.bench.cells[peer.key, self.workload, self.clients]
        if cell.runs:
            return number(self.figure(cell))
        if not self.is_first:
            return ""
        if cell.timed_out:
            return ">10 s"
        return "-" if cell.skipped else "failed"


def columns_of(bench, workload, clients, figures):
    return [Column(bench, workload, clients, heading, figure, i == 0)
            for i, (heading, figure) in enumerate(figures)]


def table(bench, columns):
    """A row for each peer; the numbers of clients stand above their columns."""
    rows = [[""] + [f"{column.clients:,}" if column.is_first else "" for column in columns],
            ["clients"] + [column.heading for column in columns]]
    rows += [[peer.label] + [column.entry(peer) for column in columns] for peer in bench.peers]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(entry.ljust(width) if i == 0 else entry.rjust(width)
                      for i, (entry, width) in enumerate(zip(row, widths))).rstrip()
            for row in rows]


def section(bench, workload, title, *figures):
    """A table with all figures, each (heading, function of a cell), for each size."""
    sizes = bench.options.sizes.get(workload)
    if not sizes:
        return []
    columns = [column for clients in sizes
               for column in columns_of(bench, workload, clients, figures)]
    return textwrap.wrap(title, WIDTH) + table(bench, columns) + [""]


def setget_lines(bench):
    rate = section(
        bench, "setget", "set/get: thousand operations a second; processor time of the server's "
        "processes and of the load for each operation, in us",
        ("kops/s", lambda cell: cell.value("ops_per_s") * 1e-3), ("server", server_us),
        ("load", lambda cell: cell.value("processes", "load", "cpu_us")))
    latency = section(
        bench, "setget", "set/get: latency in us",
        ("p50", lambda cell: cell.value("latency_us", "p50")),
        ("p99", lambda cell: cell.value("latency_us", "p99")),
        ("max", lambda cell: cell.value("latency_us", "max")))
    return rate + latency


def barrier_lines(bench):
    return section(
        bench, "barrier", "barrier: ms from the last arrival to the release, p50 and p99 over "
        "clients and repetitions; whole: from the first arrival to the last release, p50",
        ("p50", lambda cell: cell.value("release_us", "p50") * 1e-3),
        ("p99", lambda cell: cell.value("release_us", "p99") * 1e-3),
        ("whole", lambda cell: cell.value("whole_us", "p50") * 1e-3))


def connect_lines(bench):
    return section(
        bench, "connect", "connect: ms until all clients can be used; processor time of the "
        "server's processes for each, in us",
        ("ms", lambda cell: cell.value("seconds") * 1e3), ("server", server_us))


def memory_sizes(bench):
    """(workload, the most clients)."""
    return [(workload, max(bench.options.sizes[workload])) for workload in ("connect", "barrier")
            if bench.options.sizes.get(workload)]


def memory_lines(bench):
    sizes = memory_sizes(bench)
    if not sizes:
        return []
    names = sorted({name for cell in bench.cells.values() for run in cell.runs
                    for name in run["processes"]} - {"load"}, key=lambda name: name != "head")
    columns = []
    for workload, clients in sizes:
        figures = [(f"{workload}: {name}", functools.partial(bytes_per_client, name, clients))
                   for name in names]
        columns += columns_of(bench, workload, clients, figures)
    title = ("memory: bytes for each client, by which a server's processes have grown (PSS), when "
             "all are connected, and after the barriers; not what the kernel keeps for sockets")
    return textwrap.wrap(title, WIDTH) + table(bench, columns) + [""]


def paired_ratio(ours, theirs, *path):
    """Median over rounds of ours / theirs: what disturbs a round disturbs both."""
    by_round = {run["round"]: dig(run, path) for run in theirs.runs}
    ratios = [dig(run, path) / by_round[run["round"]]
              for run in ours.runs if run["round"] in by_round]
    return statistics.median(ratios) if ratios else None


class Contest:
    """dtrun, by the better of its rows, against the best of the others in one figure."""

    def __init__(self, bench, workload, clients, path, best):
        def figure(row):
            return row[1].value(*path)

        rows = [(peer, cell) for peer in bench.peers
                if (cell := bench.cells[peer.key, workload, clients]).runs]
        ours = [row for row in rows if row[0].protocol == "dtrun"]
        theirs = [row for row in rows if row[0].protocol != "dtrun"]
        self.ours = best(ours, key=figure) if ours else None
        self.theirs = best(theirs, key=figure) if theirs else None
        self.value = figure(self.ours) if ours else None
        self.ratio = paired_ratio(self.ours[1], self.theirs[1], *path) if ours and theirs else None

    def text(self):
        return f"{self.ours[0].label}: {number(self.ratio)} x {self.theirs[0].label}"


def contests(bench, workload, path, best):
    for clients in bench.options.sizes.get(workload, []):
        contest = Contest(bench, workload, clients, path, best)
        if contest.ours:
            yield clients, contest


def target_rows(bench):
    """(what, figure, met or None if it is no target)."""
    for clients, contest in contests(bench, "setget", ("ops_per_s",), max):
        if contest.ratio is not None:
            is_target = clients == OPS_CLIENTS
            wish = f", > {OPS_RATIO_MIN:g} x the best" if is_target else ""
            yield f"set/get, {people(clients)}: operations a second{wish}", contest.text(), \
                contest.ratio > OPS_RATIO_MIN if is_target else None
    for clients, contest in contests(bench, "barrier", ("release_us", "p99"), min):
        value_ms = contest.value * 1e-3
        if clients == LARGEST:
            yield f"barrier, {people(clients)}: p99 of release <= {BARRIER_MS_MAX} ms", \
                f"{contest.ours[0].label}: {value_ms:.1f} ms", value_ms <= BARRIER_MS_MAX
        if contest.ratio is not None:
            yield f"barrier, {people(clients)}: p99 of release, < the best", contest.text(), \
                contest.ratio < 1
    for clients, contest in contests(bench, "connect", ("seconds",), min):
        if clients == LARGEST:
            yield f"connect, {people(clients)}: <= {CONNECT_S_MAX} s", \
                f"{contest.ours[0].label}: {contest.value:.2f} s", contest.value <= CONNECT_S_MAX
        if contest.ratio is not None:
            yield f"connect, {people(clients)}: time", contest.text(), None
    yield from memory_target(bench)


def memory_target(bench):
    for peer in bench.peers:
        found = [bytes_per_client("head", clients, bench.cells[peer.key, workload, clients])
                 for workload, clients in memory_sizes(bench) if clients == LARGEST]
        found = [value for value in found if value is not None]
        if peer.protocol == "dtrun" and found:
            yield f"memory, {people(LARGEST)}: head <= {HEAD_BYTES_MAX:,} B for each", \
                f"{peer.label}: {max(found):,.0f} B", max(found) <= HEAD_BYTES_MAX


def target_lines(bench):
    return [f"{what:<56}  {figure:<34}{'' if met is None else verdict(met)}".rstrip()
            for what, figure, met in target_rows(bench)]


def notes(bench, absent):
    """What the tables do not say."""
    for peer, why in absent:
        yield f"{peer.label}: not measured: {why}"
    for (key, workload, clients), cell in bench.cells.items():
        if cell.failures:
            count = len(cell.runs) + len(cell.failures)
            yield (f"{key} {workload} {clients}: {len(cell.failures)} of {count} runs failed; the "
                   f"last: {cell.failures[-1]}")
        if workload == "setget" and cell.runs and load_busy(cell) > LOAD_BUSY_MAX:
            yield f"{key} {workload} {clients}: the load used up its processor and may be the limit"
    if any(cell.skipped for cell in bench.cells.values()):
        yield "-: not tried, because fewer clients took too long already"


def agents_text(bench):
    """How dtrun's ranks were spread."""
    sizes = sorted({clients for sizes in bench.options.sizes.values() for clients in sizes})
    for peer in bench.peers:
        if peer.protocol == "dtrun":
            shapes = ["{} x {}".format(*peer.shape(clients)) for clients in sizes]
            return f" dtrun's agents x ranks of each: {', '.join(shapes)}."
    return ""


def header_lines(bench, facts):
    options = bench.options
    versions = ", ".join(f"{peer.label} {peer.version}" for peer in bench.peers
                         if peer.key not in ("dtrun-tree", "redis-unix"))
    text = [
        f"Median of {options.rounds} interleaved rounds, a fresh server for each run, all on "
        f"loopback. {versions}.{agents_text(bench)}",
        f"Machine: {facts['cores']} x {facts['processor']}, {facts['kernel']}; load "
        f"{facts['load_before']:.1f} before, {facts['load_after']:.1f} after; other programs took "
        f"{facts['others'] * 100:.0f} % of the processors meanwhile; {facts['minutes']:.0f} min; "
        f"{options.descriptors:,} descriptors for each process."]
    return [line for paragraph in text for line in textwrap.wrap(paragraph, WIDTH)] + [""]


def report(bench, absent, facts):
    lines = header_lines(bench, facts) + setget_lines(bench) + barrier_lines(bench)
    lines += connect_lines(bench) + memory_lines(bench)
    for note in notes(bench, absent):
        lines += textwrap.wrap(note, WIDTH, subsequent_indent="    ")
    return "\n".join(lines + [""] + target_lines(bench)).rstrip()
