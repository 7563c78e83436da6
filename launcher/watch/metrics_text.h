#pragma once

#include <boost/json/object.hpp>
#include <string>

namespace dtrun::watch {

/// What is known of a job, in Prometheus' text format 0.0.4: numbers, the job's id, and names of hosts; no
/// arguments, output or addresses. Pure. \param view  as JobRecord::view() has it
std::string metrics_text(const boost::json::object& view);

/// The same of a daemon and its jobs, by their names. \param status  as Daemon::status() makes it
std::string daemon_metrics_text(const boost::json::object& status);

inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace dtrun::watch
