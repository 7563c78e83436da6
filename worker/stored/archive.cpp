#include "worker/stored/archive.h"

#include <zlib.h>
#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

namespace dtrun::agent {
namespace {

constexpr std::size_t kBlockBytes = 512;
// Fields of a header (POSIX.1-1988, "ustar"): where they begin, and their lengths.
constexpr std::size_t kNameBytes = 100;
constexpr std::size_t kSizeAt = 124;
constexpr std::size_t kSizeBytes = 12;
constexpr std::size_t kKindAt = 156;
constexpr std::size_t kUnpackedBytes = 128u << 10;
constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, and gzip's header and trailer

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

/// A tar file that comes in pieces of any size.
class Tar {
public:
    explicit Tar(const TakePiece& take) : take_(take) {}

    Result<void> add(std::string_view bytes) {
        while (!bytes.empty() && !has_ended_) {
            const auto used = in_header_ ? add_to_header(bytes) : add_to_file(bytes);
            if (!used) return std::unexpected(used.error());
            bytes.remove_prefix(*used);
        }
        return {};
    }

    /// Whether no file lacks its end.
    bool is_whole() const { return in_header_ || come_ >= size_; }

private:
    Result<std::size_t> add_to_header(std::string_view bytes) {
        const std::size_t count = std::min(bytes.size(), kBlockBytes - header_.size());
        header_.append(bytes.substr(0, count));
        if (header_.size() < kBlockBytes) return count;
        has_ended_ = header_.front() == '\0';
        if (has_ended_) return count;
        name_ = text_of(header_, 0, kNameBytes);
        const auto size = size_of(header_);
        const char kind = header_[kKindAt];
        header_.clear();
        if (!size || (kind != '0' && kind != '5') || name_.starts_with('/') ||
            name_.find("..") != std::string::npos)
            return fail(Errc::invalid_input, "the archive has an entry that is no plain file");
        is_file_ = kind == '0';
        size_ = *size;
        come_ = 0;
        in_header_ = size_ == 0;
        if (is_file_ && size_ == 0)
            if (auto taken = take_(name_, 0, {}); !taken) return std::unexpected(taken.error());
        return count;
    }

    /// Behind it are zeros up to a whole block.
    Result<std::size_t> add_to_file(std::string_view bytes) {
        const std::string_view piece = bytes.substr(0, come_ < size_ ? size_ - come_ : 0);
        if (is_file_ && !piece.empty())
            if (auto taken = take_(name_, come_, piece); !taken)
                return std::unexpected(taken.error());
        come_ += piece.size();
        std::size_t used = piece.size();
        if (come_ >= size_) {
            const std::size_t whole = (size_ + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
            const std::size_t zeros = std::min(bytes.size() - used, whole - come_);
            used += zeros;
            come_ += zeros;
            in_header_ = come_ == whole;
        }
        return used;
    }

    const TakePiece& take_;
    std::string header_{};  ///< what has come of one
    std::string name_{};
    std::size_t size_ = 0;  ///< of the entry
    std::size_t come_ = 0;  ///< of it, and of the zeros behind it
    bool in_header_ = true, is_file_ = false, has_ended_ = false;
};

}  // namespace

Result<void> read_archive(std::string_view archive, std::size_t bytes_max, const TakePiece& take) {
    z_stream stream{};
    if (::inflateInit2(&stream, kGzipWindow) != Z_OK) return fail(Errc::internal, "out of memory");
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(archive.data()));
    stream.avail_in = static_cast<uInt>(archive.size());
    std::string piece(kUnpackedBytes, '\0');
    Tar tar(take);
    Result<void> done;
    int status = Z_OK;
    while (status == Z_OK && done && stream.total_out <= bytes_max) {
        stream.next_out = reinterpret_cast<Bytef*>(piece.data());
        stream.avail_out = static_cast<uInt>(piece.size());
        status = ::inflate(&stream, Z_NO_FLUSH);
        done = tar.add(std::string_view(piece).substr(0, piece.size() - stream.avail_out));
    }
    const bool is_whole = status == Z_STREAM_END && stream.total_out <= bytes_max && tar.is_whole();
    ::inflateEnd(&stream);
    if (!done || is_whole) return done;
    return fail(Errc::invalid_input, "the archive is damaged");
}

}  // namespace dtrun::agent
