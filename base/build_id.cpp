#include "base/build_id.h"

#include "base/fd.h"
#include "base/ids.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

namespace dtrun {
namespace {

bool read_at(int fd, void* to, std::size_t bytes, std::uint64_t offset) {
    return ::pread(fd, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

/// Looks for NT_GNU_BUILD_ID among the notes of one segment.
std::string build_id_in(std::span<const std::uint8_t> notes) {
    while (notes.size() >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr note;
        std::memcpy(&note, notes.data(), sizeof note);
        const std::size_t name_bytes = (note.n_namesz + 3u) & ~3u;
        const std::size_t value_bytes = (note.n_descsz + 3u) & ~3u;
        notes = notes.subspan(sizeof note);
        if (name_bytes > notes.size() || value_bytes > notes.size() - name_bytes) return {};
        const auto value = notes.subspan(name_bytes, note.n_descsz);
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            std::memcmp(notes.data(), "GNU", 4) == 0)
            return hex(value);
        notes = notes.subspan(name_bytes + value_bytes);
    }
    return {};
}

}  // namespace

Result<std::string> elf_build_id(const std::string& path) {
    constexpr std::size_t kNoteBytesMax = 64u << 10;
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) {
        const Errc code = errno == ENOENT ? Errc::not_found : Errc::denied;
        return fail(code, "{}: {}", path, strerror(errno));
    }
    Elf64_Ehdr header;
    if (!read_at(file.get(), &header, sizeof header, 0) ||
        std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
        return fail(Errc::invalid_input, "{}: not a 64-bit ELF file", path);
    for (unsigned i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr segment;
        if (!read_at(file.get(), &segment, sizeof segment, header.e_phoff + i * sizeof segment))
            break;
        if (segment.p_type != PT_NOTE || segment.p_filesz > kNoteBytesMax) continue;
        std::vector<std::uint8_t> notes(segment.p_filesz);
        if (!read_at(file.get(), notes.data(), notes.size(), segment.p_offset)) break;
        if (std::string id = build_id_in(notes); !id.empty()) return id;
    }
    return fail(Errc::invalid_input, "{}: has no build id", path);
}

}  // namespace dtrun
