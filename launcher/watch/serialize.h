#pragma once

#include <boost/json/value.hpp>
#include <string>

namespace dtrun::watch {

/// A value as JSON in one line: numbers as people write them ("3.25", where Boost's own has "3.25E0"), and text
/// that is always UTF-8, although ranks and hosts may say what is none.
std::string serialize(const boost::json::value& value);

}  // namespace dtrun::watch
