#pragma once

#include "collectives/backends/plugin_abi.h"
#include "collectives/group.h"

#include <memory>

namespace dtrun::collectives::plugin {

/// Whether the backend can be had in this process; may look for its library.
using Probe = Availability (*)();
/// All members call it. Errc: timed_out, closed, invalid_input (interface), internal
using Connect = Result<std::unique_ptr<Group>> (*)(const GroupSpec& spec);

// The plug-in's side of plugin_abi.h: a Group as functions of C.
int give_availability(Probe probe, const dtrun_plugin_sink* why) noexcept;
int give_group(Connect connect, const dtrun_plugin_spec* spec, void** group,
               const dtrun_plugin_sink* error) noexcept;
dtrun_plugin describe(const char* name);

template <Probe probe, Connect connect>
dtrun_plugin made_of(const char* name) {
    dtrun_plugin made = describe(name);
    made.probe = [](const dtrun_plugin_sink* why) { return give_availability(probe, why); };
    made.connect = [](const dtrun_plugin_spec* spec, void** group, const dtrun_plugin_sink* error) {
        return give_group(connect, spec, group, error);
    };
    return made;
}

}  // namespace dtrun::collectives::plugin

/// All that a plug-in writes beside its Group: its name, as in backends.def, a Probe and a Connect.
#define DTRUN_BACKEND_PLUGIN(name, probe, connect)                                                \
    extern "C" __attribute__((visibility("default"))) const dtrun_plugin* dtrun_backend_plugin(); \
    const dtrun_plugin* dtrun_backend_plugin() {                                                  \
        static const dtrun_plugin plugin =                                                        \
            dtrun::collectives::plugin::made_of<probe, connect>(name);                            \
        return &plugin;                                                                           \
    }
