#include "base/fd.h"
#include "base/strings.h"
#include "collectives/codec/codec.h"
#include "collectives/codec/format_table.h"

#include <dtrun/communicator.h>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

using namespace dtrun::collectives;
using Catch::Contains;

namespace {

std::string text_of(const std::string& path) {
    const auto text = dtrun::read_file(DTRUN_SOURCE_DIR "/" + path);
    REQUIRE(text.has_value());
    return *text;
}

/// The strings between quotation marks of a Python tuple that `name = (` begins.
std::vector<std::string> python_tuple(const std::string& text, const std::string& name) {
    const std::size_t begin = text.find("\n" + name + " = (");
    REQUIRE(begin != text.npos);
    const std::string tuple = text.substr(begin, text.find(')', begin) - begin);
    const auto parts = dtrun::split(tuple, '"');
    std::vector<std::string> items;
    for (std::size_t i = 1; i < parts.size(); i += 2) items.emplace_back(parts[i]);
    return items;
}

}  // namespace

TEST_CASE("the public headers know every format by its name and value", "[collectives][codec]") {
#define DTRUN_FORMAT(format, c_name, value, ...)                 \
    static_assert((c_name) == (value), "<dtrun_collectives.h>"); \
    static_assert(static_cast<int>(dtrun::Format::format) == (value), "<dtrun/communicator.h>");
#include "collectives/codec/formats.def"
#include "tests/support/catch.h"
#undef DTRUN_FORMAT
    const std::string header = text_of("collectives/include/dtrun_collectives.h");
    std::size_t public_formats = 0;
    for (std::size_t at = 0; (at = header.find("\n    DTRUN_COMPRESS_", at)) != header.npos; ++at)
        ++public_formats;
    CHECK(public_formats == std::size(kFormats));
}

TEST_CASE("a format's name and value are no other format's", "[collectives][codec]") {
    std::set<std::string_view> names;
    std::set<Format> values;
    for (const FormatRow& row : kFormats) {
        CHECK(names.insert(row.name).second);
        CHECK(values.insert(row.format).second);
        CHECK(find_format(row.name) == &row);
        CHECK(name_of(row.format) == row.name);
        CHECK(find_format(static_cast<int>(row.format)) == &row);
    }
    CHECK(find_format("none") == nullptr);
    CHECK(find_format(0) == nullptr);
}

TEST_CASE("Python names formats as their rows do, in the order of values", "[collectives][codec]") {
    std::vector<std::string> names{"none"};
    names.resize(std::size(kFormats) + 1);
    for (const FormatRow& row : kFormats) names.at(static_cast<std::size_t>(row.format)) = row.name;
    CHECK(python_tuple(text_of("worker/python/dtrun/_words.py"), "FORMATS") == names);
}

TEST_CASE("the manual has every format with its bytes for a block", "[collectives][codec]") {
    const std::string manual = text_of("docs/COLLECTIVES.md");
    for (const FormatRow& row : kFormats) {
        const std::size_t begin = manual.find("`" + std::string(row.name) + "`");
        REQUIRE(begin != manual.npos);
        const std::string line = manual.substr(begin, manual.find('\n', begin) - begin);
        CHECK_THAT(line,
                   Contains(" | " + std::to_string(encoded_bytes(row.format, kBlock)) + " |"));
    }
}

TEST_CASE("no format loses more by rounding than its row says", "[collectives][codec]") {
    for (const FormatRow& row : kFormats) {
        std::vector<float> values(kBlock);
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<float>(i) / static_cast<float>(kBlock - 1);  // 0 to 1
        std::vector<std::byte> code(encoded_bytes(row.format, values.size()));
        std::vector<float> decoded(values.size());
        encode(row.format, Rounding::nearest, 0, values.data(), values.size(), code.data());
        decode(row.format, code.data(), values.size(), decoded.data());
        double largest_share = 0;  // of what is allowed
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double allowed = values[i] * row.relative_error + row.absolute_error;
            if (allowed > 0)
                largest_share =
                    std::max(largest_share, std::abs(double{decoded[i]} - values[i]) / allowed);
        }
        INFO(row.name);
        CHECK(largest_share <= 1.001);
        CHECK(largest_share > 0.5);  // and its row does not say far too much
    }
}
