"""From runs to text: the table, and what became of the targets."""
import statistics
import textwrap

WIDTH = 100
AGENT_KB_MAX = 8 * 1024
OUTPUT_RATIO_MIN = 2.0


def seconds(value):
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def launch_entry(cell, launcher):
    if not launcher.launch:
        return ""
    return seconds(cell.of_runs("wall")) if cell.runs else cell.mark()


def output_entries(cell, launcher):
    """MB/s, and lines broken or missing."""
    if not launcher.output:
        return "", ""
    if not cell.runs:
        return cell.mark(), ""
    return f"{cell.of_runs('mb_s'):.0f}", f"{cell.of_runs('broken'):,.0f}"


def memory_entry(bench, launcher):
    found = bench.memory.get(launcher.key)
    return f"{found[0][1]:,}" if found else ""


def header_lines(bench, facts, shape):
    options = bench.options
    others = ("" if facts["others"] is None else
              f"; other programs took {facts['others'] * 100:.0f} % of the processors meanwhile")
    text = [
        f"Median of {options.runs} interleaved runs. Hosts x slots: wall seconds of /bin/true. "
        f"line, block: MB/s when {shape.ranks} ranks on {shape.hosts} hosts write "
        f"{options.rank_bytes // 1_000_000} MB each to stdout, a pipe, one line of 80 bytes or "
        "64 KiB at a time: the ranks' own bytes over the whole time of the command. broken: lines "
        "broken or missing. kB: resident memory of the launcher's process on each host, the "
        "largest.",
        f"Machine: {facts['cores']} x {facts['processor']}, {facts['kernel']}; load "
        f"{facts['load_before']:.1f} before, {facts['load_after']:.1f} after{others}; "
        f"{facts['minutes']:.0f} min."]
    return [line for paragraph in text for line in textwrap.wrap(paragraph, WIDTH)] + [""]


def rows(bench, absent):
    shapes = [shape.name for shape in bench.options.shapes]
    yield ["launcher", "version", *shapes,
           *(word for writer in bench.options.writers for word in (writer, "broken")),
           "kB"]
    for launcher in bench.launchers:
        row = [launcher.label, launcher.version]
        for shape in shapes:
            row.append(launch_entry(bench.cells[launcher.key, shape], launcher))
        for writer in bench.options.writers:
            row += output_entries(bench.cells[launcher.key, writer], launcher)
        yield row + [memory_entry(bench, launcher)]
    for launcher in absent:
        yield [launcher.label, "not installed"]


def columns_of(table):
    """Lines of a table whose first two columns are words and the others figures."""
    widths = [max(len(row[i]) for row in table if i < len(row) and row[i] != "not installed")
              for i in range(len(table[0]))]
    return ["  ".join(entry.ljust(width) if i < 2 else entry.rjust(width)
                      for i, (entry, width) in enumerate(zip(row, widths))).rstrip()
            for row in table]


def notes(bench):
    """What a median hides."""
    for (key, column), cell in bench.cells.items():
        if cell.failures:
            last = cell.failures[-1]
            said = last["errors"].splitlines()[-1:] or ["it said nothing"]
            why = f"status {last['status']}: {said[0]}" if last["in_time"] else "ran out of time"
            count = len(cell.runs) + len(cell.failures)
            yield f"{key} {column}: {len(cell.failures)} of {count} runs failed; the last: {why}"
        elif 0 < len(cell.runs) < bench.options.runs:
            yield f"{key} {column}: only {len(cell.runs)} runs, being slow"
        if cell.left:
            yield f"{key} {column}: left {cell.left} processes on the hosts"


def paired_ratio(ours, theirs, name):
    """Median over rounds of ours / theirs: what disturbs a round disturbs both."""
    by_round = {run["round"]: run[name] for run in theirs.runs}
    ratios = [run[name] / by_round[run["round"]] for run in ours.runs if run["round"] in by_round]
    return statistics.median(ratios) if ratios else None


def verdict(met):
    return "met" if met else "MISSED"


def launch_targets(bench):
    for shape in bench.options.shapes:
        dtrun = bench.cells.get(("dtrun", shape.name))
        loop = bench.cells.get(("ssh", shape.name))
        ratio = paired_ratio(dtrun, loop, "wall") if dtrun and loop else None
        if ratio is None:
            continue
        yield f"launch {shape.name}: never slower than the ssh loop (curve25519)", \
              f"{ratio:.2f} x its time", ratio <= 1


def output_targets(bench):
    for writer in bench.options.writers:
        dtrun, hydra = (bench.cells.get((key, writer)) for key in ("dtrun", "hydra"))
        ratio = paired_ratio(dtrun, hydra, "mb_s") if dtrun and hydra else None
        if ratio is not None:
            yield f"output {writer}: prefixed, at least {OUTPUT_RATIO_MIN:g} x Hydra unprefixed", \
                  f"{ratio:.2f} x its MB/s", ratio >= OUTPUT_RATIO_MIN
        if dtrun and dtrun.runs:
            broken = max(run["broken"] for run in dtrun.runs)
            yield f"output {writer}: every line whole", f"{broken} broken", broken == 0


def memory_targets(bench):
    found = bench.memory.get("dtrun")
    if found:
        text = " + ".join(f"{kilobytes:,} kB {'guard' if place else 'agent'}"
                          for place, (_, kilobytes) in enumerate(found))
        met = found[0][1] <= AGENT_KB_MAX
        yield f"memory: agent at most {AGENT_KB_MAX:,} kB resident", text, met


def target_lines(bench):
    targets = [*launch_targets(bench), *output_targets(bench), *memory_targets(bench)]
    return [f"{what:<58}  {figure:<32}{verdict(met)}" for what, figure, met in targets]


def first_line(bench):
    if not bench.first:
        return []
    runs = ", ".join(f"{seconds(wall)} s on {shape}" for shape, wall in bench.first.items())
    text = (f"dtrun's first run on fresh hosts copies the agent to them: {runs} (a column's hosts "
            "include those of the columns before it).")
    return textwrap.wrap(text, WIDTH)


def report(bench, absent, facts, shape):
    lines = header_lines(bench, facts, shape) + columns_of(list(rows(bench, absent)))
    lines += [""] + first_line(bench) + list(notes(bench)) + [""] + target_lines(bench)
    return "\n".join(lines)


def cpu_table(bench):
    """Processor seconds that all hosts and the head used in a run: less noisy than wall time."""
    columns = [column for column, _, _ in bench.columns()]
    table = [["processor seconds", "", *columns]]
    for launcher in bench.launchers:
        found = [bench.cells[launcher.key, column].of_runs("cpu") for column in columns]
        table.append([launcher.label, "", *("" if cpu is None else seconds(cpu) for cpu in found)])
    return "\n" + "\n".join(columns_of(table))
