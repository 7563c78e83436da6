#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Messages between `dtrun doctor` and the agents that examine hosts for it, on their standard streams.

namespace dtrun {

/// Where a host may be reached while it is examined.
struct ProbeTarget {
    std::string host;     ///< its name, for the answer
    std::string address;  ///< numeric
    std::uint16_t port = 0;

    bool operator==(const ProbeTarget&) const = default;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("host", m.host), f("address", m.address), f("port", m.port);
    }
};

struct Examine {
    std::string token;             ///< kBytes, of this examination alone
    std::vector<std::string> env;  ///< "NAME=value", what ranks would get from the caller
    std::string directory;         ///< in which ranks would run

    static constexpr std::size_t kTokenBytes = 32;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("token", m.token), f("env", m.env), f("directory", m.directory);
    }
};

/// An address of an interface that is up and no loopback.
struct HostAddress {
    std::string interface;
    std::string address;           ///< numeric
    std::uint32_t prefix = 0;      ///< bits of it that are the network's
    std::uint32_t mtu = 0;         ///< bytes; 0: not known
    std::uint32_t speed_mbps = 0;  ///< of the link, as its driver says; 0: not known

    bool operator==(const HostAddress&) const = default;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("interface", m.interface), f("address", m.address), f("prefix", m.prefix);
        f("mtu", m.mtu), f("speed_mbps", m.speed_mbps);
    }
};

struct Examined {
    std::int64_t time_ns = 0;  ///< since 1970, as the host's `date` says
    std::uint16_t port = 0;
    std::vector<HostAddress> addresses;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("time_ns", m.time_ns), f("port", m.port), f("addresses", m.addresses);
    }
};

/// Something that is compared between hosts, or judged by itself.
struct HostFact {
    std::string name;   ///< such as "python"
    std::string value;  ///< empty: it is not there

    bool operator==(const HostFact&) const = default;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("name", m.name), f("value", m.value);
    }
};

struct HostFacts {
    std::vector<HostFact> facts;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("facts", m.facts);
    }
};

struct Visit {
    std::vector<ProbeTarget> targets;
    std::uint32_t limit_ms = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("targets", m.targets), f("limit_ms", m.limit_ms);
    }
};

struct VisitFailure {
    ProbeTarget target;
    std::string why;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("target", m.target), f("why", m.why);
    }
};

struct Visited {
    std::vector<VisitFailure> failures;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("failures", m.failures);
    }
};

struct SpeedTest {
    ProbeTarget target;
    std::uint64_t bytes = 0;
    std::uint32_t limit_ms = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("target", m.target), f("bytes", m.bytes), f("limit_ms", m.limit_ms);
    }
};

struct Speed {
    bool reached = false;  ///< there was a connection
    std::uint64_t bytes = 0;
    std::uint64_t took_us = 0;
    std::string why;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("reached", m.reached), f("bytes", m.bytes), f("took_us", m.took_us), f("why", m.why);
    }
};

}  // namespace dtrun
