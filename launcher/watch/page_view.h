#pragma once

#include "launcher/watch/health.h"

#include <boost/json/object.hpp>

namespace dtrun::watch {

/// What the page's map of a job needs, small: what ranks and GPUs of a host have in common is one list of numbers,
/// and what nobody looks at is left out, so that 1,000 hosts of 8 GPUs are some 300 KB. README.md has the fields.
/// Pure. \param view  of JobRecord::view(), or a job of daemon_jobs()
boost::json::object page_view(const boost::json::object& view, const Health& health);

}  // namespace dtrun::watch
