#include "launcher/transport/gzip.h"

#include <zlib.h>

namespace dtrun::transport {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, and gzip's header and trailer
constexpr int kMemory = 8;            // zlib's own choice

}  // namespace

std::string gzip(std::string_view bytes) {
    z_stream stream{};
    ::deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipWindow, kMemory, Z_DEFAULT_STRATEGY);
    std::string packed(::deflateBound(&stream, bytes.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(bytes.size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    ::deflate(&stream, Z_FINISH);  // there is room for all of it
    packed.resize(stream.total_out);
    ::deflateEnd(&stream);
    return packed;
}

}  // namespace dtrun::transport
