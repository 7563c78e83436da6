#include "collectives/backends/plugin.h"
#include "collectives/backends/plugin_import.h"
#include "collectives/communicator/self_group.h"
#include "tests/collectives/support/thread_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <cstddef>
#include <cstring>

using namespace dtrun;
using namespace dtrun::collectives;
using Catch::Contains;

namespace {

Availability probe() {
    return {true, ""};
}

Result<std::unique_ptr<Group>> connect(const GroupSpec&) {
    return std::make_unique<SelfGroup>();
}

const dtrun_plugin kWhole = plugin::made_of<probe, connect>("whole");

/// What is said of the plug-in with a change.
template <class Change>
std::string refusal(Change change) {
    dtrun_plugin plugin = kWhole;
    dtrun_plugin_calls calls = *kWhole.calls;
    plugin.calls = &calls;
    change(plugin, calls);
    const auto backend = import_backend(&plugin, "/x.so");
    if (!backend) CHECK(backend.error().code == Errc::not_found);
    return backend ? "" : backend.error().message;
}

}  // namespace

TEST_CASE("a plug-in of another version is refused, with what to do", "[collectives][plugin]") {
    using Plugin = dtrun_plugin;
    using Calls = dtrun_plugin_calls;
    CHECK(refusal([](Plugin&, Calls&) {}) == "");
    // What such plug-ins had first was the same, and no more.
    struct OfCpp {
        std::uint32_t abi = 5;
        const char* name = "gloo";
        void (*probe)() = nullptr;
        void (*connect)() = nullptr;
    } const old;
    const auto of_cpp = import_backend(reinterpret_cast<const dtrun_plugin*>(&old), "/old.so");
    REQUIRE_FALSE(of_cpp.has_value());
    CHECK_THAT(of_cpp.error().message,
               Catch::StartsWith("/old.so is of an older version of dtrun") &&
                   Contains("build it again with the source of this"));
    CHECK_THAT(refusal([](Plugin& plugin, Calls&) { plugin.abi = DTRUN_PLUGIN_ABI + 1; }),
               Catch::StartsWith("/x.so is of a newer version of dtrun"));
    CHECK_THAT(refusal([](Plugin& plugin, Calls&) {
                   plugin.protocol = DTRUN_PLUGIN_PROTOCOL + 1;
                   plugin.version = "9.9";
               }),
               Catch::StartsWith("/x.so was built with dtrun 9.9 (collectives' protocol ") &&
                   Contains("build it again"));
}

TEST_CASE("a plug-in that is not all there is refused, with what it lacks",
          "[collectives][plugin]") {
    using Plugin = dtrun_plugin;
    using Calls = dtrun_plugin_calls;
    const std::string vague = "/x.so is a plug-in of dtrun that does not describe itself";
    CHECK(refusal([](Plugin& plugin, Calls&) { plugin.size = offsetof(Plugin, connect); }) ==
          vague);
    CHECK(refusal([](Plugin& plugin, Calls&) { plugin.calls = nullptr; }) == vague);
    CHECK(refusal([](Plugin& plugin, Calls&) { plugin.probe = nullptr; }) == vague);
    CHECK(refusal([](Plugin&, Calls& calls) { calls.size = offsetof(Calls, run); }) ==
          "/x.so is a plug-in of dtrun without run()");
    CHECK(refusal([](Plugin&, Calls& calls) { calls.size = 0; }) ==
          "/x.so is a plug-in of dtrun without free()");
    CHECK(refusal([](Plugin&, Calls& calls) { calls.abort = nullptr; }) ==
          "/x.so is a plug-in of dtrun without abort()");
    CHECK(refusal([](Plugin&, Calls& calls) { calls.end_mark = nullptr; }) ==
          "/x.so is a plug-in of dtrun without end_mark()");
    CHECK(import_backend(nullptr, "/x.so").error().message ==
          "/x.so is a plug-in of dtrun without a description");
}

TEST_CASE("a plug-in without what came later, or with more than is known, is taken",
          "[collectives][plugin]") {
    struct Longer {
        dtrun_plugin_calls calls;
        void (*more)();
    } longer{*kWhole.calls, nullptr};
    for (const std::size_t size : {offsetof(dtrun_plugin_calls, mark), sizeof longer}) {
        longer.calls.size = size;
        dtrun_plugin plugin = kWhole;
        plugin.calls = &longer.calls;
        const auto backend = import_backend(&plugin, "/x.so");
        REQUIRE(backend.has_value());
        MemoryStore store;
        const auto group = backend->connect(thread_spec(0, 1, store));
        REQUIRE(group.has_value());
        int one = 1, other = 0;
        CHECK((*group)->run(op::allreduce(&one, &other, 1, DType::i32, Reduce::sum)).has_value());
        CHECK(other == 1);
        CHECK((*group)->mark(nullptr) == nullptr);
    }
}

TEST_CASE("a file that is no plug-in is refused", "[collectives][plugin]") {
    const TempDir folder;
    const auto text = load_plugin(folder.write("libdtrun_backend_x.so", "no library"));
    REQUIRE_FALSE(text.has_value());
    CHECK_THAT(text.error().message, Contains("libdtrun_backend_x.so: "));
    CHECK(load_plugin("libm.so.6").error().message == "libm.so.6 is no plug-in of dtrun");
}
