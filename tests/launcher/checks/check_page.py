"""check_page.py DTRUN [FOLDER]: the page of a job as people see it, in a Chromium without a window: the page that dtrun
serves, fed with made-up jobs of many hosts. With FOLDER pictures of it are left there."""

import contextlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from browser import Browser  # noqa: E402
from skip import in_ci  # noqa: E402

DTRUN = os.path.abspath(sys.argv[1])
PICTURES = sys.argv[2] if len(sys.argv) > 2 else None
NOW = 1_764_093_605
JOB = "3f2a0123456789abcdef0123456789ab"


def host(index, ranks=8, gpus=8, **changes):
    """A host that is well, as page_view() tells of it; a change of a list replaces one of its items."""
    made = {
        "host": f"gpu{index:02}", "state": "joined", "load": 9.5, "processors": 64, "memory": 31,
        "ranks": [index * ranks + i for i in range(ranks)], "states": "r" * ranks,
        "cpu": [97 + i % 3 for i in range(ranks)], "pace": [9.5] * ranks,
    }  # fmt: skip
    if gpus:
        made |= {"gpu": [94 + (index + i) % 6 for i in range(gpus)], "gpu_memory": [76] * gpus}
    return made | changes


def job(hosts, findings, **changes):
    made = {
        "job": JOB, "state": "running", "program": "python3 train.py", "dtrun_pid": 4242, "dtrun_host": "login1",
        "started": "2025-11-25T17:00:05.123456Z", "ran_s": 3600.5, "restarts": 0, "generation": 1, "step": 34187,
        "pace": 9.5, "waiting": [], "hosts": hosts, "findings": findings,
    }  # fmt: skip
    return made | changes


def finding(severity, text, **who):
    return {"severity": severity, "text": text, **who}


WELL = [finding("well", "128 ranks run well, 9.5 steps/s")]
EVENTS = [
    {"time": NOW - 3600, "severity": "note", "text": "the job starts: 128 ranks on 16 hosts"},
    {"time": NOW - 3595, "severity": "note", "text": "16 hosts have joined"},
    {"time": NOW - 3590, "severity": "note", "text": "generation 1 begins with 128 ranks"},
    {"time": NOW - 3589, "severity": "note", "text": "128 ranks started"},
]


def late_job():
    hosts = [host(i) for i in range(16)]
    states, behind, pace = ["r"] * 8, [0] * 8, [9.5] * 8
    states[5], behind[5], pace[5] = "l", 23, 6.8
    hosts[2] |= {"states": "".join(states), "behind": behind, "pace": pace, "troubled": True, "load": 110.4}
    hosts[2]["gpu"] = [97, 96, 95, 97, 98, 12, 97, 96]
    hosts[4] |= {"others": [0, 0, 2, 0, 0, 0, 0, 0], "troubled": True}
    findings = [
        finding("warning", "rank 21 on gpu02 is 23 steps behind (6.8 against 9.5 steps/s)", rank=21, host="gpu02"),
        finding("warning", "load 110 of 64 on gpu02", host="gpu02"),
        finding("warning", "GPU 2 on gpu04: other users", host="gpu04"),
    ]
    return job(hosts, findings, waiting=["rank 3 on gpu00 waits for key \"loss\" for 12 s"])


def failed_job():
    made = late_job()
    states = ["d"] * 8
    states[5] = "f"
    for each in made["hosts"]:
        each["states"] = "d" * 8
        for name in ("pace", "cpu", "behind"):
            each.pop(name, None)
    made["hosts"][2]["states"] = "".join(states)
    made["hosts"][7] |= {"state": "lost", "why": "last heard 3.5 s ago: connection reset by peer", "states": "x" * 8}
    text = "ended with exit code 1 after 1 h 00 min: rank 21 on gpu02 failed: exit code 1 at step 34164 (ValueError: loss is NaN)"
    return made | {
        "state": "ended", "exit_code": 1, "cause": "rank_failed", "waiting": [],
        "findings": [finding("failure", text, rank=21, host="gpu02")],
        "report": "dtrun: rank 21 on gpu02 exited with code 1 after 1 h 00 min; its last lines:\n"
        "  | Traceback (most recent call last):\n  |   File \"train.py\", line 12, in <module>\n  | ValueError: loss is NaN\n",
    }  # fmt: skip


def serve_jobs():
    gathering = job(
        [host(0, 2, 0, host="s1") | {"ranks": [None, None], "states": "ww"}, {"host": "s2", "state": "lost", "ranks": [],
         "states": "", "why": "not connected; it may come back", "troubled": True}],
        [finding("note", "2 of 4 slots have come")], job="gather", state="gathering",
    )  # fmt: skip
    running = job([host(1, 4, 0, host="s3"), host(2, 4, 0, host="s4")], [finding("well", "8 ranks run")], job="train")
    for made in (gathering, running):
        for name in ("program", "dtrun_pid", "dtrun_host", "started", "ran_s", "step", "pace"):
            made.pop(name)
        for each in made["hosts"]:
            for name in ("cpu", "pace", "load", "memory", "processors"):
                each.pop(name, None)
    return [gathering, running]


def curves():
    """An hour in which GPUs have paused once, and a rank is late in the last ten minutes."""
    rows = []
    for at in range(NOW - 3600, NOW, 10):
        slow, pause = at > NOW - 600, NOW - 1300 < at < NOW - 1200
        pace = [0, 0, 0.1] if pause else [6.8 if slow else 9.3, 9.5, 9.6]
        busy = [0, 2, 4] if pause else [12 if slow else 91, 96, 99]
        rows.append([at, *pace, *busy, 75, 76, 77, 12, 15, 172 if slow else 18, 30, 31, 33])
    return rows


class Served:
    """The page at an address of its own, with what it is given in the place of a job."""

    def __init__(self, html, jobs, is_head=True):
        self.jobs, self.events, self.is_head, self.html = jobs, EVENTS, is_head, html
        served = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                body, kind = served.answer(self.path)
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):  # the browser has closed
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # a browser that closes is none
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}/#key"

    def answer(self, path):
        if path == "/":
            return self.html.encode(), "text/html; charset=utf-8"
        reply = {}
        if path.startswith("/api/view"):
            time.sleep(0.2)
            reply = {"jobs": self.jobs}
            if self.is_head:
                reply |= {"last_event": 4, "events": self.events}
        if path.startswith("/api/curves"):
            reply = {"points": curves()}
        if path.startswith("/api/stacks"):
            reply = {"lines": ["127 ranks are in all_reduce (train.py:12); rank 21 is not:", "rank 21 on gpu02", "  read (data.py:7)"]}
        if path.startswith("/api/rank"):
            reply = {
                "log": "dtrun logs 3f2a01234567 21", "files": "/data/logs",
                "text": "step 34163 loss 0.71\n" * 30 + "Traceback (most recent call last):\nValueError: loss is NaN\n",
                "rank": {"rank": 21, "host": "gpu02", "pid": 12345, "step": 34164, "steps_per_s": 6.8, "step_age_s": 0.1,
                         "processors": 0.98, "memory_bytes": 12 << 30, "ran_s": 3600},
                "host": {"host": "gpu02", "load": 110.4, "processors": 64, "memory_bytes": 60 << 30,
                         "memory_total_bytes": 1 << 38,
                         "gpus": [{"index": 5, "name": "NVIDIA H100 80GB HBM3", "busy_percent": 12, "ranks": [21],
                                   "memory_bytes": 61 << 30, "memory_total_bytes": 80 << 30, "strangers": 0}]},
            }  # fmt: skip
        return json.dumps(reply).encode(), "application/json"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


# The ratio of WCAG between the text of each element and what is behind it, as numbers below 4.5 with the text.
CONTRAST = """(() => {
  const parts = color => (color.match(/[\\d.]+/g) || []).map(Number);
  const light = color => { const [r, g, b] = parts(color).map(part => part / 255).map(
    part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = element => { for (let at = element; at; at = at.parentElement) {
    const color = getComputedStyle(at).backgroundColor, alpha = parts(color)[3];
    if (alpha === undefined || alpha === 1) return color; } return 'rgb(255, 255, 255)'; };
  const bad = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || ['SCRIPT', 'STYLE'].includes(element.tagName)) continue;
    const a = light(getComputedStyle(element).color), b = light(behind(element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(ratio.toFixed(2) + ' ' + element.className + ' ' + element.textContent.slice(0, 30));
  }
  return bad; })()"""


def picture(browser, name):
    if PICTURES:
        browser.screenshot(os.path.join(PICTURES, name + ".png"))


def shown(html, name, jobs, *, is_head=True, width=1440, height=900, dark=False, look=lambda browser: None):
    with Served(html, jobs, is_head) as served, Browser(width, height, dark, timeout=60) as browser:
        browser.open(served.address)
        browser.wait_for("document.querySelectorAll('.cell').length > 3")
        if is_head:
            browser.wait_for("!document.getElementById('curves').hidden")
        time.sleep(0.5)
        look(browser)
        picture(browser, name)
        wrong = browser.evaluate(CONTRAST)
        assert wrong == [], (name, wrong)
        assert browser.errors == [], (name, browser.errors)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, name


def check_one_screen(html):
    """16 hosts with 8 GPUs each are on one screen, with what is wrong on top, and the detail beside."""

    def look(browser):
        text = browser.text()
        assert "rank 21 on gpu02 is 23 steps behind (6.8 against 9.5 steps/s)" in text, text
        assert "128 ranks started" in text and "GPU 2 on gpu04: other users" in text, text
        bottom = browser.evaluate("Math.max(...[...document.querySelectorAll('.host')].map(e => e.getBoundingClientRect().bottom))")
        assert bottom <= 900, bottom
        browser.evaluate("document.querySelectorAll('button.cell.late')[0].click()")
        browser.wait_for("/NVIDIA H100/.test(document.getElementById('detail').innerText)")
        assert browser.evaluate("document.getElementById('detail').getBoundingClientRect().bottom") <= 900
        # The host's own curves are of what the page has seen.
        browser.evaluate("(() => { hostRows.clear(); for (const ago of [600, 300, 0]) { hostsAt = 0; keepHosts(shown.jobs[0]); "
                         "for (const rows of hostRows.values()) rows[rows.length - 1][0] -= ago; } draw(); })()")  # fmt: skip
        of_host = browser.evaluate("document.getElementById('host-curves').innerText")
        assert "gpu02, since this page was opened" in of_host and "173 %" in of_host and "9.5 (6.8" in of_host, of_host
        detail = browser.evaluate("document.getElementById('detail').innerText")
        assert "dtrun logs 3f2a01234567 21" in detail and "/data/logs" in detail, detail
        assert browser.evaluate("document.querySelectorAll('.cell.heat').length") == 128
        browser.evaluate("[...document.querySelectorAll('button')].find(e => /where are/.test(e.textContent)).click()")
        browser.wait_for("/rank 21 is not/.test(document.getElementById('stacks').innerText)")

    shown(html, "wide", [late_job()], look=look)
    shown(html, "dark", [late_job()], dark=True, look=look)


def check_filter(html):
    def look(browser):
        visible = "[...document.querySelectorAll('.host:not(.title)')].filter(e => !e.hidden).length"
        assert browser.evaluate(visible) == 16
        browser.evaluate("[...document.querySelectorAll('.tools button')].find(e => /in trouble/.test(e.textContent)).click()")
        assert browser.evaluate(visible) == 2
        browser.evaluate("(() => { const box = document.querySelector('.tools input'); box.value = '21'; "
                         "box.dispatchEvent(new Event('input')); })()")  # fmt: skip
        assert browser.evaluate(visible) == 1

    shown(html, "filter", [late_job()], look=look)


def check_endings(html):
    def look(browser):
        browser.wait_for("document.body.innerText.includes('The job has ended')")
        browser.wait_for("/loss is NaN/.test(document.querySelector('pre.report').textContent)")
        # On a phone it would be above what is wrong.
        is_open = "!document.getElementById('detail').hidden && /Rank 21/.test(document.getElementById('detail').innerText)"
        if browser.size[0] > 1000:
            browser.wait_for(is_open)
        else:
            assert not browser.evaluate(is_open), browser.text()

    shown(html, "failed", [failed_job()], look=look)
    ended = late_job() | {"state": "ended", "exit_code": 0, "waiting": [],
                          "findings": [finding("well", "ended well after 1 h 00 min")]}  # fmt: skip
    for each in ended["hosts"]:
        each |= {"states": "e" * 8, "behind": [0] * 8, "troubled": False, "others": [0] * 8, "load": 0.5}
    shown(html, "ended", [ended])
    shown(html, "phone", [late_job()], width=390, height=844)
    shown(html, "phone-failed", [failed_job()], width=390, height=844, dark=True, look=look)


def check_serve(html):
    def look(browser):
        text = browser.text()
        assert "2 of 4 slots have come" in text and "8 ranks run" in text, text
        assert browser.evaluate("document.querySelectorAll('.cell.rank.running').length") == 8

    shown(html, "serve", serve_jobs(), is_head=False, look=look)
    shown(html, "serve-phone", serve_jobs(), is_head=False, width=390, height=844, dark=True, look=look)


def check_come_back(html):
    """A job of a daemon that ends, and comes again under its name, is shown again."""
    jobs = serve_jobs()
    with Served(html, jobs, is_head=False) as served, Browser(1440, 900) as browser:
        browser.open(served.address)
        for now, count in ((jobs, 2), ([], 0), (jobs, 2)):
            served.jobs = now
            browser.wait_for(f"document.querySelectorAll('section.job').length === {count}")
            assert ("No job is known here." in browser.text()) == (count == 0), browser.text()
        assert browser.errors == [], browser.errors


def check_thousand(html):
    """1,000 hosts with 8 ranks and 8 GPUs: a look costs the browser less than a quarter of a second once it is shown."""
    made = job([host(i, host=f"gpu{i:04}") for i in range(1000)], [finding("well", "8000 ranks run well, 9.5 steps/s")])

    def look(browser):
        browser.evaluate("window.made = shown.jobs[0], 0")
        # The best of some, as other programs may take the processor in between.
        spent = browser.evaluate("(() => { let best = Infinity; for (let i = 0; i < 8; ++i) { const begin = performance.now(); draw(); "
                                 "document.body.offsetHeight; best = Math.min(best, performance.now() - begin); } return best; })()")  # fmt: skip
        print(f"a look at 1,000 hosts: {len(json.dumps(made)) >> 10} KiB, {spent:.0f} ms to draw")
        assert spent < 250, spent

    shown(html, "thousand", [made], look=look)


def html_of_dtrun():
    with subprocess.Popen(
        [DTRUN, "-np", "1", "--web", "sleep", "60"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:
        for line in running.stderr:
            if match := re.search(r"the job's page: (http://\S+)/#", line):
                break
        import urllib.request

        with urllib.request.urlopen(match[1] + "/") as reply:
            html = reply.read().decode()
        running.terminate()
        running.communicate()
        return html


def main():
    if shutil.which("chromium") is None:
        print("left out: without chromium")
        assert not in_ci()
        return
    html = html_of_dtrun() if os.path.basename(DTRUN) == "dtrun" else open(DTRUN, encoding="utf-8").read()
    for check in (check_one_screen, check_filter, check_endings, check_serve, check_come_back, check_thousand):
        check(html)


main()
