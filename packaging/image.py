"""The image: dtrun, its agent, a C library and a shell, in the layout of the Open Container Initiative."""

import datetime
import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile

import archives
import libraries as inside
import project
from tarball import gzipped, tar_bytes
from tree import PAGES, File

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
USER = 65532  # nobody's number elsewhere, as other images without a distribution have it
C_LIBRARY = re.compile(r"lib(64)?/(.*/)?(ld-linux-[^/]*|lib(c|m|pthread|dl|rt|util|resolv|nss_(dns|files))\.so\.\d)$")
OTHER_CPUS = re.compile(r"/dtrun-(agent|package)-(x86_64|aarch64)")
# What dtrun's start script and people who look into a container want of the shell's programs.
APPLETS = ("sh ash awk basename cat chmod chown cksum cp cut date df dirname du echo env expr false find free grep gunzip "
           "gzip head hostname id install ip kill ln ls md5sum mkdir mktemp mv nc nslookup ping printf ps pwd readlink "
           "realpath rm rmdir sed seq sha256sum sleep sort stat stty sync tail tar tee test touch tr true tty uname uniq "
           "vi wc wget which whoami xargs [").split()
FILES = {
    "etc/passwd": f"root:x:0:0:root:/root:/bin/sh\nnonroot:x:{USER}:{USER}:dtrun:/home/nonroot:/bin/sh\n",
    "etc/group": f"root:x:0:\nnonroot:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
FOLDERS = {"tmp": 0o1777, "root": 0o700, "home/nonroot": 0o777, "var/tmp": 0o1777, "proc": 0o755, "sys": 0o755,
           "dev": 0o755, "run": 0o755}


def package_files(package):
    """The files of a package of Debian, by their paths without a slash before them."""
    data = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE, check=True).stdout
    files = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for one in archive:
            name = one.name.lstrip("./")
            if one.issym():
                files[name] = File(link=one.linkname)
            elif one.isfile():
                files[name] = File(archive.extractfile(one).read(), executable=one.mode & 0o100 != 0)
    return files


def others():
    """What an image has beside dtrun."""
    return inside.read_libraries(project.ROOT / "packaging/image.txt")


def root_files(files, cpu):
    placed = {"usr/" + name: file for name, file in files.items()
              if name == "bin/dtrun" or name.startswith(("libexec/", "share/doc/dtrun/")) and not PAGES.match(name)}
    # Hosts of the other CPU have that one's image.
    placed = {name: file for name, file in placed.items() if not OTHER_CPUS.search(name)}
    placed["usr/bin/dtrun-agent"] = File(link="../libexec/dtrun/dtrun-agent")
    for library in others():
        taken = package_files(archives.fetch(*library.archives[list(ARCHITECTURES).index(cpu)]))
        for name, file in taken.items():
            if C_LIBRARY.match(name) or name in ("bin/busybox", f"usr/share/doc/{library.name}/copyright"):
                placed[name] = file
    # To which busybox's copyright file points.
    placed["usr/share/common-licenses/GPL-2"] = File((project.ROOT / "packaging/licences/GPL-2").read_bytes())
    for applet in APPLETS:
        placed["bin/" + applet] = File(link="busybox")
    placed["usr/share/doc/dtrun/IMAGE.txt"] = File(("This image also has, unchanged, files of Debian's packages, whose "
                                                    "sources Debian has as well:\n\n" +
                                                    "\n".join(inside.heads(others()))).encode())
    for name, text in FILES.items():
        placed[name] = File(text.encode())
    return placed


class Layout:
    """A folder in which everything is named by its digest."""

    def __init__(self, folder):
        self.folder = folder
        self.blobs = folder / "blobs/sha256"
        shutil.rmtree(folder, ignore_errors=True)
        self.blobs.mkdir(parents=True)

    def add(self, data, kind):
        """Writes a blob. Returns its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        (self.blobs / digest).write_bytes(data)
        return {"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + digest, "size": len(data)}

    def add_json(self, value, kind):
        return self.add(json.dumps(value).encode(), kind)


def path_of(descriptor):
    return "blobs/" + descriptor["digest"].replace(":", "/")


def write_image(files, cpu, folder, licences):
    """licences: SPDX's expression. Writes the layout as a folder, and as an archive for `podman load` and `docker load`."""
    version, name = project.version(), f"dtrun-{project.version()}-image-{cpu}"
    when = datetime.datetime.fromtimestamp(project.epoch(), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    layout = Layout(folder / name)
    tar = tar_bytes(root_files(files, cpu), FOLDERS)
    layer = layout.add(gzipped(tar), "layer.v1.tar+gzip")
    labels = {"org.opencontainers.image.title": "dtrun", "org.opencontainers.image.version": version,
              "org.opencontainers.image.licenses": licences, "org.opencontainers.image.created": when}
    config = layout.add_json({
        "architecture": ARCHITECTURES[cpu], "os": "linux", "created": when,
        "config": {"User": f"{USER}:{USER}", "WorkingDir": "/home/nonroot", "Entrypoint": ["/usr/bin/dtrun"],
                   "Cmd": ["--help"], "Env": ["PATH=/usr/bin:/bin", "HOME=/home/nonroot"], "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest()]},
        "history": [{"created": when, "created_by": "./dev package image"}]}, "config.v1+json")
    manifest = layout.add_json({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
        "layers": [layer], "annotations": labels}, "manifest.v1+json")
    reference = f"localhost/dtrun:{version}"
    manifest["platform"] = {"architecture": ARCHITECTURES[cpu], "os": "linux"}
    manifest["annotations"] = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": reference}
    (layout.folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (layout.folder / "index.json").write_text(json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]}))
    # Docker before 25 reads this in place of index.json.
    (layout.folder / "manifest.json").write_text(json.dumps([
        {"Config": path_of(config), "RepoTags": [reference], "Layers": [path_of(layer)]}]))
    archive = folder / (name + ".tar")
    archive.write_bytes(tar_bytes({path.relative_to(layout.folder).as_posix(): File(path.read_bytes())
                                   for path in layout.folder.rglob("*") if path.is_file()}))
    return archive
