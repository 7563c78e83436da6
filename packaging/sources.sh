# Sources of libraries: downloaded by name, checked by digest, unpacked, with Debian's patches. Read by `portable`.
: "${DTRUN_DEBIAN_MIRROR:=http://deb.debian.org/debian}" "${DTRUN_PORTABLE_SOURCES:=$out/downloads}"

rows_of() { # rows_of NAME: "SHA256 FILE" of a library, one a line
    awk -v name="$1" '/^[^# ]/ {on = $1 == name} on && /^ / {print $1, $2}' "$here/libraries.txt"
}

version_of() {
    awk -v name="$1" '$1 == name {print $2}' "$here/libraries.txt"
}

download() { # download SHA256 FILE: prints where it lies
    local file=$DTRUN_PORTABLE_SOURCES/${2##*/}
    if [ ! -e "$file" ]; then
        mkdir -p "$DTRUN_PORTABLE_SOURCES"
        echo "portable: downloading ${2##*/}" >&2
        # A mirror that has stopped is given up after a minute. The folder may be another clone's, too.
        curl -fsSL --retry 3 --connect-timeout 30 --speed-limit 1000 --speed-time 60 -o "$file.$$" \
            "$DTRUN_DEBIAN_MIRROR/$2" || {
            rm -f "$file.$$"
            say "cannot download $DTRUN_DEBIAN_MIRROR/$2. Debian keeps only newest versions: take the file from" \
                "elsewhere and put it into $DTRUN_PORTABLE_SOURCES, or raise the version in packaging/libraries.txt"
        }
        has_digest "$1" "$file.$$" || {
            rm -f "$file.$$"
            say "$DTRUN_DEBIAN_MIRROR/$2 has another SHA-256 than packaging/libraries.txt says"
        }
        mv "$file.$$" "$file"
    fi
    has_digest "$1" "$file" ||
        say "$file has another SHA-256 than packaging/libraries.txt says; delete it to download it again"
    echo "$file"
}

has_digest() { # has_digest SHA256 FILE
    echo "$1  $2" | sha256sum --check --status
}

# Whoever calls it looks at its status, so nothing in it ends by `set -e`: each command says what to do.
unpack() { # unpack NAME: prints the folder of its patched sources
    local folder=$out/sources/$1-$(version_of "$1") sum path file
    if [ -d "$changed/$1" ]; then
        echo "$changed/$1"
        return
    fi
    [ -n "$(rows_of "$1")" ] || say "packaging/libraries.txt has no library $1"
    if [ ! -e "$folder.done" ] || [ "$(cat "$folder.done")" != "$(rows_of "$1")" ]; then
        rm -rf "$folder" "$folder.done"
        mkdir -p "$folder" || say "cannot make $folder"
        while read -r sum path; do
            file=$(download "$sum" "$path") || exit 1
            unpack_file "$file" "$folder" || say "cannot unpack $file"
        done < <(rows_of "$1")
        debian_patches "$folder"
        rows_of "$1" >"$folder.done" || say "cannot write $folder.done"
    fi
    echo "$folder"
}

unpack_file() { # unpack_file FILE FOLDER
    case $1 in
        *.deb) ar p "$1" data.tar.xz | tar -xJ -C "$2" ./usr/include ;;
        *.debian.tar.*) tar -xf "$1" -C "$2" ;;
        *) tar -xf "$1" -C "$2" --strip-components=1 ;;
    esac
}

debian_patches() { # debian_patches FOLDER: applies debian/patches/series
    local patch
    [ -e "$1/debian/patches/series" ] || return 0
    while read -r patch; do
        patch -d "$1" -p1 -s -f --no-backup-if-mismatch <"$1/debian/patches/${patch%% *}" >&2 ||
            say "${patch%% *} of Debian's patches does not fit $1"
    done < <(grep -v '^ *\(#\|$\)' "$1/debian/patches/series")
}
