"""From runs to text, for all benchmarks: medians, turns, ratios by rounds, columns, and what became of the targets.

A run is a dictionary with its "round"; what disturbs a round disturbs all who take turns in it, so ratios are medians
over rounds, each against itself.
"""
import statistics
import textwrap

WIDTH = 100


def median(values):
    """Without those that are None; None if there are no others."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def p95(values):
    return sorted(values)[max(0, -(-len(values) * 95 // 100) - 1)] if values else None


def in_turns(items, number):
    """All of them, in another order in each round."""
    turn = number % max(1, len(items))
    return items[turn:] + items[:turn]


def ratios(ours, theirs, value):
    """Ours by theirs, for each round that both have. :param value: of a run"""
    by_round = {run["round"]: value(run) for run in theirs}
    return [value(run) / by_round[run["round"]] for run in ours if run["round"] in by_round]


def paired_ratio(ours, theirs, value):
    return median(ratios(ours, theirs, value))


def seconds(value, below_ten=3):
    return "-" if value is None else f"{value:.{below_ten}f}" if value < 10 else f"{value:.1f}"


def number(value):
    """With three digits that count, in at most six characters below 100,000."""
    if value is None:
        return ""
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def times(ratio):
    return "" if ratio is None else f"{ratio:.2f} x"


def columns(rows, words=1):
    """Lines of a table. The first `words` columns are words, the others figures; a row that ends with text in its last
    word has nothing to the right of it."""
    full = max(len(row) for row in rows)
    widths = [max(len(row[i]) for row in rows if i < len(row) and (len(row) == full or i < words - 1))
              for i in range(full)]
    return ["  ".join(entry.ljust(width) if i < words else entry.rjust(width)
                      for i, (entry, width) in enumerate(zip(row, widths))).rstrip() for row in rows]


def wrapped(*paragraphs, indent=""):
    return [line for text in paragraphs for line in textwrap.wrap(text, WIDTH, subsequent_indent=indent)]


def machine(facts):
    """What figures depend on besides that which is measured."""
    others = ("" if facts["others"] is None else
              f"; other programs took {facts['others'] * 100:.0f} % of the processors meanwhile")
    return (f"Machine: {facts['cores']} x {facts['processor']}, {facts['kernel']}; load {facts['load_before']:.1f} before, "
            f"{facts['load_after']:.1f} after{others}; {facts['minutes']:.0f} min.")


def failed_runs(name, cell):
    """What a median hides: failures of a cell's commands, and what they left."""
    if cell.failures:
        last = cell.failures[-1]
        said = last["errors"].splitlines()[-1:] or ["it said nothing"]
        why = f"status {last['status']}: {said[0]}" if last["in_time"] else "ran out of time"
        yield f"{name}: {len(cell.failures)} of {len(cell.runs) + len(cell.failures)} runs failed; the last: {why}"
    if cell.left:
        yield f"{name}: left {cell.left} processes on the hosts"


class Targets:
    """What was wished for, what was found, and whether that is enough. A figure of None is not told."""

    def __init__(self):
        self.rows = []

    def add(self, what, figure, met):
        """:param met: None: it is no target"""
        self.rows.append((what, figure, "" if met is None else "met" if met else "MISSED"))

    def at_most(self, what, value, limit, text="{:.2f}"):
        if value is not None:
            self.add(what, text.format(value), value <= limit)

    def at_least(self, what, value, limit, text="{:.2f}"):
        if value is not None:
            self.add(what, text.format(value), value >= limit)

    def lines(self):
        return columns(self.rows, words=3) if self.rows else []
