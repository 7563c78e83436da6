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
        curl -fsSL --retry 3 -o "$file.part" "$DTRUN_DEBIAN_MIRROR/$2" || {
            rm -f "$file.part"
            say "cannot download $DTRUN_DEBIAN_MIRROR/$2. Debian keeps only newest versions: take the file from" \
                "elsewhere and put it into $DTRUN_PORTABLE_SOURCES, or raise the version in packaging/libraries.txt"
        }
        mv "$file.part" "$file"
    fi
    echo "$1  $file" | sha256sum --check --status ||
        say "$file has another SHA-256 than packaging/libraries.txt says; delete it to download it again"
    echo "$file"
}

unpack() { # unpack NAME: prints the folder of its patched sources
    local folder=$out/sources/$1-$(version_of "$1") sum path file
    if [ -d "$changed/$1" ]; then
        echo "$changed/$1"
        return
    fi
    [ -n "$(rows_of "$1")" ] || say "packaging/libraries.txt has no library $1"
    if [ ! -e "$folder.done" ] || [ "$(cat "$folder.done")" != "$(rows_of "$1")" ]; then
        rm -rf "$folder"
        mkdir -p "$folder"
        while read -r sum path; do
            file=$(download "$sum" "$path") || exit 1
            case $file in
                *.deb) ar p "$file" data.tar.xz | tar -xJ -C "$folder" ./usr/include ;;
                *.debian.tar.*) tar -xf "$file" -C "$folder" ;;
                *) tar -xf "$file" -C "$folder" --strip-components=1 ;;
            esac
        done < <(rows_of "$1")
        debian_patches "$folder"
        rows_of "$1" >"$folder.done"
    fi
    echo "$folder"
}

debian_patches() { # debian_patches FOLDER: applies debian/patches/series
    local patch
    [ -e "$1/debian/patches/series" ] || return 0
    while read -r patch; do
        patch -d "$1" -p1 -s -f --no-backup-if-mismatch <"$1/debian/patches/${patch%% *}" >&2
    done < <(grep -v '^ *\(#\|$\)' "$1/debian/patches/series")
}
