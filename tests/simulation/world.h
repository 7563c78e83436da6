#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/simulated.h"
#include "tests/simulation/disk.h"
#include "tests/simulation/fiber.h"
#include "tests/simulation/network.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

namespace dtrun::simulation {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class World;
class Machine;

/// A program that runs on a machine: an event loop, threads, descriptors. When it is killed it is left as
/// it stands, with all that it has: nothing of it is destroyed, as nothing is that SIGKILL ends.
class Process {
public:
    Process(World& world, Machine& machine);

    Machine& machine() const { return machine_; }
    /// Its loop, if it has one.
    asio::io_context& io() {
        has_loop_ = true;
        return *io_;
    }
    bool is_alive() const { return alive_; }

    /// Starts a thread. When all threads of a process that has no loop to run have ended, so has it.
    void start_thread(std::function<void()> run);
    /// Serves connections to this port of its machine.
    void listen(std::uint16_t port, std::function<void(Fd)> accept);
    /// A thread has done something that its loop is to notice.
    void wake_loop() { due_ = Deadline{}; }
    void exits_with_threads() { exits_with_threads_ = true; }

private:
    friend class World;
    friend class Network;
    friend class Machine;
    class SimulatedThread;

    /// A thread, and what it waits for.
    struct ThreadState {
        explicit ThreadState(Process& of, std::function<void()> run)
            : process(of), fiber(std::move(run)) {}
        Process& process;
        Fiber fiber;
        std::uint64_t wait = 0;  ///< counts its waits
        bool waits = false;
        bool woken = false;
        const void* what = nullptr;
        int fd = -1;
        short events = 0;  ///< of `fd`
    };

    World& world_;
    Machine& machine_;
    asio::io_context* io_;  // never destroyed
    asio::executor_work_guard<asio::io_context::executor_type> work_;
    std::deque<std::unique_ptr<ThreadState>> threads_;
    std::vector<ThreadState*> ready_;
    Fd poll_;  ///< epoll of what its machine looks at when it has run
    std::map<int, std::vector<ThreadState*>> polls_;  ///< threads that wait for a descriptor
    Deadline due_{};                                  ///< when it is to run next
    bool alive_ = true;
    bool has_loop_ = false;
    bool exits_with_threads_ = false;
};

/// A host: a disk, an address, a clock; at most one program runs on it at a time.
class Machine {
public:
    Machine(World& world, std::string name, std::string address);

    const std::string& name() const { return name_; }
    const std::string& address() const { return address_; }
    Process* process() { return process_; }
    Disk& disk() { return disk_; }
    bool is_on() const { return on_; }

    /// Starts a program, which is what restart() starts again.
    void boot(std::function<void(Process&)> program);
    void kill();       ///< what runs here, by SIGKILL
    void restart();    ///< starts it again, unless it runs or the machine is off
    void power_cut();  ///< until switch_on()
    void switch_on() { on_ = true; }
    void thaw();  ///< no fault of this machine goes on
    /// Nothing runs here until then; the network's cards go on.
    void freeze(Deadline until) { frozen_until_ = std::max(frozen_until_, until); }
    /// Until then everything that runs here waits up to so long for a processor.
    void starve(Deadline until, milliseconds longest) {
        starved_until_ = until;
        starved_longest_ = longest;
    }
    void step_clock(std::chrono::nanoseconds by) { wall_offset_ += by; }

private:
    friend class World;
    friend class Network;
    friend class Process;

    World& world_;
    std::string name_, address_;
    Disk disk_;
    std::function<void(Process&)> program_;
    Process* process_ = nullptr;
    std::map<std::uint16_t, std::function<void(Fd)>> listeners_;
    bool on_ = true;
    Deadline frozen_until_{};
    Deadline starved_until_{};
    milliseconds starved_longest_{};
    std::chrono::nanoseconds wall_offset_{};
};

/// Everything there is, in virtual time: what its machines run, and the network between them. All happens
/// in one thread, in an order that only the seed decides.
class World final : public SimulatedSystem {
public:
    explicit World(std::uint32_t seed);
    ~World() override;
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    Machine& add_machine(const std::string& name);
    Machine* machine_at(const std::string& address);
    std::deque<std::unique_ptr<Machine>>& machines() { return machines_; }
    Network& network() { return network_; }
    Process* current_process() { return current_; }

    Deadline now() const { return now_; }
    Deadline begun() const { return begun_; }
    /// A number from 0 up to, and not including, `below`.
    std::uint64_t draw(std::uint64_t below) { return random_() % below; }
    bool draw_chance(double of_one) { return double(random_() % 1'000'000) < of_one * 1e6; }
    microseconds draw_time(microseconds least, microseconds most) {
        return least + microseconds(draw(std::uint64_t((most - least).count()) + 1));
    }
    void at(Deadline when, std::function<void()> what);

    /// \throws std::runtime_error  nothing will ever happen again, or a program runs without end
    void run_until(Deadline until);
    /// Runs until done(), which is asked whenever something has happened. \return whether it came
    bool run_until(const std::function<bool()>& done, Deadline limit);
    /// A number for what has happened so far: the same seed gives the same.
    std::uint64_t trace() const { return trace_; }
    void note(std::uint64_t what) { trace_ = (trace_ ^ what) * 1'099'511'628'211u; }

    // SimulatedSystem, for what runs in a process.
    std::unique_ptr<Thread> start_thread(std::function<void()> run) override;
    bool wait_on(const void* what, Deadline until) override;
    void wake_one(const void* what) override;
    void wake_all(const void* what) override;
    int poll(int fd, short events, Deadline until) override;
    int connect(const sockaddr& address) override;
    void random_bytes(std::span<std::uint8_t> out) override;
    std::chrono::nanoseconds wall_time() override;
    std::uint64_t free_bytes(const std::string& directory) override;
    void rename_file(const std::string& from, const std::string& to) override;
    [[noreturn]] void exit_process(int status) override;

private:
    friend class Process;
    friend class Machine;
    friend class Network;
    using ThreadState = Process::ThreadState;
    struct Happening {
        Deadline when;
        std::uint64_t number;
        std::function<void()> what;
        bool operator>(const Happening& other) const {
            return std::tie(when, number) > std::tie(other.when, other.number);
        }
    };
    struct Exit {};

    bool step();
    void run_process(Process& process);
    bool run_loop(Process& process);
    bool run_threads(Process& process);
    bool look_at_descriptors(Process& process);
    ThreadState* current_thread();
    bool pause(ThreadState& thread, Deadline until);
    void wake(ThreadState& thread);
    void watch(Process& process, int fd);
    void abandon(Process& process);

    /// Closes, last of all, what programs have left open.
    struct Descriptors {
        Descriptors();
        ~Descriptors();
        std::vector<int> before;
    };

    Descriptors descriptors_;
    std::mt19937_64 random_;
    Deadline now_{std::chrono::hours(1'000)};
    Deadline begun_ = now_;
    std::priority_queue<Happening, std::vector<Happening>, std::greater<>> agenda_;
    std::uint64_t happenings_ = 0;
    std::uint64_t trace_ = 14'695'981'039'346'656'037u;
    std::unordered_map<const void*, std::deque<ThreadState*>> waiting_;
    std::deque<std::unique_ptr<Machine>> machines_;
    std::vector<Process*> processes_;  ///< that live
    Process* current_ = nullptr;
    ThreadState* thread_ = nullptr;  ///< that runs
    Network network_;
};

}  // namespace dtrun::simulation
