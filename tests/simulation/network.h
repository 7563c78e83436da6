#pragma once

#include "base/clock.h"
#include "base/fd.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::simulation {

class World;
class Machine;
class Process;

/// Has an epoll say once that one of `events` is there at a descriptor; 0: nothing. \param what  as it is to call that
void watch_fd(const Fd& poll, int fd, std::uint32_t events, std::uint64_t what);

/// Connections between programs: socket pairs, between which this carries the bytes, later, or not at
/// all. What was handed over and has not arrived is in flight, also when its sender is gone.
class Network {
public:
    explicit Network(World& world) : world_(world) {}

    /// How long bytes take; a few take longer, up to `spike`.
    struct Delays {
        std::chrono::microseconds least{100}, most{900};
        double spikes = 0;  ///< of one
        std::chrono::microseconds spike{0};
    };
    Delays delays;

    /// A connection from a process to a machine's port. \return our end; -1 and errno: refused
    int connect(Process& from, Machine& to, std::uint16_t port);

    /// Nothing arrives on the way from one to the other until heal(), which delivers what was sent.
    void block(const Machine& from, const Machine& to);
    void heal();

    // Of some connection that is open:
    void reset_one();  ///< both ends find it broken
    void lose_one();   ///< nothing arrives any more, at one end or both, and nobody is told
    /// As soon as one end has sent something, it finds it broken; what it had sent arrives later than usual,
    /// and then the end of it.
    void break_one_end(std::chrono::microseconds later);

private:
    friend class World;
    friend class Machine;

    /// One direction of a connection.
    struct Way {
        struct Piece {
            Deadline when;
            std::string bytes;  ///< empty: the end
        };
        std::deque<Piece> flying;
        std::size_t bytes = 0;
        Deadline last{};     ///< when the last one arrives
        bool ended = false;  ///< the sender has sent its last
        bool arms = false;   ///< waits for the receiver to take more
        bool lost = false;   ///< nothing arrives any more
    };
    struct End {
        Machine* machine = nullptr;
        Process* process = nullptr;
        Fd fd;                      ///< our side of its socket pair
        std::uint32_t watched = 0;  ///< what its machine's epoll is to tell of it
        bool broken = false;        ///< for the program, though not for the other one
    };
    struct Wire {
        std::uint64_t number = 0;
        End ends[2];
        Way ways[2];      ///< from ends[i]
        int breaks = -1;  ///< this end, when it sends something
        std::chrono::microseconds later{0};
    };

    void accept(std::uint64_t wire, std::uint16_t port, Fd inner);
    void told(std::uint64_t wire, int end);
    void readable(std::uint64_t wire, int end);
    void writable(std::uint64_t wire, int end);
    void pick_up(Wire& wire, int end);
    void deliver(std::uint64_t wire, int end);
    void schedule(Wire& wire, int end, Deadline when);
    void watch(Wire& wire, int end);
    void reset(std::uint64_t wire);
    void reset_if_over(Wire& wire);
    void break_end(Wire& wire, int end);
    void process_gone(Process& process, bool told);
    void machine_off(Machine& machine);
    bool is_blocked(const Machine& from, const Machine& to) const;
    std::chrono::microseconds draw_delay();
    Wire* draw_wire();

    World& world_;
    std::map<std::uint64_t, std::unique_ptr<Wire>> wires_;
    std::uint64_t last_ = 0;
    std::vector<std::pair<const Machine*, const Machine*>> blocked_;
};

}  // namespace dtrun::simulation
