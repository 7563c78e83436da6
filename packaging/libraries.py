"""What is inside the binaries beside dtrun: libraries.txt, licences/ and what becomes of both in packages."""

import hashlib
import json
import re
import urllib.parse
import uuid

from project import ROOT, Refused

LICENCE = "Apache-2.0"
DEBIAN = "https://deb.debian.org/debian/"
RELINK = """\
libssh is under the GNU Lesser General Public License and linked into `dtrun`. You may change it and use your own
instead. Its complete source is the two archives of Debian that are named with it above; everything else that is linked
is in dtrun's own sources and in the archives above, which are all fetched by

    ./dev portable

With a changed libssh, dtrun is linked again by

    ./dev portable --sources DIR

where DIR holds the changed sources in a folder `libssh` (docs/INSTALL.md, "With a changed library").
"""


class Library:
    """A row of libraries.txt."""

    def __init__(self, name, version, licence, upstream):
        self.name, self.version, self.licence, self.upstream = name, version, licence, upstream
        self.archives = []  # (SHA-256, path below Debian's mirror)

    def text(self):
        return (ROOT / "packaging/licences" / (self.name + ".txt")).read_text()


def read_libraries(path=ROOT / "packaging/libraries.txt"):
    libraries = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = re.split(r"\s{2,}", line.strip())
        if line[0].isspace() and len(words) == 2 and libraries:
            libraries[-1].archives.append(tuple(words))
        elif not line[0].isspace() and len(words) == 4:
            libraries.append(Library(*words))
        else:
            raise Refused(f"{path}:{number}: neither a library nor an archive of one: {line.strip()}")
    return libraries


def licence_expression(libraries):
    """SPDX, of all that is inside."""
    others = sorted({library.licence for library in libraries} - {LICENCE})
    return " AND ".join([LICENCE] + [f"({one})" if " OR " in one else one for one in others])


def heads(libraries):
    """Each library's name, and where its sources are."""
    parts = []
    for library in libraries:
        rows = "".join(f"  {digest}  {path}\n" for digest, path in library.archives)
        parts.append(f"{library.name} {library.version} ({library.licence}), {library.upstream}\n" +
                     (f"Below {DEBIAN}, with their SHA-256:\n{rows}" if rows
                      else "Of the compiler (packaging/requirements.txt).\n"))
    return parts


def third_party_text(libraries):
    """The licences of all libraries, where their sources are, and what is asked for libssh."""
    parts = ["dtrun's binaries contain parts of other projects, under the licences that follow.\n", *heads(libraries),
             RELINK]
    for library in libraries:
        parts.append(f"{'=' * 80}\n{library.name}\n{'=' * 80}\n\n{library.text()}")
    return "\n".join(parts)


def copyright_file(libraries):
    """The same in Debian's machine-readable form, /usr/share/doc/dtrun/copyright."""
    def stanza(licence, text):
        body = "\n".join(" " + (line.rstrip() or ".") for line in text.strip().splitlines())
        return f"License: {licence}\n{body}\n"

    parts = ["Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: dtrun\n",
             "Files: *\nCopyright: 2026 the authors of dtrun\nLicense: Apache-2.0\n"]
    parts.append(stanza(LICENCE, "On Debian systems the text is in /usr/share/common-licenses/Apache-2.0."))
    comment = "\n".join(" " + (line or ".") for line in
                        ["Linked into the binaries, with texts in THIRD-PARTY-LICENCES.txt beside this file:"] +
                        [f"{one.name} {one.version}, {one.licence}, {one.upstream}" for one in libraries] +
                        [""] + RELINK.splitlines())
    parts[1] += f"Comment:\n{comment}\n"
    return "\n".join(parts)


def component(library):
    """A component of CycloneDX."""
    licence = {"expression": library.licence} if " " in library.licence else {"license": {"id": library.licence}}
    one = {"type": "library", "bom-ref": library.name, "name": library.name, "version": library.version,
           "licenses": [licence], "externalReferences": [{"type": "website", "url": library.upstream}]}
    if not library.archives:
        return one
    file = library.archives[-1][1].rsplit("/", 1)[1]
    package, version = re.sub(r"(_(amd64|arm64|all)\.deb|\.debian\.tar\.\w+)$", "", file).split("_")
    source = "" if file.endswith(".deb") else "?arch=source"
    one["purl"] = f"pkg:deb/debian/{package}@{urllib.parse.quote(version, safe='')}{source}"
    for digest, path in library.archives:
        one["externalReferences"].append({
            "type": "distribution", "url": DEBIAN + urllib.parse.quote(path),
            "hashes": [{"alg": "SHA-256", "content": digest}]})
    return one


def sbom(libraries, in_image, version, time):
    """What is inside, as CycloneDX 1.5. in_image: what images have besides. time: in ISO 8601"""
    components = [component(one) for one in libraries]
    components += [{**component(one), "scope": "optional", "description": "in the image alone"} for one in in_image]
    named = json.dumps(components)
    serial = uuid.UUID(bytes=hashlib.sha256(f"dtrun {version} {time} {named}".encode()).digest()[:16], version=4)
    own = {"type": "application", "bom-ref": "dtrun", "name": "dtrun", "version": version,
           "licenses": [{"license": {"id": LICENCE}}], "purl": f"pkg:pypi/dtrun@{version}"}
    names = [one["bom-ref"] for one in components]
    return json.dumps({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{serial}", "version": 1,
        "metadata": {"timestamp": time, "component": own}, "components": components,
        "dependencies": [{"ref": "dtrun", "dependsOn": names}] + [{"ref": name, "dependsOn": []} for name in names],
    }, indent=2) + "\n"
