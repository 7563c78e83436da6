#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::lab::rank {

inline constexpr std::size_t kImageSide = 28;
inline constexpr std::size_t kImageBytes = kImageSide * kImageSide;
inline constexpr std::size_t kDigits = 10;

/// Grey images of 28 x 28 and which digit each one shows.
struct Images {
    std::vector<std::uint8_t> pixels;  ///< kImageBytes for each
    std::vector<std::uint8_t> labels;

    std::size_t size() const { return labels.size(); }
    const std::uint8_t* image(std::size_t index) const {
        return pixels.data() + index * kImageBytes;
    }
};

struct DataSet {
    Images training;
    Images test;
    std::string name;  ///< for reports
};

/// Digits as written by many hands: drawn with strokes of random shape, width, place, size, slant
/// and noise. The same seed gives the same images.
Images draw_digits(std::size_t count, std::uint64_t seed);

/// What the trainer learns from when nobody gives it files: 6,000 images, and 2,000 to test with.
DataSet generated_digits();

/// The four files of MNIST from a folder, or from MNIST/raw or raw below it, where torchvision puts
/// them: {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte (or with a dot before
/// "idx"), each also with .gz if dtrun has been built with zlib.
/// Errc: not_found (names what is missing), invalid_input (names the file)
Result<DataSet> read_mnist(const std::string& folder);

/// Decodes a file in idx format, as MNIST's.
/// \param name  for errors
Result<std::vector<std::uint8_t>> parse_idx_images(const std::string& bytes,
                                                   const std::string& name);
Result<std::vector<std::uint8_t>> parse_idx_labels(const std::string& bytes,
                                                   const std::string& name);

}  // namespace dtrun::lab::rank
