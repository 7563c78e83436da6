"""Archives of Debian's pool, each fetched once and known by its SHA-256."""

import hashlib
import os
import urllib.error
import urllib.request

from project import ROOT, Refused

MIRROR = os.environ.get("DTRUN_DEBIAN_MIRROR", "http://deb.debian.org/debian")
KEPT = ROOT / "build/archives"


def fetch(digest, path):
    """Where a file of the pool is on this machine."""
    kept = KEPT / path.rsplit("/", 1)[1]
    if kept.exists() and hashlib.sha256(kept.read_bytes()).hexdigest() == digest:
        return kept
    url = f"{MIRROR}/{path}"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            data = answer.read()
    except (urllib.error.URLError, OSError) as why:
        raise Refused(f"{url}: {why}. A newer version may have taken its place: then a row of packaging/*.txt wants "
                      "its name and hash; DTRUN_DEBIAN_MIRROR names another mirror") from why
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise Refused(f"{url} has the SHA-256 {found}, and {digest} is expected")
    KEPT.mkdir(parents=True, exist_ok=True)
    new = kept.with_name(kept.name + ".new")
    new.write_bytes(data)
    new.rename(kept)
    return kept
