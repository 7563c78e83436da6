#pragma once

#include <sys/types.h>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

// Without the headers of rendezvous/, so that it goes together with <dtrun/worker.h>.

namespace dtrun::testing {

/// The ranks of a Slurm step, as far as their variables go: processes of this machine, all of them
/// forked from the test, which must have no other threads then. Who is left is killed at the end.
class FakeStep {
public:
    using Variables = std::map<std::string, std::string>;

    /// \param more  instead of or besides the variables that Slurm sets
    FakeStep(std::uint32_t ranks, std::string id, Variables more);
    ~FakeStep();
    FakeStep(const FakeStep&) = delete;
    FakeStep& operator=(const FakeStep&) = delete;

    /// Runs `body` as that rank; the process ends with it. What `body` throws is said by the rank as
    /// "code: text".
    /// \param more  for this rank only
    void start(std::uint32_t rank, const std::function<void()>& body, const Variables& more = {});
    /// All ranks that have not been started.
    void start_all(const std::function<void(std::uint32_t rank)>& body);

    /// In a rank's process: a line for the test.
    static void say(const std::string& line);
    /// In a rank's process: waits for go().
    static void wait_for_go();

    /// The next line that a rank has said; "" when it has ended, or says nothing for 20 seconds.
    std::string line(std::uint32_t rank);
    void go(std::uint32_t rank);
    /// Whether it has ended, and by itself, with status 0.
    bool ended_well(std::uint32_t rank);
    void kill(std::uint32_t rank);
    void kill(std::uint32_t rank, int signal);

private:
    struct Rank;
    const Variables variables_;
    std::vector<std::unique_ptr<Rank>> ranks_;
};

/// Where rank 0 of the step with these variables may listen, in order.
std::vector<std::uint16_t> ports_of_step(const std::string& id);

/// munged with a key and a socket of its own, while it lives.
class Munged {
public:
    Munged();
    ~Munged();
    Munged(const Munged&) = delete;
    Munged& operator=(const Munged&) = delete;

    /// Of DTRUN_MUNGE_SOCKET; empty if munged is not installed here.
    const std::string& socket() const { return socket_; }

private:
    std::unique_ptr<class TempDirOfMunged> dir_;
    std::string socket_;
};

/// A stranger's socket, listening on loopback.
class Stranger {
public:
    /// \param says  to whoever connects; nothing is read
    Stranger(std::uint16_t port, std::string says);
    ~Stranger();
    Stranger(const Stranger&) = delete;
    Stranger& operator=(const Stranger&) = delete;

private:
    pid_t pid_ = -1;
};

/// A connection to that port of this machine; -1 if nobody listens.
int connect_to(std::uint16_t port);

}  // namespace dtrun::testing
