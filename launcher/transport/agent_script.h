#pragma once

#include <string>
#include <string_view>

namespace dtrun::transport {

// What the start scripts of ssh and of Slurm share: POSIX shell, for any /bin/sh. No single quotes and no exclamation
// marks, and no line ends once lines are joined, since over ssh a script is a word for the login shell, which may be
// csh. Whatever they name begins with "dtrun_": a variable that the user exports, or a function, if sh is bash, would be
// another one for his ranks if it had the same name. Whoever can write where the agent lies could run what he likes as
// its user, who may have XDG_CACHE_HOME or PATH in a place that others use, too: so owners and modes are looked at
// first.

/// The lines of a script as one, each without its indentation, a blank between two.
inline std::string one_line(std::string_view script) {
    std::string line;
    bool is_indentation = true;
    for (const char c : script) {
        if (c == '\n') is_indentation = true;
        if (is_indentation && (c == '\n' || c == ' ')) continue;
        if (is_indentation && !line.empty()) line += ' ';
        is_indentation = false;
        line += c;
    }
    return line + ' ';
}

/// Takes back what SHELLOPTS of the user's environment may ask of bash, such as errexit or noclobber. Defines
/// `dtrun_cache`, the cache directory, and, with "dtrun_" before their names,
///     names          sets `node` to the host's name and `machine` to its machine, as uname says
///     vouched        whether `agent` is ours, and has the time that it gives its file when nobody else can
///                    write to it (worker/stored/stored_file.h). Only an owner can set a time that has not come, and
///                    whoever writes sets another one. Opens it as 9, and looks at what is open: what may happen to
///                    its name does not matter. No process is started
///     bad FILE       prints which of the file, its directory and the parent of that others could
///                    change: it belongs to neither us nor root, or others may write to it. Sticky
///                    ones may be writable, and the parent for its group, as with umask 002. Fails if
///                    that cannot be found out, and prints why. What ld.so has to say, of an LD_PRELOAD
///                    say, is on standard error, and none of it.
///     sum            prints a sum of standard input, by whatever program there is
///     is FILE ID     whether FILE is the agent of this build, and nothing of it is bad
///     has ID         sets `agent` to this build's agent in the cache, if it is vouched for, or whole, or to one that is
///                    installed: on PATH, in libexec, or where a dtrun on PATH has it, there also as what a dtrun of
///                    another CPU brings for this one. Else to nothing, and fails. What is installed is looked for once
///     sees ID        the same after a look into the cache that shows what another host has put there: clients of NFS
///                    remember for seconds that a file was missing, unless the folder is listed
///     stored ID      the same where another host of this home has just stored it, and has looked at it: then neither its
///                    time nor its bytes are looked at, but who may change it
///     apart WORDS    runs a command for whose end nobody waits
///     run WORDS      becomes the agent that `has` has found, or `store` has stored
///
/// Every host that lacks the agent runs this, be it that another one of its home stores it: what a shell can do itself
/// starts no program, and a substitution of a command only where it has something to say.
inline constexpr std::string_view kFindAgent = R"sh(
    set +aCefux;
    dtrun_cache=${XDG_CACHE_HOME:-$HOME/.cache}/dtrun;
    dtrun_opened=; dtrun_machine=; dtrun_lacks=; dtrun_new=; dtrun_word=;
    dtrun_names() {
        [ -z "$dtrun_machine" ] || return 0;
        set -- $(uname -nm); dtrun_node=$1 dtrun_machine=$2;
    };
    dtrun_look() {
        find -H "$dtrun_above" "$dtrun_parent" "$1" -prune
        \( -user 0 -o -user "$dtrun_user" -o -print \)
        \( -perm -1000 -o -perm -002 -print -o -path "$dtrun_above" -o -perm -020 -print \);
    };
    dtrun_bad() {
        dtrun_user=$(id -u); dtrun_parent=${1%/*};
        dtrun_above=${dtrun_parent%/*}; dtrun_above=${dtrun_above:-/};
        dtrun_look "$1" 2>/dev/null ||
        { echo "find fails: $(dtrun_look "$1" 2>&1 >/dev/null)"; return 1; };
    };
    dtrun_sum() { cksum 2>/dev/null || sha256sum 2>/dev/null || md5sum 2>/dev/null || wc -c; };
    dtrun_is() {
        [ -x "$1" ] && [ -z "$(dtrun_bad "$1")" ] &&
        [ "$("$1" --build-id 2>/dev/null)" = "$2" ];
    };
    dtrun_open() {
        [ -f "$dtrun_agent" ] && command exec 9<"$dtrun_agent" && dtrun_opened=/proc/self/fd/9 &&
        [ -O $dtrun_opened ] && [ -x $dtrun_opened ];
    };
    dtrun_vouched() { dtrun_open && [ $dtrun_opened -nt /proc/self ]; };
    dtrun_apart() { ( "$@" </dev/null >/dev/null 2>&1 & ); };
    dtrun_find() { dtrun_found=; command -v "$1" >/dev/null && dtrun_found=$(command -v "$1"); };
    dtrun_has() {
        dtrun_agent=$dtrun_cache/agent-$1; dtrun_kept=$dtrun_cache/.sum-$1;
        dtrun_vouched 2>/dev/null && return; dtrun_opened=; exec 9<&-;
        [ -x "$dtrun_agent" ] && [ -r "$dtrun_kept" ] && read -r dtrun_kept <"$dtrun_kept" &&
        [ "$(dtrun_sum <"$dtrun_agent")" = "$dtrun_kept" ] &&
        [ -z "$(dtrun_bad "$dtrun_agent")" ] && { dtrun_apart "$dtrun_agent" --vouch; return; };
        dtrun_agent=; [ "$dtrun_lacks" = "$1" ] && return 1; dtrun_lacks=$1; dtrun_names;
        dtrun_find dtrun && dtrun_found=$(readlink -f "$dtrun_found" 2>/dev/null);
        dtrun_prefix=${dtrun_found%/*}; dtrun_prefix=${dtrun_prefix%/*}; dtrun_find dtrun-agent;
        set -- "$1" libexec/dtrun/dtrun-agent libexec/dtrun/dtrun-agent-$dtrun_machine;
        for dtrun_agent in "$dtrun_found" "/usr/$2" "/usr/local/$2" "$dtrun_prefix/$2"
        "/usr/$3" "/usr/local/$3" "$dtrun_prefix/$3"; do
            dtrun_is "$dtrun_agent" "$1" && return;
        done;
        dtrun_agent=; return 1;
    };
    dtrun_list() { for dtrun_x in "$dtrun_cache"/*; do :; done; };
    dtrun_sees() { dtrun_list; dtrun_has "$1"; };
    dtrun_stored() {
        dtrun_list; dtrun_agent=$dtrun_cache/agent-$1;
        [ -s "$dtrun_agent" ] && [ -O "$dtrun_cache" ] && [ -z "$(dtrun_bad "$dtrun_agent")" ] &&
        dtrun_open 2>/dev/null && return;
        dtrun_opened=; exec 9<&-; dtrun_agent=; return 1;
    };
    dtrun_run() {
        [ -z "$dtrun_opened" ] || exec $dtrun_opened --as "$dtrun_agent" "$@";
        exec "$dtrun_agent" "$@";
    };
)sh";

/// Sets `dtrun_packing` to how the host unpacks: what the head may choose for the agent it sends.
inline constexpr std::string_view kPacking =
    "dtrun_packing=plain; command -v gzip >/dev/null && dtrun_packing=gzip; ";

/// Defines, with "dtrun_" before all names,
///     home NAME      prints a name of this home: that of the host of job `job` that was first to ask so. For $(home NAME)
///     folder         makes the cache, where it is missing, ours alone, and sets `new`: where the agent is to be written to
///     store          stores the `bytes` bytes that have come there. They are the agent of build `id`, packed as `packed`
///                    says ("gzip", or "plain"), and, from byte `whole` on, the archive of its Python package; with SHA-256
///                    `digest`, unless that is empty: then somebody has looked already. Sets `agent` to the agent's path.
///                    The archive is stored beside it, for the agent to unpack (--prepare)
/// When the job has gone on the agent's bytes are brought to the disk, whereupon it vouches for itself, and what in the cache was
/// not used for a month is removed.
/// The agent gets its name when it is whole and its sum, by which other log-ins know it until then, is there. If `word` is set,
/// what has come is open as 8 afterwards, to be handed on, and has no name any more; else `word` is empty then. The umask,
/// which ranks inherit, is as before. `failed TEXT` is called with what went wrong; it is to remove `new`, and not to return.
inline constexpr std::string_view kStoreAgent = R"sh(
    dtrun_home() {
        {
            umask 077; [ -d "$dtrun_cache" ] || mkdir -p "$dtrun_cache";
            [ -L "$dtrun_cache/.first-$dtrun_job" ] ||
            ln -s "$1" "$dtrun_cache/.first-$dtrun_job";
            readlink "$dtrun_cache/.first-$dtrun_job";
        } 2>/dev/null;
    };
    dtrun_no() {
        rm -f "$dtrun_new.p" "$dtrun_new.a";
        dtrun_failed "cannot store the agent: $* (HOME=$HOME and
        XDG_CACHE_HOME=$XDG_CACHE_HOME there say where; where dtrun is installed nothing is
        stored)";
    };
    dtrun_folder() {
        dtrun_names; dtrun_new=$dtrun_cache/.new.$dtrun_node.$$;
        dtrun_e=$({ umask 077; [ -d "$dtrun_cache" ] || mkdir -p "$dtrun_cache"; } 2>&1) ||
        dtrun_no "$dtrun_e";
        [ -O "$dtrun_cache" ] || dtrun_no "$dtrun_cache belongs to somebody else";
        dtrun_e=$({
            chmod 700 "$dtrun_cache" &&
            if [ -e "$dtrun_new" ] || [ -L "$dtrun_new" ]; then rm -f "$dtrun_new"; fi;
        } 2>&1) || dtrun_no "$dtrun_e";
    };
    dtrun_keep() {
        "$dtrun_agent" --vouch;
        find "$dtrun_cache"
        \( -name "agent-*" -o -name ".sum-*" -o -name ".new.*" -o -name ".first-*" -o
        -name "package-*" \)
        -atime +30 \( -mtime +30 -o -name "agent-*" \) -exec rm -rf {} +;
    };
    dtrun_store() {
        dtrun_mask=$(umask); umask 077; dtrun_agent=$dtrun_cache/agent-$dtrun_id;
        set -- $(wc -c <"$dtrun_new");
        [ "$1" = "$dtrun_bytes" ] || dtrun_no "$1 of $dtrun_bytes bytes in $dtrun_new";
        if [ "$dtrun_digest" ]; then
            set -- $(sha256sum <"$dtrun_new" 2>/dev/null);
            [ $# = 0 ] || [ "$1" = "$dtrun_digest" ] ||
            dtrun_failed "the agent was damaged on its way";
        fi;
        [ -z "$dtrun_word" ] || { command exec 8<"$dtrun_new"; } 2>/dev/null || dtrun_word=;
        dtrun_e=$({
            {
                [ "$dtrun_whole" = "$dtrun_bytes" ] || {
                    tail -c +$((dtrun_whole + 1)) "$dtrun_new" >"$dtrun_new.p" &&
                    mv -f "$dtrun_new.p" "$dtrun_cache/package-$dtrun_id.tar.gz";
                };
            } &&
            if [ "$dtrun_packed" = plain ]; then head -c "$dtrun_whole" "$dtrun_new";
            else head -c "$dtrun_whole" "$dtrun_new" | gzip -dc; fi >"$dtrun_new.a";
        } 2>&1) || dtrun_no "$dtrun_e";
        dtrun_e=$({
            chmod 700 "$dtrun_new.a" &&
            dtrun_sum <"$dtrun_new.a" >"$dtrun_cache/.sum-$dtrun_id" &&
            mv -f "$dtrun_new.a" "$dtrun_agent" &&
            rm -f "$dtrun_new" "$dtrun_cache/.first-$dtrun_job";
        } 2>&1) || dtrun_no "$dtrun_e";
        [ -x "$dtrun_agent" ] || dtrun_failed "cannot execute $dtrun_agent: is $dtrun_cache mounted
        noexec? Then set XDG_CACHE_HOME there to a folder that is not, or install dtrun there";
        dtrun_e=$(dtrun_bad "$dtrun_agent") ||
        dtrun_failed "cannot tell who could change $dtrun_agent: $dtrun_e";
        [ -z "$dtrun_e" ] || dtrun_failed "others could change the agent in $dtrun_cache: they may
        write to $dtrun_e";
        dtrun_apart dtrun_keep; umask "$dtrun_mask";
    };
)sh";

}  // namespace dtrun::transport
