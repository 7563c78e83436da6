#pragma once

#include "base/result.h"
#include "rendezvous/wire/doctor_messages.h"

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::doctor {

/// What is known of one host.
struct HostReport {
    std::string name{};
    bool here = false;                  ///< this machine
    std::optional<std::string> why{};   ///< why it could not be examined, or not to the end
    std::chrono::milliseconds login{};  ///< until its agent was there; 0: it was not
    bool copied = false;                ///< the agent, too
    std::optional<Examined> seen{};
    std::chrono::nanoseconds ahead{};        ///< of this machine's clock
    std::chrono::nanoseconds uncertainty{};  ///< of that, either way
    std::vector<HostFact> facts{};           ///< empty: none came in time
    std::optional<std::vector<VisitFailure>>
        visited{};  ///< targets that it could not reach; unset: not tried

    bool is_well() const { return seen && !why; }
    /// A fact's value; empty: not there, or not known.
    std::string_view fact(std::string_view wanted) const;
    /// Whether that is so. Not if its program has not told it, as a Python that hangs, which says nothing of its packages either.
    bool knows(std::string_view wanted) const;
};

/// How fast two hosts exchange bytes, each way: the best of several looks.
struct PairSpeed {
    std::size_t from = 0, to = 0;  ///< into the list of hosts
    double bytes_per_second = 0;
    std::string why{};  ///< no byte came through
    int looks = 1;

    /// One look may be chance: the hosts had something else to do.
    static constexpr int kLooksMin = 3;
    bool is_certain() const { return looks >= kLooksMin; }
};

/// Everything that an examination has found out.
struct DoctorReport {
    std::vector<HostReport> hosts{};
    std::string directory{};          ///< in which ranks would run
    bool directory_required = false;  ///< --wdir: else home will do where it is missing
    std::vector<ProbeTarget> home{};  ///< this machine's, if hosts are to reach it; `host` is empty
    std::vector<PairSpeed> pairs{};
    std::chrono::milliseconds took{};
};

/// The bits of an address that are its network's; empty: it is no address.
std::string network_of(const HostAddress& address);
/// Why a program that is there has not told a fact, "does not answer"; empty: it has, or is not there.
std::string_view trouble_of(std::string_view fact);
/// How many hosts have each address: those of several lead nowhere.
std::map<std::string, int> holders_of_addresses(const DoctorReport& report);

/// The ports of others that a host ought to reach: of those in networks that it has an address in, or of
/// hosts with which it has none in common, all. Addresses that several hosts have are left out: they lead
/// nowhere. Pure.
/// \param from  into the list of hosts
std::vector<ProbeTarget> targets_for(const DoctorReport& report, std::size_t from);

/// Whether two hosts have addresses in one network.
bool have_common_network(const HostReport& a, const HostReport& b);

/// The port by which one host reaches another, as far as it has tried. Nothing: by none.
std::optional<ProbeTarget> open_target(const DoctorReport& report, std::size_t from,
                                       std::size_t to);

/// Something that ought to be mended.
struct Finding {
    std::string
        topic;  ///< "log-in", "names", "clock", "directory", "limits", "shm", "ports", "mtu",
                ///< "versions", "gpus" or "speed"
    std::vector<std::string> hosts{};  ///< that it is about
    std::string text;                  ///< what, and what to do

    bool operator==(const Finding&) const = default;
};

/// What is wrong, hosts with the same trouble together. Pure.
std::vector<Finding> diagnose(const DoctorReport& report);

/// The pairs of hosts that exchange bytes side by side: round by round everybody has another partner. Of
/// many hosts only some rounds. Pure.
std::vector<std::vector<std::pair<std::size_t, std::size_t>>> rounds_of(
    const std::vector<std::size_t>& hosts, std::size_t rounds_max);

/// Pairs whose speed is so far below that of others that it ought to be measured once more. Pure.
std::vector<PairSpeed> suspicious(const DoctorReport& report);

/// For people, in lines that a terminal of 80 columns takes once messages are folded.
std::string to_text(const DoctorReport& report, const std::vector<Finding>& findings);
/// docs/DOCTOR.md has the fields.
std::string to_json(const DoctorReport& report, const std::vector<Finding>& findings);

}  // namespace dtrun::doctor
