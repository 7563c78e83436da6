#pragma once

#include "base/result.h"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dtrun::transport {

/// A public key as known_hosts writes it.
struct HostKey {
    std::string type;    ///< e.g. "ssh-ed25519"
    std::string base64;  ///< all of it, the type included

    bool operator==(const HostKey& other) const { return base64 == other.base64; }
};

/// What known_hosts says of one host.
struct KnownHost {
    std::vector<HostKey> keys;     ///< it has one of these
    std::vector<HostKey> revoked;  ///< @revoked: a host that shows one of these is refused
    bool has_authority = false;  ///< @cert-authority: it may show a key that such a one has signed
};

enum class KeyVerdict : std::uint8_t { known, revoked, changed, needs_authority, unknown };
KeyVerdict judge(const KnownHost& host, const HostKey& key);

/// The name under which known_hosts has a host: "host", or "[host]:port" if that is not 22.
std::string known_hosts_name(std::string_view host, unsigned int port);

/// Lines of known_hosts files (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT), parsed once for all hosts of a
/// job: a file may have tens of thousands, and the hashed ones (HashKnownHosts) must be tried one by one.
class KnownHosts {
public:
    /// Adds the lines of a file. Malformed ones are skipped, as ssh does.
    void add(std::string_view text);
    /// \param name  of known_hosts_name()
    KnownHost find(std::string_view name) const;
    /// Whether find() takes a while: about a millisecond for 1,000 hashed lines.
    bool is_slow() const { return !hashed_.empty(); }

private:
    enum class Marker : std::uint8_t { none, revoked, authority };
    struct Line {
        Marker marker{};
        HostKey key;
    };
    using LineId = std::uint32_t;
    /// HMAC-SHA1 of a name, with a key of its own.
    struct Hashed {
        std::string salt;
        std::string digest;
        LineId line = 0;
    };
    struct Patterns {
        std::string text;  ///< "*.cluster,!gw.cluster", in lower case
        LineId line = 0;
    };

    void add_line(std::string_view line);
    void add_names(std::string_view names, LineId line);

    std::vector<Line> lines_;
    std::unordered_multimap<std::string, LineId> plain_;
    std::vector<Patterns> patterns_;
    std::vector<Hashed> hashed_;
};

/// The known_hosts files of a job's hosts, each read once.
///
/// Thread: the io_context's.
class KnownHostsFiles {
public:
    /// \param files  those that cannot be read are as if empty, as for ssh
    /// \return as they were when they were first asked for
    std::shared_ptr<const KnownHosts> read(const std::vector<std::string>& files);

    /// Adds a host's key to a file, which is made if there is none. It counts as added also where it cannot
    /// be written, as for ssh. Errc: denied, for each file once
    Result<void> add(const std::string& file, const std::string& name, const HostKey& key);
    /// Whether add() has added that key to any file.
    bool has_added(const std::string& name, const HostKey& key) const;

private:
    static Result<void> append(const std::string& file, std::string_view line);

    std::map<std::vector<std::string>, std::shared_ptr<const KnownHosts>> read_;
    std::unordered_multimap<std::string, HostKey> added_;
    std::set<std::string> unwritable_;
};

}  // namespace dtrun::transport
