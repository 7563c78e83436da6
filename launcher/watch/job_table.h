#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

// What is known of jobs, as text for a terminal. Pure. Views are those of JobRecord::view(); names in them are
// other people's words, and shown so that no terminal obeys them.

namespace dtrun::watch {

/// `dtrun jobs`: a line for each job.
std::string jobs_table(const std::vector<boost::json::object>& views);

/// The column by which ranks are sorted.
enum class TopOrder { rank, processors, memory, step };

/// `dtrun top`: the job, its hosts and its ranks. \param rows  at most so many lines, each at most `columns` wide;
/// what is more is counted. 0: any number
std::string top_text(const boost::json::object& view, TopOrder order, std::size_t rows,
                     std::size_t columns);

}  // namespace dtrun::watch
