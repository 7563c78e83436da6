"""test_quiet.py DIST CHECKERS: what others' checkers say of the packages in DIST: nothing.

CHECKERS is the folder of an environment that is made with requirements.txt beside this file.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "support"))
from skip import in_ci, skip  # noqa: E402

# lintian tells of what it was told to leave out only by a flag; these are its last words on other things.
NO_WORDS = re.compile(r"^(N:.*|warning: .*running as root.*|)$")
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
sys.exit(str(JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(sys.argv[1]).read()) or "") or None)
"""


def make_checkers(folder):
    wanted, had = HERE / "requirements.txt", folder / "requirements.txt"
    if had.exists() and had.read_text() == wanted.read_text():
        return
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["/usr/bin/python3", "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/pip", "-qq", "--disable-pip-version-check", "install", "-r", wanted], check=True)
    shutil.copy(wanted, had)


def said(*words):
    """What a checker prints. It must not fail."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"{words[0]}: {done.returncode}\n{done.stdout}"
    return done.stdout


def check_wheel(wheel, bin_folder):
    told = said(bin_folder / "twine", "check", "--strict", wheel)
    assert "PASSED" in told and "WARNING" not in told, told
    told = said(bin_folder / "check-wheel-contents", wheel)
    assert told.strip().endswith(": OK"), told
    told = " ".join(said(bin_folder / "auditwheel", "show", wheel).split())
    cpu = wheel.stem.rsplit("manylinux_2_28_", 1)[1]
    assert f'is consistent with the following platform tag: "manylinux_2_28_{cpu}"' in told or \
        re.search(rf'platform tag: "manylinux_2_(1\d|2[0-7])_{cpu}"', told), told


def check_deb(deb):
    if shutil.which("lintian") is None:
        assert not in_ci(), "lintian"
        return f"left out: {deb.name}, without lintian"
    told = said("lintian", "--allow-root", "--tag-display-limit", "0", "--fail-on", "error,warning", deb)
    words = [line for line in told.splitlines() if not NO_WORDS.match(line)]
    assert not words, "\n".join(words)
    return f"{deb.name}: lintian"


def main():
    dist, checkers = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    wheels, debs = sorted(dist.glob("*-manylinux_2_28_*.whl")), sorted(dist.glob("*.deb"))
    if not wheels or not debs:
        skip(f"no packages in {dist}; ./dev portable && ./dev package")
    make_checkers(checkers)
    for wheel in wheels:
        check_wheel(wheel, checkers / "bin")
        print(f"{wheel.name}: twine, check-wheel-contents, auditwheel")
    for deb in debs:
        print(check_deb(deb))
    parts, = dist.glob("*.cdx.json")
    said(checkers / "bin/python", "-c", VALIDATE, parts)
    print(f"{parts.name}: CycloneDX 1.5")
    layers = [path for path in dist.glob("*-image-*/blobs/sha256/*") if path.stat().st_size > 100_000]
    for layer in layers:
        assert layer.stat().st_size <= 25_000_000, f"{layer} has {layer.stat().st_size} bytes"
    sums = subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=dist, check=False)
    assert sums.returncode == 0


os.environ.pop("PYTHONPATH", None)
main()
