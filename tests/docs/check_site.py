#!/usr/bin/python3
"""check_site.py DTRUN: the site is built without a warning, and read from a disk: its search finds words, nothing is asked of a
network, and no page is wider than a telephone."""

import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "support")]
import pages  # noqa: E402
from browser import Browser  # noqa: E402
from skip import skip  # noqa: E402

TELEPHONE = 390
# Words that somebody types who looks for a page, and the page.
SEARCHES = {"horovodrun": "guide/from-horovodrun", "hangs": "guide/it-hangs", "oversubscribe": "commands/dtrun", "sbatch": "guide/slurm"}
# As many links as the search has found, once it says so.
FOUND = """document.querySelector('.search-summary, #search-results h2 + p')?.innerText.match(/found|did not match/) &&
    Array.from(document.querySelectorAll('#search-results li a'), link => link.href)"""
WIDTH = "location.pathname.endsWith({name!r}) && document.readyState == 'complete' && document.documentElement.scrollWidth"


def check_search(html):
    with Browser() as browser:
        for words, page in SEARCHES.items():
            browser.open(f"{html.as_uri()}/search.html?q={words}")
            found = browser.wait_for(FOUND)
            assert any(page + ".html" in link for link in found[:8]), f"{words}: {page} is not among {found[:8]}"
        check_offline(browser)


def check_telephone(html):
    for dark in (False, True):
        with Browser(width=TELEPHONE, height=800, dark=dark) as browser:
            for page in sorted((html / "docs/guide").glob("*.html")) if not dark else [html / "docs/index.html"]:
                browser.open(page.as_uri())
                wide = browser.wait_for(WIDTH.format(name=page.name))
                assert wide <= TELEPHONE, f"{page.name} is {wide} wide"
                paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (paper == "rgb(255, 255, 255)") != dark, f"{page.name}: {paper} where it is {'dark' if dark else 'light'}"
            check_offline(browser)


def check_offline(browser):
    asked = [address for address in browser.requests if not address.startswith(("file:", "data:"))]
    assert not asked, f"asked of a network: {asked}"
    assert not browser.errors, browser.errors


def main(dtrun):
    if subprocess.run(["/usr/bin/python3", "-c", "import furo, myst_parser, sphinx"], capture_output=True, check=False).returncode != 0:
        skip("no Sphinx with MyST and Furo; `./dev deps docs` installs them")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([pages.ROOT / "docs/site/build", dtrun, folder], check=True)
        html = pathlib.Path(folder, "html")
        text = (html / "docs/commands/dtrun.html").read_text(encoding="utf-8")
        assert "--oversubscribe" in text, "flags are missing"
        check_search(html)
        check_telephone(html)


if __name__ == "__main__":
    main(*sys.argv[1:])
