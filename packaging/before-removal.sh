#!/bin/sh
# Before a package goes: the daemon that docs/INSTALL.md lets people enable ends and is no longer started. An upgrade, of
# which rpm says "1" and dpkg "upgrade", leaves it as it is.
set -e
case ${1:-} in 1 | upgrade) exit 0 ;; esac
if command -v systemctl >/dev/null; then
    [ ! -d /run/systemd/system ] || systemctl stop dtrun-serve.socket dtrun-serve.service || true
    systemctl --quiet disable dtrun-serve.socket dtrun-serve.service || true
fi
