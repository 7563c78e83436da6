#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

namespace dtrun::watch {

/// Which ranks come first. \see docs/EVENTS.md
enum class TopOrder : std::uint8_t { trouble, rank, processors, memory, step };

/// Where `dtrun top` is shown.
struct TopShape {
    std::size_t rows = 0;     ///< lines; 0: any number
    std::size_t columns = 0;  ///< of a line; 0: any number
    bool color = false;       ///< it is a terminal that has colours
};

/// `dtrun top`: the job, what is wrong with it, its hosts and its ranks. What does not fit is counted, and what is in
/// trouble comes first; in a narrow place columns are left out, that of steps behind last. Pure; names are other
/// people's words, and shown so that no terminal obeys them. \param view  of JobRecord::view()
std::string top_text(const boost::json::object& view, TopOrder order, const TopShape& shape);

}  // namespace dtrun::watch
