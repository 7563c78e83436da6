"""Podman within a clean root: Debian's own, which has neither systemd to ask for cgroups nor a network to make."""

# And what docs/INSTALL.md speaks of besides, so that one root does for all.
PACKAGES = ("crun", "mount", "openssl", "pipx", "podman", "systemd")
_SETTINGS = {
    "containers.conf": '[containers]\ncgroups = "disabled"\nnetns = "host"\n'
                       '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n',
    "storage.conf": '[storage]\ndriver = "overlay"\ngraphroot = "/tmp/containers"\nrunroot = "/run/containers"\n'}


def prepare(root):
    """Makes the root's podman work."""
    root.run("mkdir", "-p", "/etc/containers")
    for name, text in _SETTINGS.items():
        root.write(f"/etc/containers/{name}", text)
    root.run("mount", "-t", "cgroup2", "none", "/sys/fs/cgroup")
