// The archive of what is carried to hosts: what comes out are files below one folder, no more than was allowed.

#include "worker/stored/archive.h"

#include <zlib.h>
#include <cstdlib>

namespace {

constexpr std::size_t kUnpackedBytesMax = 64u << 10;

std::string gzip(std::string_view bytes) {
    z_stream stream{};
    constexpr int kGzipWindow = 15 + 16;
    constexpr int kMemory = 8;
    if (::deflateInit2(&stream, 1, Z_DEFLATED, kGzipWindow, kMemory, Z_DEFAULT_STRATEGY) != Z_OK)
        std::abort();
    std::string packed(::deflateBound(&stream, bytes.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(bytes.size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    if (::deflate(&stream, Z_FINISH) != Z_STREAM_END) std::abort();
    packed.resize(stream.total_out);
    ::deflateEnd(&stream);
    return packed;
}

void look_at(std::string_view archive) {
    std::size_t bytes = 0;
    std::string file;
    std::uint64_t come = 0;
    const auto take = [&](const std::string& name, std::uint64_t at, std::string_view piece) {
        if (name.starts_with('/') || name.find("..") != name.npos) std::abort();
        if (at != 0 && (name != file || at != come)) std::abort();
        file = name;
        come = at + piece.size();
        bytes += piece.size();
        return dtrun::Result<void>{};
    };
    const auto read = dtrun::agent::read_archive(archive, kUnpackedBytesMax, take);
    if (read && bytes > kUnpackedBytesMax) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    look_at(bytes);
    look_at(gzip(bytes));  // mutations of what is packed end at its checksum
    return 0;
}
