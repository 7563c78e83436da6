#pragma once

#include "collectives/backends/plugin_abi.h"
#include "collectives/group.h"

#include <functional>
#include <memory>
#include <string>

namespace dtrun::collectives {

/// What makes groups, of this library or of a plug-in.
struct Backend {
    std::function<Availability()> probe;
    /// All members call it. Errc: timed_out, closed, invalid_input (interface), internal
    std::function<Result<std::unique_ptr<Group>>(const GroupSpec& spec)> connect;
};

/// The library's side of plugin_abi.h: a plug-in's functions of C as Groups.
/// \param plugin  lives for ever
/// \param where   its file, for messages
/// Errc: not_found (of another version, or not all there: what to do)
Result<Backend> import_backend(const dtrun_plugin* plugin, const std::string& where);

/// Loads a plug-in's file, for ever, since the library behind it has threads.
/// Errc: not_found (cannot be loaded; no plug-in; as above)
Result<Backend> load_plugin(const std::string& file);

}  // namespace dtrun::collectives
