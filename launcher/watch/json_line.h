#pragma once

#include "base/result.h"

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

namespace dtrun::watch {

/// A value as JSON in one line: numbers as people write them ("3.25", where Boost's own has "3.25E0"), and text
/// that is always UTF-8, although ranks and hosts may say what is none. (It must not have the name of Boost's own
/// function: for an object that one fits better, and is called wherever a file above has included it.)
std::string json_line(const boost::json::value& value);

/// An object that somebody else has made, whose strings may be of any bytes. Errc: invalid_input
Result<boost::json::object> parse_object(std::string_view text);

}  // namespace dtrun::watch
