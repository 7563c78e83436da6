#include "base/fd.h"
#include "collectives/bench/images.h"

#include <array>
#include <filesystem>
#include <span>

#if DTRUN_WITH_ZLIB
#include <zlib.h>
#endif

namespace dtrun::collectives::bench {

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
    ::gzclose(file);
    if (got != 0) return fail(Errc::invalid_input, "{}: is damaged", path);
    return bytes;
}
#else
Result<std::string> unpack(const std::string& path) {
    return fail(Errc::invalid_input, "{}: this dtrun was built without zlib; gunzip it", path);
}
#endif

/// A file of MNIST, by its name with a '-' before "idx"; torchvision and others have a '.' there.
Result<std::string> read_idx(const fs::path& folder, const std::string& name) {
    std::string dotted = name;
    dotted[dotted.rfind("-idx")] = '.';
    std::error_code ignored;
    for (const char* inside : {"", "MNIST/raw", "raw"})
        for (const std::string& spelled : {name, dotted}) {
            const fs::path path = folder / inside / spelled;
            if (fs::exists(path, ignored)) return read_file(path.string(), kFileBytesMax);
            const std::string packed = path.string() + ".gz";
            if (fs::exists(packed, ignored)) return unpack(packed);
        }
    return fail(Errc::not_found, "{}: no file {} of MNIST in it", folder.string(), name);
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
        return fail(Errc::invalid_input, "{}: has {} bytes behind its head, not {}", name,
                    bytes.size() - head, expected);
    return std::vector<std::uint8_t>(bytes.begin() + static_cast<std::ptrdiff_t>(head),
                                     bytes.end());
}

Result<Images> read_images(const fs::path& folder, const std::string& prefix) {
    const std::string pixels_name = prefix + "-images-idx3-ubyte";
    const std::string labels_name = prefix + "-labels-idx1-ubyte";
    const auto pixel_bytes = read_idx(folder, pixels_name);
    if (!pixel_bytes) return std::unexpected(pixel_bytes.error());
    const auto label_bytes = read_idx(folder, labels_name);
    if (!label_bytes) return std::unexpected(label_bytes.error());
    auto pixels = parse_idx_images(*pixel_bytes, pixels_name);
    if (!pixels) return std::unexpected(pixels.error());
    auto labels = parse_idx_labels(*label_bytes, labels_name);
    if (!labels) return std::unexpected(labels.error());
    if (pixels->size() != labels->size() * kImageBytes)
        return fail(Errc::invalid_input, "{}: has {} images, but there are {} labels", pixels_name,
                    pixels->size() / kImageBytes, labels->size());
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
        if (label >= kDigits) return fail(Errc::invalid_input, "{}: a label {}", name, label);
    return labels;
}

Result<DataSet> read_mnist(const std::string& folder) {
    auto training = read_images(folder, "train");
    if (!training) return std::unexpected(training.error());
    auto test = read_images(folder, "t10k");
    if (!test) return std::unexpected(test.error());
    return DataSet{std::move(*training), std::move(*test), "MNIST"};
}

}  // namespace dtrun::collectives::bench
