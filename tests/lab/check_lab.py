"""check_lab.py DTRUN: `dtrun bench` with a rank program that measures nothing, on this machine.

The rank program prints what FAKE says, as the real one would; ranks but 0 print nothing.
"""
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

DTRUN = os.path.abspath(sys.argv[1])

FAKE = r'''#!/bin/sh
# Facts of one host; gloo always works, mpi fails where there are 2 ranks, slow hangs, wrong is wrong.
[ "$DTRUN_RANK" = 0 ] || exit 0
verb=$1 backend= scaling=strong in_place= algorithm=parallel
shift
while [ $# -gt 0 ]; do
    case $1 in
        --backend) backend=$2 ;;
        --) ;;
        --compression) algorithm=$2 ;;
        --error-feedback) shift; continue ;;
        --seed) seed=$2 ;;
        --scaling) scaling=$2 ;;
        --global-batch) batch=$2 ;;
        --in-place) in_place=1 ;;
        --sizes) sizes=$2 ;;
        --data) echo '{"type":"error","text":"no such folder"}'; exit 1 ;;
    esac
    shift 2
done
hosts=$((DTRUN_SIZE / DTRUN_LOCAL_SIZE))
shape="\"hosts\":$hosts,\"slots_per_host\":$DTRUN_LOCAL_SIZE,\"ranks\":$DTRUN_SIZE"
echo "a library prints this"
case $verb in
    facts)
        echo '{"type":"host","name":"here","cpu":"a & b <c>","cores":2,"gloo":"0.5"}'
        echo '{"type":"comm","backend":"gloo"}'
        echo '{"type":"error","text":"backend mpi: not installed"}'
        exit ;;
    train)
        [ "$scaling" = weak ] && batch=$((batch * DTRUN_SIZE))
        echo "{\"type\":\"train\",\"algorithm\":\"$algorithm\",\"backend\":\"$backend\",$shape,\"model\":\"mlp\",\"epochs\":2,\
\"step_ms\":$((12 / DTRUN_SIZE)),\"accuracy\":0.98,\"loss\":null,\"seed\":$seed,\"scaling\":\"$scaling\",\
\"global_batch\":$batch,\"samples_per_s\":$((1000 * DTRUN_SIZE)),\"init_unix_ms\":1700000000000,\
\"start_unix_ms\":1700000000500,\"by_epoch\":[\
{\"epoch\":1,\"seconds\":1,\"accuracy\":0.9$seed,\"ended_unix_ms\":1700000001500,\
\"tested_unix_ms\":1700000001600},\
{\"epoch\":2,\"seconds\":2,\"accuracy\":0.98,\"ended_unix_ms\":1700000002600,\"tested_unix_ms\":1700000002700}]}"
        exit ;;
    pairs)
        for from in 0 1; do
            echo "{\"type\":\"pair\",\"backend\":\"$backend\",$shape,\"from\":$from,\"to\":$((1 - from)),\
\"from_host\":\"h$from\",\"to_host\":\"h$((1 - from))\",\"latency_us\":25,\"bandwidth_GBps\":0.11$from}"
        done
        exit ;;
esac
[ "$backend" = mpi ] && [ "$DTRUN_SIZE" = 2 ] && { echo "mpi: cannot do that" >&2; exit 3; }
[ "$backend" = none ] && exit 0
[ "$backend" = glo ] && exit 3
wrong=0
[ "$backend" = wrong ] && wrong=5
echo "{\"type\":\"comm\",\"backend\":\"$backend\",$shape,\"transport\":\"thin air\",\"details\":{\"RDMA\":\"no: no card\"}}"
for bytes in $(echo "$sizes" | tr , ' '); do
    for placed in false ${in_place:+true}; do
    echo "{\"type\":\"row\",\"backend\":\"$backend\",\"in_place\":$placed,\"op\":\"allreduce\",\"dtype\":\"f32\",\"compression\":\"none\",$shape,\"bytes\":$bytes,\"t_min_us\":$bytes,\"t_p50_us\":$bytes,\"t_p99_us\":$bytes,\"algbw_GBps\":1,\"busbw_GBps\":1,\"wrong\":$wrong}"
    done
done
[ "$backend" = slow ] && { echo "$$" > "$PIDS/rank"; exec sleep 60; }
exit 0
'''


def run(*words, stdin=None, limit=60):
    done = subprocess.run([DTRUN, "bench", "--rank-program", "./rank", *words], capture_output=True, text=True,
                          timeout=limit, env={**os.environ, "PET_NNODES": "7"},
                          **({"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}))
    return done.returncode, done.stdout, done.stderr


def whole_lab():
    code, text, errors = run("--slots", "1,2,4", "--sizes", "4,1K", "--compress", "none,int8", "--train", "--explain",
                             "--json", "r.json", "--csv", "r.csv", "--markdown", "r.md", "--html", "r.html")
    assert (code, errors) == (0, ""), (code, errors)
    for part in ("# gloo: 1 host x 4 ranks, allreduce f32\n", "thin air", "RDMA", "backend mpi: not installed",
                 "\n  int8               gloo         1 x 2     6.000 ", "98.00 %"):
        assert part in text, (part, text)
    assert "a library" not in text
    with open("r.json") as file:
        report = json.load(file)
    assert [(row["ranks"], row["bytes"]) for row in report["rows"]] == [(2, 4), (2, 1024), (4, 4), (4, 1024)]
    assert [(run["algorithm"], run["ranks"]) for run in report["train"]] == [
        ("serial", 1), ("parallel", 2), ("parallel", 4), ("int8", 2), ("int8", 4)]
    assert report["host_facts"][0]["cpu"] == "a & b <c>" and report["failures"] == []
    assert report["command"].startswith("dtrun bench --rank-program ./rank --slots 1,2,4 ")
    with open("r.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 19 and rows[0]["t_p50_us"] == "4" and rows[4]["algorithm"] == "serial", rows
    assert [row["type"] for row in rows[9:]] == ["epoch"] * 10 and rows[9]["accuracy"] == "0.91", rows[9]
    with open("r.md") as file:
        assert "| gloo | 1 | 4 | 3.000 ms |" in file.read()
    with open("r.html") as file:
        page = file.read()
    assert "a &amp; b &lt;c&gt;" in page and page.count("<svg") >= 4
    written_again(text, page)


def written_again(text, page):
    """What --json has kept is made into the same reports, and into others, without a run."""
    code, again, errors = run("--from", "r.json", "--explain", "--html", "again.html", "--json", "again.json")
    assert (code, again, errors) == (0, text, ""), (code, errors, again)
    with open("again.html") as file:
        assert file.read() == page
    with open("r.json") as one, open("again.json") as other:
        assert one.read() == other.read()
    code, again, errors = run("--from", "r.json", "--lang", "zh", "--title", "T", "--target-accuracy", "95%",
                              "--markdown", "zh.md")
    assert (code, errors) == (0, ""), errors
    with open("zh.md") as file:
        chinese = file.read()
    for part in ("# T\n", "| 通信后端 | 服务器数量 |", "达到 95 % 正确率的用时", "](<zh-1.svg>)"):
        assert part in chinese, (part, chinese)
    assert "训练时间" in again and os.path.getsize("zh-1.svg") > 1000, again
    for file, expected in (("none.json", "none.json: No such file"), ("r.csv", "r.csv: no JSON")):
        code, again, errors = run("--from", file)
        assert (code, again) == (200, "") and expected in errors, (code, errors)
    code, again, errors = run("--from", "none.json", "--json", "none.json")
    assert code == 200 and "none.json: No such file" in errors and not os.path.exists("none.json"), (code, errors)


def seeds_and_targets():
    """Several seeds are one line with an interval."""
    words = ("--slots", "2", "--no-sweep", "--train", "--backends", "gloo", "--algorithms", "parallel,int8", "--seeds",
             "3", "--scaling", "strong,weak", "--target-accuracy", "92%", "--json", "s.json", "--html", "s.html")
    code, text, errors = run(*words)
    assert (code, errors) == (0, ""), (code, errors)
    for part in ("# training mlp, 256 samples a step, seed 3\n", "Weak scaling\n", "98.00 ± 0.00 %",
                 "Time to 92 % accuracy\n", "  parallel             2 devices  gloo      3 of 3  1.33 ± 1.4 s    1.33\n"):
        assert part in text, (part, text)
    assert all(len(line) <= 80 for line in text.split("\n")), text
    with open("s.json") as file:
        report = json.load(file)
    assert [run["seed"] for run in report["train"]] == [1] * 5 + [2] * 5 + [3] * 5
    assert report["target_accuracy"] == 0.92 and report["train"][2]["global_batch"] == 256
    assert report["train"][3]["scaling"] == "weak" and report["train"][3]["global_batch"] == 512
    with open("s.html") as file:
        page = file.read()
    for part in ("<h2>Accuracy</h2>", ">92 %<title>", "<h2>Weak scaling</h2>"):
        assert part in page, part


def pairs_and_places():
    code, text, errors = run("--slots", "2", "--sizes", "4,64,1K", "--backends", "gloo", "--pairs", "ranks",
                             "--in-place", "--line-rate", "1gbit", "--json", "p.json", "--html", "p.html")
    assert (code, errors) == (0, ""), (code, errors)
    for part in ("# gloo: 1 host x 2 ranks, allreduce f32 in place\n",
                 "Pairs of ranks, gloo: latency in microseconds\n", "  0 h0          -  0.110\n", "Latency and bandwidth\n"):
        assert part in text, (part, text)
    with open("p.json") as file:
        report = json.load(file)
    assert [row["in_place"] for row in report["rows"]] == [False, True] * 3 and len(report["pairs"]) == 2
    assert report["line_rate_mbit"] == 1000
    with open("p.html") as file:
        page = file.read()
    assert page.count('class="heat"') == 4 and "allreduce of f32, in place" in page
    assert ">1 Gbit/s<" not in page  # there is no network within one host


def failures():
    """A shape that fails is told, and the others are measured."""
    code, text, errors = run("--backends", "mpi,gloo,none", "--slots", "2,4", "--sizes", "4", "--json", "-")
    report = json.loads(text)
    assert code == 1 and len(report["rows"]) == 3, (code, text)
    failed = {(f["backend"], f["ranks"]): f for f in report["failures"]}
    assert set(failed) == {("mpi", 2), ("none", 2), ("none", 4)}, failed
    assert failed["mpi", 2]["exit_code"] == 3 and "mpi: cannot do that" in failed["mpi", 2]["error"]
    assert failed["none", 2]["error"] == "no results were printed"
    assert "dtrun: sweep, mpi, 1 host x 2 ranks: " in errors, errors
    code, text, _ = run("--backends", "wrong", "--slots", "2", "--sizes", "4")
    assert code == 1 and text.split("\n\nEnvironment")[0].endswith(" 5"), text
    code, _, errors = run("--rank-program", "./nothing", "--backends", "gloo", "--slots", "2")
    assert code == 1 and "has to lie at the same path on every host" in errors, errors


def left_out():
    """What cannot be run because of something that is known already is not tried again and again."""
    code, text, errors = run("-H", "localhost:2,no-host.invalid:2", "--sizes", "4", "--json", "u.json")
    with open("u.json") as file:
        report = json.load(file)
    assert code == 1 and [(row["backend"], row["hosts"]) for row in report["rows"]] == [("gloo", 1)], (text, errors)
    assert [(f["what"], f["exit_code"]) for f in report["failures"]] == [("facts", 201)], report["failures"]
    assert "dtrun: asking 2 hosts: cannot start: 1 of 2 hosts failed\n  no-host.invalid: " in errors, errors
    assert "left out: 2 runs on 2 hosts or more: not all of these hosts can run it\n" in errors, errors
    assert "\nFailed\n  asking 2 hosts (exit code 201)\n    cannot start: " in text, text
    code, text, errors = run("--slots", "2,4", "--no-sweep", "--train", "--data", "nowhere", "--backends", "gloo")
    assert code == 1 and errors.count("no such folder") == 1, errors
    assert "left out: 6 trainings with several ranks: the serial one has failed already\n" in errors, errors
    code, _, errors = run("--slots", "2", "--backends", "glo", "--sizes", "4")
    assert code == 1 and "; did you mean gloo?" in errors, errors


def mistakes():
    for words, expected in ((("--slots", "2", "--hosts", "2"), "--hosts 2: there is only 1"),
                            (("-H", "localhost:2", "--slots", "4"), "--slots 4: localhost has 2"),
                            (("--html", "/no/where/r.html"), "--html /no/where/r.html: No such file"),
                            (("--csv", "-", "--json", "-"), "another report goes to standard output"),
                            (("--hostfile", "/no/file"), "/no/file: "),
                            (("--compare", "r.csv", "r.json"), "r.csv: no JSON")):
        code, text, errors = run(*words)
        assert (code, text) == (200, "") and expected in errors, (words, code, errors)
    code, _, errors = run("--hostfile", "-", "--sizes", "4", "--backends", "gloo", stdin="localhost slots=2\n")
    assert (code, errors) == (0, ""), errors  # every run reads it again


def comparing():
    with open("r.json") as file:
        report = json.load(file)
    for row in report["rows"]:
        for name in ("t_min_us", "t_p50_us", "t_p99_us"):
            row[name] /= 2
    with open("faster.json", "w") as file:
        json.dump(report, file)
    code, text, _ = run("--compare", "r.json", "faster.json", "--html", "c.html")
    assert code == 0 and "4 faster, 0 slower, 5 within noise" in text, text
    with open("c.html") as file:
        assert ">faster</td>" in file.read()


def wait_for(path):
    deadline = time.monotonic() + 60
    while not (os.path.exists(path) and open(path).read().endswith("\n")):
        assert time.monotonic() < deadline, path
        time.sleep(0.02)
    with open(path) as file:
        return int(file.read())


def interrupted():
    """Ctrl-C ends the ranks, and what was found is kept."""
    with subprocess.Popen([DTRUN, "bench", "--rank-program", "./rank", "--backends", "slow,gloo", "--slots", "2",
                           "--sizes", "4", "--json", "i.json"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True) as bench:
        rank = wait_for("rank.pid/rank")
        bench.send_signal(signal.SIGINT)
        _, errors = bench.communicate(timeout=60)
    assert bench.returncode == 130, (bench.returncode, errors)
    assert not os.path.exists(f"/proc/{rank}"), "a rank was left behind"
    with open("i.json") as file:
        report = json.load(file)
    assert report["interrupted"] and len(report["rows"]) == 1 and report["failures"] == [], report
    assert "dtrun: interrupted in run 1 of 2; 1 row and 0 trainings until then\n" in errors, errors
    os.remove("rank.pid/rank")
    code, _, errors = run("--backends", "slow", "--slots", "2", "--sizes", "4", "--timeout", "3", "--grace", "0.5")
    assert code == 1 and "said nothing for 3 s (--timeout)" in errors, errors
    assert not os.path.exists(f"/proc/{wait_for('rank.pid/rank')}"), "a rank was left behind"


with tempfile.TemporaryDirectory() as directory:
    os.chdir(directory)
    os.mkdir("rank.pid")
    os.environ["PIDS"] = os.path.abspath("rank.pid")
    with open("rank", "w") as rank_file:
        rank_file.write(FAKE)
    os.chmod("rank", 0o755)
    for part in (whole_lab, seeds_and_targets, pairs_and_places, failures, left_out, mistakes, comparing,
                 interrupted):
        part()
