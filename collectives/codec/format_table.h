#pragma once

#include "collectives/codec/format.h"

#include <string_view>

namespace dtrun::collectives {

/// A row of formats.def, where the members are explained.
struct FormatRow {
    enum class Use { practice, study };

    Format format;
    std::string_view name;
    unsigned bits;
    std::size_t block;
    float largest;
    double relative_error;
    double absolute_error;
    Use use;

    constexpr bool is_scaled() const { return block > 1; }
};

inline constexpr FormatRow kFormats[] = {
#define DTRUN_FORMAT(format, c_name, value, name, bits, block, largest, relative, absolute, use) \
    {Format::format, name, bits, block, largest, relative, absolute, FormatRow::Use::use},
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT
};

/// \return nullptr if there is no such format
constexpr const FormatRow* find_format(std::string_view name) {
    for (const FormatRow& row : kFormats)
        if (row.name == name) return &row;
    return nullptr;
}

/// \param value  of dtrun_format in <dtrun_collectives.h>
constexpr const FormatRow* find_format(int value) {
    for (const FormatRow& row : kFormats)
        if (static_cast<int>(row.format) == value) return &row;
    return nullptr;
}

constexpr const FormatRow& row_of(Format format) {
    return *find_format(static_cast<int>(format));
}

}  // namespace dtrun::collectives
