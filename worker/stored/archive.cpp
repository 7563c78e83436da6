#include "worker/stored/archive.h"

#include <zlib.h>
#include <algorithm>
#include <charconv>
#include <optional>

namespace dtrun::agent {
namespace {

constexpr std::size_t kBlockBytes = 512;
// Fields of a header (POSIX.1-1988, "ustar"): where they begin, and their lengths.
constexpr std::size_t kNameBytes = 100;
constexpr std::size_t kSizeAt = 124;
constexpr std::size_t kSizeBytes = 12;
constexpr std::size_t kKindAt = 156;
constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, and gzip's header and trailer

Result<std::string> gunzip(std::string_view archive, std::size_t bytes_max) {
    z_stream stream{};
    if (::inflateInit2(&stream, kGzipWindow) != Z_OK) return fail(Errc::internal, "out of memory");
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(archive.data()));
    stream.avail_in = static_cast<uInt>(archive.size());
    std::string bytes;
    int status = Z_OK;
    while (status == Z_OK && bytes.size() < bytes_max) {
        const std::size_t before = bytes.size();
        bytes.resize(std::min(std::max(4 * archive.size(), 2 * before), bytes_max));
        stream.next_out = reinterpret_cast<Bytef*>(bytes.data() + before);
        stream.avail_out = static_cast<uInt>(bytes.size() - before);
        status = ::inflate(&stream, Z_NO_FLUSH);
        bytes.resize(stream.total_out);
    }
    ::inflateEnd(&stream);
    if (status != Z_STREAM_END) return fail(Errc::invalid_input, "the archive is damaged");
    return bytes;
}

/// A text that ends with its field or with a zero in it.
std::string_view text_of(std::string_view header, std::size_t at, std::size_t length) {
    const std::string_view field = header.substr(at, length);
    return field.substr(0, field.find('\0'));
}

std::optional<std::size_t> size_of(std::string_view header) {
    const std::string_view text = text_of(header, kSizeAt, kSizeBytes);
    std::size_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size, 8);
    if (error != std::errc() || end == text.data()) return {};
    return size;
}

}  // namespace

Result<std::vector<ArchivedFile>> read_archive(std::string_view archive, std::size_t bytes_max) {
    const auto unpacked = gunzip(archive, bytes_max);
    if (!unpacked) return std::unexpected(unpacked.error());
    std::string_view rest = *unpacked;
    std::vector<ArchivedFile> files;
    while (rest.size() >= kBlockBytes && rest.front() != '\0') {
        const std::string_view header = rest.substr(0, kBlockBytes);
        const std::string_view name = text_of(header, 0, kNameBytes);
        const auto size = size_of(header);
        const char kind = header[kKindAt];
        rest.remove_prefix(kBlockBytes);
        if (!size || *size > rest.size() || (kind != '0' && kind != '5') || name.starts_with('/') ||
            name.find("..") != std::string_view::npos)
            return fail(Errc::invalid_input, "the archive has an entry that is no plain file");
        if (kind == '0') files.push_back({std::string(name), std::string(rest.substr(0, *size))});
        const std::size_t whole = (*size + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
        rest.remove_prefix(std::min(whole, rest.size()));
    }
    return files;
}

}  // namespace dtrun::agent
