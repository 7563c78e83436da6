#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <vector>

// What is known of jobs, as text for a terminal. Pure. Views are those of JobRecord::view(); names in them are
// other people's words, and shown so that no terminal obeys them.

namespace dtrun::watch {

/// `dtrun jobs`: a line for each job.
std::string jobs_table(const std::vector<boost::json::object>& views);

}  // namespace dtrun::watch
