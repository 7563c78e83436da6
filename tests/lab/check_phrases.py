"""check_phrases.py SOURCES: what the lab says of runs in English can be said in Chinese.

Looks at each sentence among the texts of the sources whose messages come into reports: it is a row of words.def or of
phrases.def, or one of those that no reader of a report sees, which are named here.
"""
import os
import re
import sys

SOURCES = sys.argv[1]
FOLDERS = ("lab/report", "lab/run", "lab/rank")
FILES = ("lab/names.cpp", "lab/plan/plan.cpp", "collectives/backends/choose.cpp", "collectives/backends/plugin_files.cpp",
         "collectives/backends/native/group.cpp", "collectives/backends/tcp/group.cpp",
         "collectives/backends/gloo/group.cpp", "collectives/backends/mpi/plugin.cpp",
         "collectives/backends/mpi/runtime.cpp", "collectives/backends/nccl/facts.cpp",
         "collectives/backends/nccl/library.cpp", "collectives/backends/oneccl/plugin.cpp",
         "collectives/backends/oneccl/library.cpp")
# By file: texts that stand in no report, by how they begin.
ELSEWHERE = {
    "lab/report/html.cpp": ("number bad",),  # of the page's style
    "lab/rank/fact_parsers.cpp": ("model name", "cpu model"),  # of /proc/cpuinfo
    "lab/rank/host_facts.cpp": ("import sys", "from importlib", "for name in"),  # a program in Python
    # What `dtrun bench` would have to call wrongly.
    "lab/rank/options.cpp": ("each thing that", "dtrun-bench-rank", "[--dtypes", "[--compress", "sweep has no option",
                             "pairs has no option", "a program has no option", "facts has no option"),
    "lab/rank/rank_comm.h": ("ended early",),  # to the other ranks
    "collectives/backends/choose.cpp": ("dtrun collectives", "a rank's facts are cut off"),  # what ranks exchange
    "collectives/backends/native/group.cpp": ("lost rank",),
    "collectives/backends/gloo/group.cpp": ("it was ended",),
    "collectives/backends/nccl/facts.cpp": ("Open Kernel",),  # of /proc
}
# Names, and what is put together of rows with names in their places.
NAMES = ("GPUDirect RDMA", "GPUDirect P2P", "chosen by {}{}{}", "no backend is there for all ranks{}")
TEXT = re.compile(r'//[^\n]*|R"(\w*)\((?:.|\n)*?\)\1"|\'(?:\\.|[^\'\\])\'|"(?:\\.|[^"\\\n])*"(?:\s*(?:DTRUN_VERSION\s*)?"(?:\\.|[^"\\\n])*")*')
ROW = re.compile(r'^(WORD|PHRASE|FACT)\((.*?)\)\n(?=WORD|PHRASE|FACT|//|\n|$)', re.M | re.S)


def literals(source):
    """Texts between quotes, those that stand behind each other as one; not those of #include."""
    source = re.sub(r"^\s*#\s*include.*$", "", source, flags=re.M)
    for found in TEXT.finditer(source):
        text = found.group(0)
        if text.startswith('"'):
            parts = re.findall(r'"((?:\\.|[^"\\\n])*)"|(DTRUN_VERSION)', text)
            yield "".join(part if not version else "1" for part, version in parts).replace('\\"', '"').replace("\\n", "\n")


def known_texts():
    """English texts of both tables, and patterns that match whole lines."""
    texts, patterns = [], []
    for name in ("words", "phrases"):
        with open(f"{SOURCES}/lab/report/{name}.def") as file:
            for kind, row in ROW.findall(file.read()):
                english = list(literals(row))[0]
                texts.append(re.sub(r"{\d(:d)?}", "{}", english))
                pattern = re.escape(english)
                pattern = re.sub(r"\\{\d:d\\}", r"\\d+", pattern)
                patterns.append(re.compile(re.sub(r"\\{\d\\}", r"(?:.+)", pattern)))
    return texts, patterns


def is_sentence(text):
    return re.search(r"[A-Za-z]{2,}'?[a-z]*[,;:]? [A-Za-z]{2,}", text) is not None


def main():
    texts, patterns = known_texts()
    assert len(texts) > 300, len(texts)
    files = list(FILES)
    for folder in FOLDERS:
        files += sorted(f"{folder}/{name}" for name in os.listdir(f"{SOURCES}/{folder}") if name.endswith((".cpp", ".h")))
    missing, unused = [], {(file, begin) for file, begins in ELSEWHERE.items() for begin in begins}
    for name in files:
        with open(f"{SOURCES}/{name}") as file:
            source = file.read()
        for text in literals(source):
            for line in text.split("\n"):
                line = re.sub(r"<[^<>]*>?", "", line)
                if not is_sentence(line) or line in NAMES:
                    continue
                plain = re.sub(r"{[^{}]*}", "{}", line).strip()
                sample = plain.replace("{}", "1")
                if any(plain in known for known in texts) or any(p.fullmatch(sample) for p in patterns):
                    continue
                begins = [begin for begin in ELSEWHERE.get(name, ()) if line.strip().startswith(begin)]
                unused -= {(name, begin) for begin in begins}
                if not begins:
                    missing.append(f"{name}: {line!r}")
    assert not missing, "no row of lab/report/phrases.def for\n" + "\n".join(missing)
    assert not unused, f"nothing of these is said any more: {unused}"


main()
