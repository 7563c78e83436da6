"""The manual pages that dtrun prints, as Markdown: of roff's language only what launcher/cli/man.cpp writes."""

import re

LETTERS = {"\\(ti": "~", "\\(ha": "^", "\\(ga": "`", "\\-": "-", "\\&": "", "\\e": "\\"}
# Of a command's options only what begins a row is a name: "-np, --num-proc N".
NAME = re.compile(r"--?[A-Za-z][\w-]*")


def plain(text):
    for written, meant in LETTERS.items():
        text = text.replace(written, meant)
    return text


def code(text):
    """In a code span, whatever it holds."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{' ' if '`' in text else ''}{text}{' ' if '`' in text else ''}{fence}"


def prose(text):
    """What Markdown would take for its own is escaped; what reads as an option or a command is code."""
    parts = re.split(r"`([^`]+)`", text)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"([\\*_<>\[\]|$~#])", r"\\\1", parts[at])
        parts[at] = re.sub(r"(?<![\w\\-])(--[a-z][a-z-]*[a-z])", r"`\1`", parts[at])
    for at in range(1, len(parts), 2):
        parts[at] = f"`{parts[at]}`"
    return "".join(parts)


class Markdown:
    """One manual page, line by line."""

    def __init__(self):
        self.lines = []
        self.as_is = self.term = False

    def of(self, roff):
        for line in roff.splitlines():
            if line.startswith(".") and not line.startswith(".\\"):
                self.ordered(*line[1:].split(" ", 1))
            else:
                self.text(plain(line))
        return "\n".join(self.lines) + "\n"

    def ordered(self, name, rest=""):
        rest = plain(rest.strip('"'))
        if name == "SH":
            self.lines += ["", f"## {rest.capitalize()}", ""]
        elif name == "SS":
            self.lines += ["", f"### {rest}", ""]
        elif name in ("nf", "fi"):
            self.as_is = name == "nf"
            self.lines += ["", "```text"] if self.as_is else ["```", ""]
        elif name == "TP":
            self.term = True
        elif name in ("B", "I") and self.term:
            self.lines += ["", code(rest)]
            self.term = "definition"
        elif name in ("B", "I"):
            self.text(rest)
        elif name in ("PP", "br"):
            self.lines.append("")
        elif name == "BR":
            page = rest.split(" ")[0]
            self.lines.append(f"- [{page}]({page}.md)")

    def text(self, text):
        if self.as_is:
            self.lines.append(text)
        elif self.term == "definition":
            self.lines.append(": " + prose(text))
            self.term = False
        else:
            self.lines.append(("  " if self.lines and self.lines[-1].startswith((": ", "  ")) else "") + prose(text))


def page(name, roff):
    """A manual page of that name, under a heading of its own."""
    return f"# {name.replace('dtrun-', 'dtrun ')}\n" + Markdown().of(roff)
