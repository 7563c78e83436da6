#pragma once

#include "tests/support/catch.h"
#include "worker/binding/machine.h"

#include <string>
#include <utility>

namespace dtrun::binding {

inline Machine machine_like(const std::string& text) {
    auto machine = synthetic_machine(text);
    REQUIRE(machine.has_value());
    return std::move(*machine);
}

/// A host with two sockets of four NUMA nodes each, of which 1, 2, 6 and 7 have two GPUs, and an adapter
/// beside each: as servers with H200 and Turin are. It was drawn by hand; lstopo reads it.
inline Machine eight_gpus() {
    auto machine = machine_of_file(DTRUN_BINDING_DATA "/eight_gpus.xml");
    REQUIRE(machine.has_value());
    return std::move(*machine);
}

}  // namespace dtrun::binding
