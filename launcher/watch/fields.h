#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string_view>

// Reads a view, which another build of dtrun may have made: anything may be missing, or of another kind.

namespace dtrun::watch {

/// As it is: a terminal may obey it. Empty: there is none.
std::string_view text_of(const boost::json::object& object, std::string_view name);
std::optional<double> number_of(const boost::json::object& object, std::string_view name);
/// 0: there is none.
std::int64_t whole(const boost::json::object& object, std::string_view name);
/// Empty: there is none.
const boost::json::array& list_of(const boost::json::object& object, std::string_view name);
/// An item of a list; empty if it is no object.
const boost::json::object& object_of(const boost::json::value& item);

}  // namespace dtrun::watch
