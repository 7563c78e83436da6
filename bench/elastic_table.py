"""From samples to text: the table of `./dev bench elastic`, and what became of the targets."""
import statistics

TITLES = {"rank": "a rank is killed", "host": "a host is killed", "cut": "a host is cut off, silently",
          "add": "a host is added, whose rank imports for 3 s", "remove": "a host is removed from the list"}


def median(values):
    return statistics.median(values) if values else None


def p95(values):
    return sorted(values)[max(0, -(-len(values) * 95 // 100) - 1)] if values else None


def seconds(value):
    return "-" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def rows(cells, part):
    yield ("launcher", "n", "p50", "p95", "lost steps", "pause at return", "left", "failures")
    for (key, name), cell in cells.items():
        if name != part:
            continue
        failures = {text: cell.failures.count(text) for text in cell.failures}
        yield (key, str(len(cell.seconds)), seconds(median(cell.seconds)), seconds(p95(cell.seconds)),
               str(max(cell.lost, default="-")), f"{seconds(median(cell.pauses))} / {seconds(p95(cell.pauses))}",
               str(cell.left), "; ".join(f"{count} x {text}" for text, count in failures.items()) or "none")


def table(lines):
    widths = [max(len(row[i]) for row in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip() for row in lines)


class Targets:
    def __init__(self, cells):
        self.cells = cells
        self.lines = []

    def of(self, key, part, name="seconds"):
        """Median; for a peer that never came through, what it took at least."""
        cell = self.cells.get((key, part))
        if cell is None:
            return None
        values = getattr(cell, name)
        if not values and name == "seconds" and any(text.startswith("> ") for text in cell.failures):
            return float(next(text for text in cell.failures if text.startswith("> ")).split()[1])
        return median(values)

    def at_most(self, text, value, limit, unit=" s"):
        if value is not None:
            verdict = "met" if value <= limit else "MISSED"
            self.lines.append(f"{text}: {value:.2f}{unit} (target at most {limit}{unit}): {verdict}")

    def times(self, text, own, other, target):
        if own and other:
            verdict = "met" if other / own >= target else "MISSED"
            self.lines.append(f"{text}: {other / own:.1f} x as fast (target {target} x): {verdict}")

    def all(self):
        of = self.of
        self.at_most("dtrun H, rank killed, p50", of("dtrun H", "rank"), 0.3)
        self.at_most("dtrun H, host killed, p50", of("dtrun H", "host"), 0.3)
        self.at_most("dtrun H, host cut, p50", of("dtrun H", "cut"), 3.5)
        self.at_most("dtrun H, host cut, --heartbeat-timeout 1, p50", of("dtrun H 1s", "cut"), 1.5)
        self.at_most("dtrun H, host added, pause of the others, p50", of("dtrun H", "add", "pauses"), 0.5)
        self.times("host killed, dtrun T against torchrun", of("dtrun T", "host"), of("torchrun", "host"), 10)
        self.times("host killed, dtrun T against torchrun tuned", of("dtrun T", "host"), of("torchrun tuned", "host"), 2)
        self.times("rank killed, dtrun H against horovodrun", of("dtrun H", "rank"), of("horovodrun", "rank"), 1)
        if cell := self.cells.get(("dtrun H", "rank")):
            jobs = len(cell.seconds) + len(cell.failures)
            self.lines.append(f"rank killed, dtrun H goes on after {len(cell.seconds)} of {jobs}: "
                              f"{'MISSED' if cell.failures else 'met'}")
        goodput = of("dtrun H", "goodput", "values")
        if goodput is not None:
            self.lines.append(f"dtrun H, goodput with an event each 15 s: {goodput:.0%} (target 85 %): "
                              f"{'met' if goodput >= 0.85 else 'MISSED'}")
        own, other = of("dtrun H", "idle", "values"), of("horovodrun", "idle", "values")
        if own is not None and other:
            self.lines.append(f"idle, processor time of dtrun by that of horovodrun: {own / other:.2f} (target at most 0.1): "
                              f"{'met' if own / other <= 0.1 else 'MISSED'}")
        return self.lines


def single(cells, part, title, text):
    found = [(key, cell) for (key, name), cell in cells.items() if name == part]
    if found:
        yield f"\n{title}"
        for key, cell in found:
            failures = f"; {', '.join(cell.failures)}" if cell.failures else ""
            yield f"  {key}: {', '.join(text(value) for value in cell.values) or '-'}{failures}; {cell.left} left"


def report(cells, options):
    lines = ["Seconds from the event to the first step of the last rank of the new world; how long the others paused when the\n"
             "host, or the rank, was there again; the most steps that were done twice; processes left on hosts."]
    for part, title in TITLES.items():
        found = list(rows(cells, part))
        if len(found) > 1:
            lines += [f"\n{title}", table(found)]
    lines += single(cells, "goodput", f"goodput: {options.goodput_s} s with an event each 15 s", lambda value: f"{value:.0%}")
    lines += single(cells, "idle", "idle: processor seconds of the launcher in a minute", lambda value: f"{value:.2f}")
    return "\n".join([*lines, "", *Targets(cells).all()])
