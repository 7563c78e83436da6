#pragma once

#include <string_view>

namespace dtrun::transport {

// What the start scripts of ssh and of Slurm share: POSIX shell, for any /bin/sh. No line ends, no
// single quotes and no exclamation marks, since over ssh it is a word for the login shell, which may be
// csh. Whoever can write where the agent lies could run what he likes as its user, who may have
// XDG_CACHE_HOME or PATH in a place that others use, too: so owners and modes are looked at first.

/// Defines `d`, the cache directory, and
///     names          sets `node` to the host's name and `q` to its machine, as uname says
///     vouched        whether the agent at `a` is ours, and has the time that it gives its file when nobody else can
///                    write to it (worker/stored/stored_file.h). Only an owner can set a time that has not come, and
///                    whoever writes sets another one. Opens it as 9, and looks at what is open: what may happen to
///                    its name does not matter. No process is started
///     bad FILE       prints which of the file, its directory and the parent of that others could
///                    change: it belongs to neither us nor root, or others may write to it. Sticky
///                    ones may be writable, and the parent for its group, as with umask 002. Fails if
///                    that cannot be found out, and prints why. What ld.so has to say, of an LD_PRELOAD
///                    say, is on standard error, and none of it.
///     ck             prints a sum of standard input, by whatever program there is
///     is FILE ID     whether FILE is the agent of this build, and nothing of it is bad
///     has ID         sets `a` to this build's agent in the cache, if it is vouched for, or whole, or to one that is
///                    installed: on PATH, in libexec, or where a dtrun on PATH has it, there also as what a dtrun of
///                    another CPU brings for this one. Else to nothing, and fails. What is installed is looked for once
///     sees ID        the same after a look into the cache that shows what another host has put there: clients of NFS
///                    remember for seconds that a file was missing, unless the folder is listed
///     run WORDS      becomes the agent that `has` has found, or `store` has stored
///
/// Every host that lacks the agent runs this, be it that another one of its home stores it: what a shell can do itself
/// starts no program, and a substitution of a command only where it has something to say.
inline constexpr std::string_view kFindAgent =
    "d=${XDG_CACHE_HOME:-$HOME/.cache}/dtrun; r=; q=; lacks=; t=; word=; "
    "names() { [ -z \"$q\" ] || return 0; set -- $(uname -nm); node=$1 q=$2; }; "
    "look() { find -H \"$g\" \"$p\" \"$1\" -prune "
    "\\( -user 0 -o -user \"$u\" -o -print \\) "
    "\\( -perm -1000 -o -perm -002 -print -o -path \"$g\" -o -perm -020 -print \\); }; "
    "bad() { u=$(id -u); p=${1%/*}; g=${p%/*}; g=${g:-/}; look \"$1\" 2>/dev/null || "
    "{ echo \"find fails: $(look \"$1\" 2>&1 >/dev/null)\"; return 1; }; }; "
    "ck() { cksum 2>/dev/null || sha256sum 2>/dev/null || md5sum 2>/dev/null || wc -c; }; "
    "is() { [ -x \"$1\" ] && [ -z \"$(bad \"$1\")\" ] && "
    "[ \"$(\"$1\" --build-id 2>/dev/null)\" = \"$2\" ]; }; "
    "vouched() { [ -f \"$a\" ] && command exec 9<\"$a\" && r=/proc/self/fd/9 && [ -O $r ] && "
    "[ -x $r ] && [ $r -nt /proc/self ]; }; "
    "at() { at=; command -v \"$1\" >/dev/null && at=$(command -v \"$1\"); }; "
    "has() { a=$d/agent-$1; s=$d/.sum-$1; vouched 2>/dev/null && return; r=; exec 9<&-; "
    "[ -x \"$a\" ] && [ -r \"$s\" ] && read -r k <\"$s\" && [ \"$(ck <\"$a\")\" = \"$k\" ] && "
    "[ -z \"$(bad \"$a\")\" ] && return; a=; [ \"$lacks\" = \"$1\" ] && return 1; lacks=$1; names; "
    "at dtrun && at=$(readlink -f \"$at\" 2>/dev/null); x=${at%/*}; at dtrun-agent; "
    "v=-$q; l=libexec/dtrun/dtrun-agent; "
    "for a in \"$at\" /usr/$l /usr/local/$l \"${x%/*}/$l\" /usr/$l$v "
    "/usr/local/$l$v \"${x%/*}/$l$v\"; do is \"$a\" \"$1\" && return; done; a=; return 1; }; "
    "sees() { for x in \"$d\"/*; do :; done; has \"$1\"; }; "
    "run() { [ -z \"$r\" ] || exec $r --as \"$a\" \"$@\"; exec \"$a\" \"$@\"; }; ";

/// Sets `packing` to how the host unpacks: what the head may choose for the agent it sends.
inline constexpr std::string_view kPacking =
    "packing=plain; command -v gzip >/dev/null && packing=gzip; ";

/// Defines
///     home NAME      prints a name of this home: that of the host of job `j` that was first to ask so. For $(home NAME)
///     folder         makes the cache, where it is missing, ours alone, and sets `t`: where the agent is to be written to
///     store          stores the `n` bytes that have come there. They are the agent of build `id`, packed as `c` says
///                    ("gzip", or "plain"), and, from byte `z` on, the archive of its Python package; with SHA-256 `h`,
///                    unless that is empty: then somebody has looked already. Sets `a` to the agent's path. The archive is
///                    stored beside it, and the agent unpacks it before others hear of it
/// The sum by which a later log-in knows it is empty if it vouches for itself. That is seen by a file which is made after it: of
/// the shell's own start, by which `vouched` goes, each file is later that comes after that.
/// The agent gets its name when it is whole, and what in the cache was not used for a month is removed. If `word` is set,
/// what has come is open as 8 afterwards, to be handed on, and has no name any more; else `word` is empty then. The umask,
/// which ranks inherit, is as before. `f TEXT` is called with what went wrong; it is to remove `t`, and not to return.
inline constexpr std::string_view kStoreAgent =
    "home() { { umask 077; [ -d \"$d\" ] || mkdir -p \"$d\"; [ -L \"$d/.first-$j\" ] || "
    "ln -s \"$1\" \"$d/.first-$j\"; readlink \"$d/.first-$j\"; } 2>/dev/null; }; "
    "no() { rm -f \"$t.p\" \"$t.a\"; f \"cannot store the agent: $* (HOME=$HOME and "
    "XDG_CACHE_HOME=$XDG_CACHE_HOME there say where; where dtrun is installed nothing is "
    "stored)\"; "
    "}; "
    "folder() { names; t=$d/.new.$node.$$; "
    "e=$({ umask 077; [ -d \"$d\" ] || mkdir -p \"$d\"; } 2>&1) || no \"$e\"; "
    "[ -O \"$d\" ] || no \"$d belongs to somebody else\"; "
    "e=$({ chmod 700 \"$d\" && if [ -e \"$t\" ] || [ -L \"$t\" ]; then rm -f \"$t\"; fi; } 2>&1) "
    "|| "
    "no \"$e\"; }; "
    "store() { w=$(umask); umask 077; a=$d/agent-$id; "
    "set -- $(wc -c <\"$t\"); [ \"$1\" = \"$n\" ] || no \"$1 of $n bytes in $t\"; "
    "if [ \"$h\" ]; then s=$(sha256sum <\"$t\" 2>/dev/null) && [ \"${s%% *}\" = \"$h\" ] || "
    "[ -z \"$s\" ] || f \"the agent was damaged on its way\"; fi; "
    "[ -z \"$word\" ] || { command exec 8<\"$t\"; } 2>/dev/null || word=; "
    "e=$({ { [ \"$z\" = \"$n\" ] || { tail -c +$((z + 1)) \"$t\" >\"$t.p\" && "
    "mv -f \"$t.p\" \"$d/package-$id.tar.gz\"; }; } && "
    "if [ \"$c\" = plain ]; then head -c \"$z\" \"$t\"; else head -c \"$z\" \"$t\" | gzip -dc; fi "
    ">\"$t.a\"; } 2>&1) || no \"$e\"; "
    "find \"$d\" \\( -name \"agent-*\" -o -name \".sum-*\" -o -name \".new.*\" -o "
    "-name \".first-*\" -o -name \"package-*\" \\) "
    "-atime +30 \\( -mtime +30 -o -name \"agent-*\" \\) -exec rm -rf {} + 2>/dev/null; "
    "e=$({ chmod 700 \"$t.a\" && mv -f \"$t.a\" \"$a\" && rm -f \"$t\" \"$d/.first-$j\"; } 2>&1) "
    "|| no "
    "\"$e\"; "
    "[ -x \"$a\" ] || f \"cannot execute $a: is $d mounted noexec? Then set XDG_CACHE_HOME there "
    "to "
    "a folder that is not, or install dtrun there\"; e=$(bad \"$a\") || "
    "f \"cannot tell who could change $a: $e\"; [ -z \"$e\" ] || f \"others could change the agent "
    "in $d: they may write to $e\"; \"$a\" --prepare </dev/null >/dev/null 2>&1; "
    "true >\"$d/.sum-$id\"; { [ \"$a\" -nt \"$d/.sum-$id\" ] && vouched; } 2>/dev/null || "
    "{ r=; exec 9<&-; ck <\"$a\" >\"$d/.sum-$id\"; }; umask \"$w\"; }; ";

}  // namespace dtrun::transport
