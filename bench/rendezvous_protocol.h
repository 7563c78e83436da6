#pragma once

#include <unistd.h>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace dtrun::bench {

/// What a client does; one thing at a time.
enum class Task : std::uint8_t {
    greet,    ///< from connected to usable
    set,      ///< its own key
    get,      ///< the key that it has just set
    barrier,  ///< from arrival to release
};

enum class Progress : std::uint8_t {
    more,  ///< an answer is still to come
    done,
    failed,  ///< that was not the right answer
};

/// One connection of a client, as its protocol sees it.
struct Connection {
    std::uint32_t client = 0;
    std::uint32_t rank = 0;  ///< dtrun: who the client says it is; others: `client`
    std::string key;
    std::string value;           ///< 64 bytes, different for each client
    std::string out;             ///< to be sent
    std::uint64_t barriers = 0;  ///< that this client has behind it
    std::uint64_t step = 0;      ///< for the protocol to count in
};

/// How clients talk to one kind of server. One object speaks for all clients of a run.
class Protocol {
public:
    virtual ~Protocol() = default;

    /// Puts the first bytes of a task into `out`. `done`: nothing will be answered.
    virtual Progress begin(Task task, Connection& c) = 0;

    /// Looks for the answer, and puts what is to be said next, if anything, into `out`.
    /// \param[in,out] bytes  received and not yet used; what is used is removed
    virtual Progress received(Task task, Connection& c, std::string_view& bytes) = 0;

protected:
    /// In the names of barriers, so that a server can be used by several runs.
    const std::string run_ = std::to_string(getpid());
};

/// \param name  dtrun or tcpstore; null for any other
/// \param clients  that take part in barriers
std::unique_ptr<Protocol> make_protocol(std::string_view name, std::uint32_t clients);

std::unique_ptr<Protocol> make_dtrun();
std::unique_ptr<Protocol> make_tcpstore(std::uint32_t clients);

}  // namespace dtrun::bench
