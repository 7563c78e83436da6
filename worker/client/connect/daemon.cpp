#include "worker/client/connect/daemon.h"

#include "worker/client/connect/handshake.h"
#include "worker/client/connect/retry.h"

#include <netdb.h>
#include <sys/socket.h>
#include <chrono>

namespace dtrun::embedded {
namespace {

constexpr std::chrono::milliseconds kPauseMin{50};
constexpr std::chrono::milliseconds kPauseMax{500};

}  // namespace

Outcome<ClientCredentials> read_credentials(const DaemonAddress& address) {
    const auto secret = read_secret(address.secret_file, address.secret_fd);
    if (!secret) return std::unexpected(secret.error());
    return derive_credentials(*secret, "dtrun job secret",
                              job_id_of("dtrun job " + address.job_name));
}

Outcome<FrameSocket> dial_daemon(const DaemonAddress& address, const ClientCredentials& credentials,
                                 bool known, const WaitContext& context) {
    Retry retry(kPauseMin, kPauseMax);
    const Moment begun = now();
    for (;;) {
        Outcome<FrameSocket> socket = FrameSocket::connect_tcp(address.host, address.port, context);
        Outcome<void> proved;
        if (socket) proved = authenticate(*socket, credentials, context);
        if (socket && proved) return socket;

        const Failure problem = socket ? proved.error() : socket.error();
        const std::string who = fmt::format("DTRUN_SERVE='{}:{}'", address.host, address.port);
        const bool is_final = problem.code == DTRUN_REFUSED && !known;
        if (is_final || problem.code == DTRUN_CANCELLED)
            return failure(problem.code, "{}: {}", who, problem.text);
        if (const auto paused = retry.wait(context); !paused)
            return failure(paused.error().code, "{}: {} for {:.1f} s (DTRUN_SERVER_TIMEOUT)", who,
                           problem.text, std::chrono::duration<double>(now() - begun).count());
    }
}

std::string local_address(const FrameSocket& socket) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    char text[NI_MAXHOST] = "";
    if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) == 0)
        ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text, sizeof text, nullptr,
                      0, NI_NUMERICHOST);
    return text;
}

}  // namespace dtrun::embedded
