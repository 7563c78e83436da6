#include "base/linked_libraries.h"

#include "base/fd.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace dtrun {
namespace {

constexpr std::uint64_t kEntriesMax = 4'096;  // of a dynamic section; they have about thirty

/// As many values as the file has at an offset, at most `count`, in one system call.
template <class T>
std::vector<T> read_at(const Fd& file, std::uint64_t offset, std::uint64_t count) {
    std::vector<T> values(count);
    const auto bytes =
        ::pread(file.get(), values.data(), count * sizeof(T), static_cast<off_t>(offset));
    values.resize(bytes > 0 ? static_cast<std::size_t>(bytes) / sizeof(T) : 0);
    return values;
}

std::string name_at(const Fd& file, std::uint64_t offset) {
    std::array<char, 256> bytes{};
    const auto count =
        ::pread(file.get(), bytes.data(), bytes.size() - 1, static_cast<off_t>(offset));
    return count > 0 ? bytes.data() : "";
}

/// Where the bytes of a virtual address are in the file.
std::uint64_t offset_of(const std::vector<Elf64_Phdr>& segments, std::uint64_t address) {
    for (const Elf64_Phdr& segment : segments)
        if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
            address - segment.p_vaddr < segment.p_filesz)
            return address - segment.p_vaddr + segment.p_offset;
    return 0;
}

/// Empty unless it is a program of this machine's kind.
std::vector<Elf64_Phdr> segments_of(const Fd& file) {
    const auto headers = read_at<Elf64_Ehdr>(file, 0, 1);
    if (headers.empty()) return {};
    const Elf64_Ehdr& header = headers.front();
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_phentsize != sizeof(Elf64_Phdr))
        return {};
    auto segments = read_at<Elf64_Phdr>(file, header.e_phoff, header.e_phnum);
    if (segments.size() < header.e_phnum) segments.clear();
    return segments;
}

}  // namespace

LinkedLibraries linked_libraries(const std::string& path) {
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    const std::vector<Elf64_Phdr> segments = segments_of(file);
    LinkedLibraries linked;
    std::uint64_t names = 0;
    std::vector<std::uint64_t> needed;
    for (const Elf64_Phdr& segment : segments) {
        if (segment.p_type == PT_INTERP) linked.loader = name_at(file, segment.p_offset);
        if (segment.p_type != PT_DYNAMIC) continue;
        const std::uint64_t entries = segment.p_filesz / sizeof(Elf64_Dyn);
        for (const Elf64_Dyn& entry :
             read_at<Elf64_Dyn>(file, segment.p_offset, std::min(entries, kEntriesMax))) {
            if (entry.d_tag == DT_NULL) break;
            if (entry.d_tag == DT_NEEDED) needed.push_back(entry.d_un.d_val);
            if (entry.d_tag == DT_STRTAB) names = offset_of(segments, entry.d_un.d_ptr);
        }
    }
    for (const std::uint64_t name : needed) linked.needed.push_back(name_at(file, names + name));
    return linked;
}

}  // namespace dtrun
