#include "base/strings.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"

using namespace dtrun;
using namespace dtrun::commands;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

/// Options of what stands behind `dtrun`.
HostsOptions hosts_of(std::string_view typed) {
    const std::vector<std::string> words = shell_words(typed).value();
    const auto parsed = parse_hosts_command(Words(words).subspan(1));
    INFO(message_of(parsed));
    REQUIRE(parsed.has_value());
    REQUIRE(parsed->asked == Ask::nothing);
    return parsed->own;
}

}  // namespace

TEST_CASE("dtrun hosts without options has the documented defaults", "[launcher][cli][hosts]") {
    const HostsOptions command = hosts_of("hosts");
    CHECK(command.format == HostFormat::deepspeed);
    CHECK_FALSE(command.slots);
    CHECK_FALSE(command.slots_auto);
    CHECK(command.ssh_port == 22);
    CHECK(command.connect_timeout == 10s);
    CHECK_FALSE((command.short_names || command.sort || command.resolve || command.check));
    CHECK((command.hosts + command.hostfile + command.nodelist).empty());
}

TEST_CASE("dtrun hosts takes its options in any order", "[launcher][cli][hosts]") {
    const HostsOptions command = hosts_of(
        "hosts --short --nodelist n[1-4] --format=yaml --slots 8 --sort --include n1 --check "
        "--resolve -p 2222 --connect-timeout 0.5");
    CHECK(command.nodelist == "n[1-4]");
    CHECK(command.format == HostFormat::yaml);
    CHECK(command.slots == 8);
    CHECK(command.include == "n1");
    CHECK((command.short_names && command.sort && command.resolve && command.check));
    CHECK(command.ssh_port == 2222);
    CHECK(command.connect_timeout == 500ms);
    CHECK(hosts_of("hosts -H a:1 -f json").format == HostFormat::json);
    CHECK(hosts_of("hosts --hostfile -").hostfile == "-");
    CHECK(hosts_of("hosts --slots 3 --slots auto").slots_auto);
    CHECK_FALSE(hosts_of("hosts --slots 3 --slots auto").slots);
}

TEST_CASE("every format has its name on the command line", "[launcher][cli][hosts]") {
    for (const NamedHostFormat& known : host_formats())
        CHECK(hosts_of(fmt::format("hosts --format {}", known.name)).format == known.format);
}

TEST_CASE("dtrun hosts says what would be right", "[launcher][cli][hosts]") {
    const auto [typed, expected] = GENERATE(table<std::string, std::string>({
        {"hosts -H a --nodelist b", "-H and --nodelist exclude each other; give one of them"},
        {"hosts --nodelist b --hostfile a", "--hostfile and --nodelist exclude each other"},
        {"hosts --hosts a --hostfile b", "--hosts and --hostfile exclude each other"},
        {"hosts --sor", "unknown option --sor; did you mean --sort?"},
        {"hosts --nothing", "unknown option --nothing; see dtrun hosts --help"},
        {"hosts --include a --exclude b", "--include and --exclude exclude each other"},
        {"hosts --format slurm", "--format: 'slurm' is not one of deepspeed, openmpi, mpich,"},
        {"hosts --slots 0", "--slots: neither auto nor a number: '0' is not a whole number from 1"},
        {"hosts n1 n2", "'n1' is no option; usage: dtrun hosts [options]"},
        {"hosts --sorted", "unknown option --sorted; did you mean --sort?"},
        {"hosts -p 0", "-p: '0' is not a whole number from 1 to 65535"},
    }));
    CHECK_THAT(error_of(typed), Catch::StartsWith(expected));
}

TEST_CASE("the help of dtrun hosts fits 80 columns", "[launcher][cli][hosts]") {
    CHECK(parse_hosts_command(std::vector<std::string>{"--help"})->asked == Ask::help);
    const std::string help = hosts_help();
    for (const std::string_view line : split(help, '\n')) {
        CAPTURE(line);
        CHECK(line.size() <= 80);
    }
    for (const NamedHostFormat& known : host_formats())
        CHECK_THAT(help, Contains(std::string(known.name)));
}
