#include "launcher/plan/daemon_target.h"

#include "base/crypto.h"
#include "base/fd.h"
#include "base/strings.h"
#include "launcher/plan/host_shape.h"
#include "rendezvous/wire/job_key.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace dtrun::plan {
namespace {

std::string variable(EnvironmentView environment, std::string_view name) {
    return std::string(find_variable(environment, name).value_or(""));
}

std::string default_file(EnvironmentView environment) {
    const std::string config = variable(environment, "XDG_CONFIG_HOME");
    const std::string home = variable(environment, "HOME");
    return (config.empty() ? home + "/.config" : config) + "/dtrun/secret";
}

/// The file that has the secret; nothing of --secret-fd.
std::string secret_file(const DaemonArgs& words, EnvironmentView environment) {
    if (!words.secret_file.empty()) return words.secret_file;
    const std::string named = variable(environment, "DTRUN_SECRET_FILE");
    return named.empty() ? default_file(environment) : named;
}

Result<Secret> secret_from(std::string text, std::string_view source) {
    auto secret = secret_of_text(text);
    ::explicit_bzero(text.data(), text.size());
    if (!secret) return fail(secret.error(), "{}", source);
    return secret;
}

Result<void> make_secret_file(const std::string& file) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path(), ignored);
    const Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd) return fail(Errc::denied, "secret file {}: {}", file, strerror(errno));
    return write_all(fd.get(), hex(Secret::random().bytes()) + "\n");
}

Result<std::string> read_descriptor(int fd) {
    close_on_exec(fd);  // ranks of `dtrun join` must not have it
    std::string text;
    char buffer[4096];
    for (;;) {
        const ssize_t n = ::read(fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(Errc::invalid_input, "--secret-fd {}: {}", fd, strerror(errno));
        if (n == 0 || text.size() > kSecretTextBytesMax) return text;
        text.append(buffer, static_cast<std::size_t>(n));
    }
}

Result<std::vector<std::string>> look_up(const std::string& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0)
        return fail(Errc::unreachable, "{}: {}", host, gai_strerror(error));
    std::vector<std::string> addresses;
    for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
        char text[NI_MAXHOST];
        if (::getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof text, nullptr, 0,
                          NI_NUMERICHOST) == 0 &&
            std::ranges::find(addresses, text) == addresses.end())
            addresses.emplace_back(text);
    }
    ::freeaddrinfo(list);
    return addresses;
}

/// Whether it is a numeric address, perhaps with a zone: "fe80::1%eth0".
bool is_ipv6(std::string_view text) {
    in6_addr address{};
    const std::string numbers(text.substr(0, text.find('%')));
    return ::inet_pton(AF_INET6, numbers.c_str(), &address) == 1;
}

/// Adds where the daemon is, and what must be shown to it.
Result<DaemonTarget> complete(DaemonTarget target, const DaemonArgs& words, const Secret& secret,
                              EnvironmentView environment, NameOf name) {
    const auto address = parse_address(target.text, kDaemonPort);
    if (!address) return std::unexpected(address.error());
    target.host = address->first;
    auto numeric = look_up(target.host);
    if (!numeric && name == NameOf::daemon_there) return std::unexpected(numeric.error());
    if (numeric) target.addresses = std::move(*numeric);
    target.port = address->second;
    target.job = words.job.empty() ? variable(environment, "DTRUN_JOB_NAME") : words.job;
    if (target.job.size() > kJobNameBytesMax)
        return fail(Errc::invalid_input,
                    "a job's name of {} bytes, more than {} (--job, DTRUN_JOB_NAME)",
                    target.job.size(), kJobNameBytesMax);
    const JobId id = job_id_of(target.job);
    target.credentials = {id, job_secret_of(secret, id), words.encrypt};
    return target;
}

}  // namespace

Result<std::pair<std::string, std::uint16_t>> parse_address(std::string_view text,
                                                            std::uint16_t default_port) {
    std::string_view host = text, port;
    if (text.starts_with('[')) {
        const std::size_t end = text.find(']');
        if (end == std::string_view::npos)
            return fail(Errc::invalid_input, "'{}': the bracket is not closed", text);
        host = text.substr(1, end - 1);
        port = text.substr(end + 1);
        if (!port.empty() && !port.starts_with(':'))
            return fail(Errc::invalid_input, "'{}': write [ADDRESS]:PORT", text);
    } else if (const std::size_t colon = text.find(':');
               colon != std::string_view::npos && colon == text.rfind(':')) {
        host = text.substr(0, colon);
        port = text.substr(colon);
    }
    if (host.empty()) return fail(Errc::invalid_input, "'{}': write HOST:PORT", text);
    if (host.find(':') != std::string_view::npos && !is_ipv6(host))
        return fail(Errc::invalid_input, "'{}': write HOST:PORT or [ADDRESS]:PORT", text);
    if (port.empty()) return std::pair(std::string(host), default_port);
    const auto number = to_int(port.substr(1), 0, 65'535);
    if (!number)
        return fail(Errc::invalid_input, "'{}': '{}' is not a port from 0 to 65535", text,
                    port.substr(1));
    return std::pair(std::string(host), static_cast<std::uint16_t>(*number));
}

Result<Secret> read_secret(const DaemonArgs& words, EnvironmentView environment, bool make) {
    if (words.secret_fd) {
        auto text = read_descriptor(*words.secret_fd);
        if (!text) return std::unexpected(text.error());
        return secret_from(std::move(*text), fmt::format("--secret-fd {}", *words.secret_fd));
    }
    const std::string file = secret_file(words, environment);
    const bool is_default =
        words.secret_file.empty() && variable(environment, "DTRUN_SECRET_FILE").empty();
    if (is_default && make && ::access(file.c_str(), F_OK) != 0)
        if (const auto made = make_secret_file(file); !made) return std::unexpected(made.error());
    auto text = read_private_file(file, kSecretTextBytesMax,
                                  variable(environment, "CREDENTIALS_DIRECTORY"));
    if (!text && is_default && text.error().code == Errc::not_found)
        return fail(
            Errc::not_found,
            "no secret: {} is made by `dtrun serve`; copy it here, or give --secret-file; jobs "
            "that no daemon leads are seen by `dtrun jobs` without a host, and by `dtrun top JOB`",
            file);
    if (!text) return fail(text.error().code, "secret file {}", text.error().message);
    return secret_from(std::move(*text), "secret file " + file);
}

Result<DaemonTarget> find_daemon(const DaemonArgs& words, EnvironmentView environment,
                                 NameOf name) {
    DaemonTarget target;
    target.text = words.address.empty() ? variable(environment, "DTRUN_SERVE") : words.address;
    if (target.text.empty()) target.text = "localhost";
    target.name = "dtrun serve at " + target.text;
    const auto secret = read_secret(words, environment, false);
    if (!secret) return std::unexpected(secret.error());
    return complete(std::move(target), words, *secret, environment, name);
}

Result<DaemonTarget> find_rendezvous(const JoinOptions& join, EnvironmentView environment) {
    DaemonTarget target;
    target.text = join.daemon.address;
    const auto address = parse_address(target.text, kDaemonPort);
    if (!address) return std::unexpected(address.error());
    const std::string& host = address->first;
    target.name = target.text + ", which serves the job";
    const bool serves = join.serves ? *join.serves : means_this_machine(host);
    const auto secret = read_secret(join.daemon, environment, serves);
    if (!secret && secret.error().code == Errc::not_found &&
        variable(environment, "DTRUN_SECRET_FILE").empty())
        return fail(
            Errc::not_found,
            "no secret that all nodes share: {} is missing; start this command on {} first, which "
            "makes it, and copy it from there unless the home directory is shared; or name a file "
            "that all nodes have in DTRUN_SECRET_FILE",
            default_file(environment), host);
    if (!secret) return std::unexpected(secret.error());
    if (serves) target.serve = *secret;
    target.secret_source = secret_file(join.daemon, environment);
    return complete(std::move(target), join.daemon, *secret, environment, NameOf::daemon_to_come);
}

}  // namespace dtrun::plan
