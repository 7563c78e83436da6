#pragma once

#include <string>
#include <vector>

namespace dtrun::lab {

/// A square of coloured cells, as an SVG picture that stands inside an HTML page. Colours are the
/// page's, by the classes heat and tick.
struct HeatMapData {
    std::string description;                  ///< text for readers who cannot see it
    std::vector<std::string> names;           ///< of rows, and of columns
    std::vector<std::vector<double>> values;  ///< by row; unknown ones stay empty
    std::string unit;                         ///< for what is shown when a cell is pointed at
    std::string (*text_of)(double);           ///< of a value
    bool strong_is_high = true;  ///< high values have the strongest colour; else low ones
};

/// The picture, 480 wide. Cells have their values written in where there is room.
std::string heat_map_svg(const HeatMapData& data);

}  // namespace dtrun::lab
