#include "lab/rank/images.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>

using namespace dtrun::lab;
using namespace dtrun::lab::rank;

namespace {

std::string number(std::uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
    return bytes;
}

std::string images_file(std::uint32_t count) {
    return number(0x803) + number(count) + number(28) + number(28) +
           std::string(count * kImageBytes, '\x07');
}

std::string labels_file(const std::string& labels) {
    return number(0x801) + number(static_cast<std::uint32_t>(labels.size())) + labels;
}

/// Without which part of the message an error would be of no use.
std::string error_of(const dtrun::Result<DataSet>& data) {
    return data ? "none" : data.error().message;
}

}  // namespace

TEST_CASE("drawn digits depend on the seed alone, and no two are the same", "[lab][rank]") {
    const Images one = draw_digits(200, 7);
    const Images same = draw_digits(200, 7);
    CHECK(one.pixels == same.pixels);
    CHECK(one.labels == same.labels);
    CHECK(one.pixels != draw_digits(200, 8).pixels);
    std::set<std::vector<std::uint8_t>> different;
    std::array<int, kDigits> counts{};
    for (std::size_t i = 0; i < one.size(); ++i) {
        different.emplace(one.image(i), one.image(i) + kImageBytes);
        ++counts[one.labels[i]];
        std::size_t ink = 0;
        for (std::size_t j = 0; j < kImageBytes; ++j) ink += one.image(i)[j] > 100;
        CHECK(ink > 15);
        CHECK(ink < kImageBytes / 2);
    }
    CHECK(different.size() == one.size());
    for (const int count : counts) CHECK(count > 5);
}

TEST_CASE("MNIST is read from where it is usually put", "[lab][rank]") {
    const dtrun::TempDir folder;
    const std::string place = GENERATE("", "raw/", "MNIST/raw/");
    const std::string dot = GENERATE("-", ".");
    REQUIRE(std::system(("mkdir -p " + folder.path() + "/" + place).c_str()) == 0);
    folder.write(place + "train-images" + dot + "idx3-ubyte", images_file(3));
    folder.write(place + "train-labels" + dot + "idx1-ubyte", labels_file({1, 2, 9}));
    folder.write(place + "t10k-images" + dot + "idx3-ubyte", images_file(1));
    folder.write(place + "t10k-labels" + dot + "idx1-ubyte", labels_file({5}));
    const auto data = read_mnist(folder.path());
    REQUIRE(error_of(data) == "none");
    CHECK(data->training.size() == 3);
    CHECK(data->training.labels == std::vector<std::uint8_t>{1, 2, 9});
    CHECK(data->training.image(2)[783] == 7);
    CHECK(data->test.labels == std::vector<std::uint8_t>{5});
    CHECK(data->name == "MNIST");
}

TEST_CASE("MNIST is read packed, or the user is told to unpack it", "[lab][rank]") {
    const dtrun::TempDir folder;
    folder.write("train-images-idx3-ubyte", images_file(2));
    folder.write("train-labels-idx1-ubyte", labels_file({1, 2}));
    folder.write("t10k-images-idx3-ubyte", images_file(1));
    folder.write("t10k-labels-idx1-ubyte", labels_file({5}));
    REQUIRE(std::system(("gzip " + folder.path() + "/*").c_str()) == 0);
    const auto data = read_mnist(folder.path());
    if (data)
        CHECK(data->training.size() == 2);
    else
        CHECK(error_of(data).ends_with("gunzip it"));
    if (!data) return;
    const std::string packed = folder.path() + "/t10k-images-idx3-ubyte.gz";
    std::filesystem::resize_file(packed, std::filesystem::file_size(packed) - 9);
    CHECK(error_of(read_mnist(folder.path())) ==
          packed + ": is damaged or incomplete; fetch it again");
}

TEST_CASE("files that are not MNIST's are refused by name", "[lab][rank]") {
    const dtrun::TempDir folder;
    CHECK(error_of(read_mnist(folder.path() + "/x")) ==
          folder.path() + "/x: there is no such folder");
    CHECK(error_of(read_mnist(folder.path())) ==
          folder.path() +
              ": has no train-images-idx3-ubyte, nor train-images-idx3-ubyte.gz: MNIST's four "
              "files have to be in it");
    CHECK(parse_idx_images("", "a").error().message ==
          "a: is no idx file of MNIST (magic number 0x803)");
    CHECK_FALSE(parse_idx_images(labels_file("\1"), "a").has_value());
    CHECK(parse_idx_images(images_file(2).substr(1), "a").has_value() == false);
    CHECK(parse_idx_images(images_file(2) + "x", "a").error().message ==
          "a: has 1569 bytes behind its head, not 1568: is it whole?");
    CHECK(parse_idx_images(number(0x803) + number(1) + number(28) + number(20), "a")
              .error()
              .message == "a: images of 20 pixels across, not 28");
    CHECK(parse_idx_labels(labels_file("\x0a"), "a").error().message ==
          "a: has a label 10; digits are 0 to 9");
    // More than there can be.
    CHECK_FALSE(parse_idx_images(number(0x803) + number(~0u) + number(28) + number(28), "a"));
    folder.write("train-images-idx3-ubyte", images_file(2));
    folder.write("train-labels-idx1-ubyte", labels_file("\1"));
    CHECK(error_of(read_mnist(folder.path())) ==
          folder.path() + "/train-images-idx3-ubyte: has 2 images, but there are 1 labels");
}
