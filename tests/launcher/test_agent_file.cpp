// The agent that belongs to a dtrun, looked for in folders of this test.
#include "launcher/transport/agent_file.h"

#include "base/build_id.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <elf.h>
#include <filesystem>
#include <fstream>

namespace dtrun {

using namespace transport;

namespace {

namespace fs = std::filesystem;
using Catch::Contains;

/// A folder with `bin`, in which a dtrun would lie.
class InstalledHere {
public:
    std::string bin() const { return folder_.at("bin"); }
    fs::path file(const std::string& name) const { return folder_.at(name); }

    /// \param like  a program, of this machine
    fs::path add(const std::string& name, const char* like = "/bin/true") const {
        fs::create_directories(file(name).parent_path());
        fs::copy_file(like, file(name), fs::copy_options::overwrite_existing);
        return file(name);
    }
    std::string error(const std::string& machine = {}) const {
        const auto found = find_agent_near(bin(), machine);
        REQUIRE_FALSE(found.has_value());
        return found.error().message;
    }

private:
    TempDir folder_;
};

/// Says in a program's header that it is of another CPU.
void set_cpu(const fs::path& program, std::uint16_t cpu) {
    std::fstream file(program, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offsetof(Elf64_Ehdr, e_machine));
    file.write(reinterpret_cast<const char*>(&cpu), sizeof cpu);
}

}  // namespace

TEST_CASE("a dtrun knows the builds of all agents that it has", "[agent]") {
    const InstalledHere tree;
    CHECK(agent_build_ids_near(tree.bin()).empty());
    const std::string own = own_cpu(), other = own == "x86_64" ? "aarch64" : "x86_64";
    tree.add("libexec/dtrun/dtrun-agent");
    set_cpu(tree.add("libexec/dtrun/dtrun-agent-" + other, "/bin/false"),
            other == "aarch64" ? EM_AARCH64 : EM_X86_64);
    CHECK(agent_build_ids_near(tree.bin()) ==
          std::vector{elf_build_id("/bin/true").value(), elf_build_id("/bin/false").value()});
}

TEST_CASE("the agent lies beside dtrun, or in libexec of its prefix, with its package", "[agent]") {
    const InstalledHere tree;
    const fs::path installed = tree.add("libexec/dtrun/dtrun-agent");
    CHECK(find_agent_near(tree.bin(), "").value().path == installed);
    CHECK(find_agent_near(tree.bin(), "").value().package.empty());
    std::ofstream(tree.file("libexec/dtrun/dtrun-package.tar.gz")) << "package";
    CHECK(find_agent_near(tree.bin(), own_cpu()).value().package ==
          tree.file("libexec/dtrun/dtrun-package.tar.gz"));
    const fs::path beside = tree.add("bin/dtrun-agent");
    CHECK(find_agent_near(tree.bin(), "").value().path == beside);
}

TEST_CASE("a dtrun without its agent says where it has looked, and what to do", "[agent]") {
    const InstalledHere tree;
    CHECK_THAT(tree.error(), Contains(tree.bin() + "/dtrun-agent and ") &&
                                 Contains(tree.file("libexec/dtrun/dtrun-agent").native()) &&
                                 Contains("Install dtrun as a whole"));
}

TEST_CASE("an agent that cannot be used says why", "[agent]") {
    const InstalledHere tree;
    const fs::path agent = tree.add("bin/dtrun-agent");
    fs::permissions(agent, fs::perms::owner_read);
    CHECK_THAT(tree.error(), Contains(agent.native() + " cannot be executed: chmod 755"));
    fs::permissions(agent, fs::perms::owner_all);
    set_cpu(agent, EM_SPARCV9);
    CHECK_THAT(tree.error(), Contains("is for another CPU than " + own_cpu()));
    std::ofstream(agent) << "#!/bin/sh\n";
    CHECK_THAT(tree.error(), Contains("not dtrun's agent; install dtrun anew") &&
                                 Contains("not a 64-bit ELF file"));
}

TEST_CASE("the agent of another CPU is found by any of its names, and need not be executable",
          "[agent]") {
    const InstalledHere tree;
    const bool is_arm = own_cpu() == "aarch64";
    const std::string cpu = is_arm ? "x86_64" : "aarch64";
    const fs::path agent = tree.add("libexec/dtrun/dtrun-agent-" + cpu);
    set_cpu(agent, is_arm ? EM_X86_64 : EM_AARCH64);
    std::ofstream(tree.file("libexec/dtrun/dtrun-package-" + cpu + ".tar.gz")) << "package";
    fs::permissions(agent, fs::perms::owner_read);
    for (const std::string& name : {cpu, std::string(is_arm ? "amd64" : "arm64")}) {
        const auto found = find_agent_near(tree.bin(), name);
        REQUIRE(found.has_value());
        CHECK(found->path == agent);
        CHECK_THAT(found->package, Contains("dtrun-package-" + cpu));
    }
}

TEST_CASE("a CPU without an agent is told with where to get one", "[agent]") {
    const InstalledHere tree;
    CHECK_THAT(tree.error(own_cpu() == "aarch64" ? "x86_64" : "aarch64"),
               Contains("pip install dtrun") && Contains("x86_64 and aarch64"));
    CHECK_THAT(tree.error("i686"), Contains("dtrun needs a 64-bit kernel"));
    CHECK_THAT(tree.error("armv7l"), Contains("dtrun needs a 64-bit kernel"));
    CHECK_THAT(tree.error("ppc64le"), Contains("build dtrun on such a machine") &&
                                          Contains(tree.bin() + "/dtrun-agent-ppc64le") &&
                                          Contains(tree.bin() + "/dtrun-package-ppc64le.tar.gz"));
}

}  // namespace dtrun
