#include "base/fd.h"
#include "lab/rank/images.h"

#include <array>
#include <filesystem>
#include <span>

#if DTRUN_WITH_ZLIB
#include <zlib.h>
#endif

namespace dtrun::lab::rank {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFileBytesMax = 256u << 20;

#if DTRUN_WITH_ZLIB
Result<std::string> unpack(const std::string& path) {
    const gzFile file = ::gzopen(path.c_str(), "rb");
    if (!file) return fail(Errc::not_found, "{}: cannot be opened", path);
    std::string bytes;
    std::array<char, 64u << 10> piece;
    int got = 0;
    while ((got = ::gzread(file, piece.data(), piece.size())) > 0 && bytes.size() < kFileBytesMax)
        bytes.append(piece.data(), static_cast<std::size_t>(got));
    const bool complete = ::gzclose(file) == Z_OK;
    if (got != 0 || !complete)
        return fail(Errc::invalid_input, "{}: is damaged or incomplete; fetch it again", path);
    return bytes;
}
#else
Result<std::string> unpack(const std::string& path) {
    return fail(Errc::invalid_input, "{}: this dtrun was built without zlib; gunzip it", path);
}
#endif

struct File {
    std::string path;
    std::string bytes;
};

Result<File> with_path(const std::string& path, Result<std::string> bytes) {
    if (!bytes) return std::unexpected(bytes.error());
    return File{path, std::move(*bytes)};
}

/// A file of MNIST, by its name with a '-' before "idx"; torchvision and others have a '.' there.
Result<File> read_idx(const fs::path& folder, const std::string& name) {
    std::string dotted = name;
    dotted[dotted.rfind("-idx")] = '.';
    std::error_code ignored;
    for (const char* inside : {"", "MNIST/raw", "raw"})
        for (const std::string& spelled : {name, dotted}) {
            const std::string path = folder / inside / spelled;
            if (fs::exists(path, ignored)) return with_path(path, read_file(path, kFileBytesMax));
            const std::string packed = path + ".gz";
            if (fs::exists(packed, ignored)) return with_path(packed, unpack(packed));
        }
    return fail(Errc::not_found, "{}: has no {}, nor {}.gz: MNIST's four files have to be in it",
                folder.string(), name, name);
}

/// The numbers at the beginning of a file, and what follows them.
/// \param magic       the first number: type (8 = bytes) and number of dimensions
/// \param dimensions  behind the count, which comes second
Result<std::vector<std::uint8_t>> parse_idx(const std::string& bytes, const std::string& name,
                                            std::uint32_t magic,
                                            std::span<const std::uint32_t> dimensions) {
    const auto number = [&](std::size_t index) {
        std::uint32_t value = 0;
        for (std::size_t i = 0; i < 4; ++i)
            value = value << 8 | static_cast<unsigned char>(bytes[index * 4 + i]);
        return value;
    };
    const std::size_t head = 4 * (2 + dimensions.size());
    if (bytes.size() < head || number(0) != magic)
        return fail(Errc::invalid_input, "{}: is no idx file of MNIST (magic number {:#x})", name,
                    magic);
    std::size_t expected = number(1);
    for (std::size_t i = 0; i < dimensions.size(); ++i) {
        if (number(2 + i) != dimensions[i])
            return fail(Errc::invalid_input, "{}: images of {} pixels across, not {}", name,
                        number(2 + i), dimensions[i]);
        expected *= dimensions[i];
    }
    if (bytes.size() - head != expected)
        return fail(Errc::invalid_input, "{}: has {} bytes behind its head, not {}: is it whole?",
                    name, bytes.size() - head, expected);
    return std::vector<std::uint8_t>(bytes.begin() + static_cast<std::ptrdiff_t>(head),
                                     bytes.end());
}

Result<Images> read_images(const fs::path& folder, const std::string& prefix) {
    const auto images_file = read_idx(folder, prefix + "-images-idx3-ubyte");
    if (!images_file) return std::unexpected(images_file.error());
    const auto labels_file = read_idx(folder, prefix + "-labels-idx1-ubyte");
    if (!labels_file) return std::unexpected(labels_file.error());
    auto pixels = parse_idx_images(images_file->bytes, images_file->path);
    if (!pixels) return std::unexpected(pixels.error());
    auto labels = parse_idx_labels(labels_file->bytes, labels_file->path);
    if (!labels) return std::unexpected(labels.error());
    if (pixels->size() != labels->size() * kImageBytes)
        return fail(Errc::invalid_input, "{}: has {} images, but there are {} labels",
                    images_file->path, pixels->size() / kImageBytes, labels->size());
    return Images{std::move(*pixels), std::move(*labels)};
}

}  // namespace

Result<std::vector<std::uint8_t>> parse_idx_images(const std::string& bytes,
                                                   const std::string& name) {
    constexpr std::array<std::uint32_t, 2> kDimensions{kImageSide, kImageSide};
    return parse_idx(bytes, name, 0x803, kDimensions);
}

Result<std::vector<std::uint8_t>> parse_idx_labels(const std::string& bytes,
                                                   const std::string& name) {
    auto labels = parse_idx(bytes, name, 0x801, {});
    if (!labels) return labels;
    for (const std::uint8_t label : *labels)
        if (label >= kDigits)
            return fail(Errc::invalid_input, "{}: has a label {}; digits are 0 to 9", name, label);
    return labels;
}

Result<DataSet> read_mnist(const std::string& folder) {
    std::error_code ignored;
    if (!fs::is_directory(folder, ignored))
        return fail(Errc::not_found, "{}: there is no such folder", folder);
    auto training = read_images(folder, "train");
    if (!training) return std::unexpected(training.error());
    auto test = read_images(folder, "t10k");
    if (!test) return std::unexpected(test.error());
    return DataSet{std::move(*training), std::move(*test), "MNIST"};
}

}  // namespace dtrun::lab::rank
