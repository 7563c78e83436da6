"""A Chromium without a window, for tests of pages: over the two pipes of its DevTools protocol."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Browser:
    """`with Browser() as browser: browser.open(url)`"""

    def __init__(self, width=1200, height=900, dark=False, timeout=60):
        self.timeout = timeout
        self.size = (width, height, dark)
        self.profile = tempfile.mkdtemp(prefix="dtrun-browser-")
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def give():  # the browser reads commands from 3 and answers at 4
            os.dup2(theirs_in, 10)
            os.dup2(theirs_out, 11)
            os.dup2(10, 3)
            os.dup2(11, 4)

        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={self.profile}",
             "about:blank"], preexec_fn=give, close_fds=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.reader, self.writer = ours_in, ours_out
        self.buffer = b""
        self.number = 0
        self.session = None
        self.errors = []  # that scripts of pages have thrown
        self.requests = []  # addresses that pages have asked for

    def __enter__(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.call("Network.enable")
        width, height, dark = self.size
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.reader)
        os.close(self.writer)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + self.timeout
        while True:
            reply = self.next_message(end)
            if reply.get("id") == self.number:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]

    def next_message(self, end):
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.reader], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.reader, 1 << 16)
            if not piece:
                raise RuntimeError("the browser has ended")
            self.buffer += piece
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(message["params"]["exceptionDetails"].get("text", "?"))
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        return message

    def open(self, url):
        self.call("Page.navigate", url=url)

    def evaluate(self, script):
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True)
        return result["result"].get("value")

    def text(self):
        return self.evaluate("document.body ? document.body.innerText : ''") or ""

    def wait_for(self, script):
        """Returns the first value of the expression that is true."""
        end = time.monotonic() + self.timeout
        while time.monotonic() < end:
            value = self.evaluate(script)
            if value:
                return value
            time.sleep(0.05)
        raise TimeoutError(f"never: {script}\n{self.text()}")

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
