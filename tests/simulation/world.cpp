#include "tests/simulation/world.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <stdexcept>

namespace dtrun::simulation {
namespace {

/// More turns than any program needs at one moment.
constexpr int kTurnsMax = 200'000;
constexpr std::chrono::nanoseconds kWallTime = std::chrono::hours(500'000);  // in 2027
/// Descriptors that threads wait for; connections' numbers are below it.
constexpr std::uint64_t kThreadFd = std::uint64_t{1} << 62;

bool is_ready(int fd, short events) {
    pollfd entry{fd, events, 0};
    return fd >= 0 && ::poll(&entry, 1, 0) > 0;
}

std::vector<int> open_descriptors() {
    std::vector<int> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
        found.push_back(std::stoi(entry.path().filename()));
    return found;
}

}  // namespace

World::Descriptors::Descriptors() : before(open_descriptors()) {}

World::Descriptors::~Descriptors() {
    for (const int fd : open_descriptors())
        if (std::ranges::find(before, fd) == before.end()) ::close(fd);
}

// Process

/// What a program has of one of its threads.
class Process::SimulatedThread final : public SimulatedSystem::Thread {
public:
    explicit SimulatedThread(ThreadState& state) : state_(state) {}
    void join() override {
        while (!state_.fiber.ended()) {
            if (Fiber::running() != nullptr) {
                SimulatedSystem::current->wait_on(&state_, Deadline::max());
            } else {
                // The loop waits for the thread, and time does not go on.
                state_.woken = true;
                state_.fiber.resume();
            }
        }
    }

private:
    ThreadState& state_;
};

Process::Process(World& world, Machine& machine)
    : world_(world),
      machine_(machine),
      io_(new asio::io_context(1)),
      work_(asio::make_work_guard(*io_)),
      poll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!poll_) throw std::runtime_error("no more descriptors");
}

void Process::start_thread(std::function<void()> run) {
    threads_.push_back(std::make_unique<ThreadState>(*this, std::move(run)));
    ready_.push_back(threads_.back().get());
    due_ = std::min(due_, world_.now());
}

void Process::listen(std::uint16_t port, std::function<void(Fd)> accept) {
    machine_.listeners_[port] = std::move(accept);
}

// Machine

Machine::Machine(World& world, std::string name, std::string address)
    : world_(world), name_(std::move(name)), address_(std::move(address)), disk_(world) {}

void Machine::boot(std::function<void(Process&)> program) {
    program_ = std::move(program);
    restart();
}

void Machine::restart() {
    if (!on_ || process_ != nullptr || !program_) return;
    process_ = new Process(world_, *this);  // never destroyed
    world_.processes_.push_back(process_);
    process_->due_ = world_.now();
    Process* const before = std::exchange(world_.current_, process_);
    try {
        program_(*process_);
    } catch (const World::Exit&) {
        kill();
    }
    world_.current_ = before;
}

void Machine::kill() {
    if (process_ == nullptr) return;
    world_.abandon(*process_);
    world_.network_.process_gone(*process_, true);
    disk_.crash(Disk::End::killed);
    process_ = nullptr;
    listeners_.clear();
}

void Machine::power_cut() {
    on_ = false;
    if (process_ != nullptr) {
        world_.abandon(*process_);
        world_.network_.process_gone(*process_, false);
    }
    disk_.crash(Disk::End::power_cut);
    process_ = nullptr;
    listeners_.clear();
}

void Machine::thaw() {
    switch_on();
    frozen_until_ = starved_until_ = Deadline{};
    disk_.heal();
}

// World

World::World(std::uint32_t seed) : random_(seed), network_(*this) {
    raise_descriptor_limit(100'000);  // killed programs keep theirs
    if (SimulatedSystem::current != nullptr) throw std::logic_error("there is a world already");
    SimulatedSystem::current = this;
    Clock::simulated = &now_;
}

World::~World() {
    SimulatedSystem::current = nullptr;
    Clock::simulated = nullptr;
}

Machine& World::add_machine(const std::string& name) {
    const std::string address =
        fmt::format("10.0.{}.{}", machines_.size() / 250, machines_.size() % 250 + 1);
    machines_.push_back(std::make_unique<Machine>(*this, name, address));
    return *machines_.back();
}

Machine* World::machine_at(const std::string& address) {
    const auto found =
        std::ranges::find(machines_, address, [](const auto& m) { return m->address(); });
    return found == machines_.end() ? nullptr : found->get();
}

void World::at(Deadline when, std::function<void()> what) {
    agenda_.push({std::max(when, now_), ++happenings_, std::move(what)});
}

void World::run_until(Deadline until) {
    (void)run_until([] { return false; }, until);
}

bool World::run_until(const std::function<bool()>& done, Deadline limit) {
    const auto over = std::make_shared<bool>(false);  // it may be long done by then
    at(limit, [over] { *over = true; });
    while (!done()) {
        if (*over) return false;
        if (!step()) throw std::runtime_error("nothing will ever happen again");
    }
    return true;
}

/// Lets the next thing happen. \return whether there was one
bool World::step() {
    Process* next = nullptr;
    for (Process* const process : processes_) {
        const Deadline due = std::max(process->due_, process->machine_.frozen_until_);
        if (next == nullptr || due < std::max(next->due_, next->machine_.frozen_until_))
            next = process;
    }
    const Deadline due =
        next != nullptr ? std::max(next->due_, next->machine_.frozen_until_) : Deadline::max();
    if (!agenda_.empty() && agenda_.top().when <= due) {
        const Happening happening = agenda_.top();
        agenda_.pop();
        now_ = std::max(now_, happening.when);
        happening.what();
        return true;
    }
    if (due == Deadline::max()) return false;
    now_ = std::max(now_, due);
    note(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
    note(static_cast<std::uint64_t>(next->machine_.name_.back()));
    run_process(*next);
    return true;
}

/// Lets a process run until it waits.
void World::run_process(Process& process) {
    current_ = &process;
    process.due_ = Deadline::max();
    TimerWait::next = Clock::duration::max();
    try {
        for (int turns = 0;; ++turns) {
            if (turns > kTurnsMax)
                throw std::runtime_error(process.machine_.name_ + " runs without end");
            TimerWait::next = Clock::duration::max();
            bool ran = process.has_loop_ && run_loop(process);
            const auto timer = TimerWait::next;
            ran |= process.alive_ && run_threads(process);
            ran |= process.alive_ && look_at_descriptors(process);
            if (!process.alive_) break;
            if (ran) continue;
            if (timer != Clock::duration::max())
                process.due_ = now_ + std::max(timer, Clock::duration(1'000));
            break;
        }
    } catch (const Exit&) {
        process.machine_.kill();
    }
    current_ = nullptr;
    if (!process.alive_) return;
    const bool all_ended = std::ranges::all_of(
        process.threads_, [](const auto& thread) { return thread->fiber.ended(); });
    if (process.exits_with_threads_ && all_ended) return process.machine_.kill();
    Machine& machine = process.machine_;
    if (now_ < machine.starved_until_)
        machine.frozen_until_ = now_ + draw_time(microseconds(0), machine.starved_longest_);
}

bool World::run_loop(Process& process) {
    if (process.io_->stopped()) process.io_->restart();
    return process.io_->poll() > 0;
}

bool World::run_threads(Process& process) {
    bool ran = false;
    while (!process.ready_.empty() && process.alive_) {
        const std::size_t which = draw(process.ready_.size());
        thread_ = process.ready_[which];
        process.ready_.erase(process.ready_.begin() + static_cast<std::ptrdiff_t>(which));
        thread_->fiber.resume();
        if (process.alive_ && thread_->fiber.ended()) wake_all(thread_);
        thread_ = nullptr;
        ran = true;
    }
    return ran;
}

/// What threads wait for, and what the network is to carry away.
bool World::look_at_descriptors(Process& process) {
    std::array<epoll_event, 32> events;
    const int count = ::epoll_wait(process.poll_.get(), events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i) {
        const auto& event = events[static_cast<std::size_t>(i)];
        if (event.data.u64 >= kThreadFd) {
            const int fd = static_cast<int>(event.data.u64 - kThreadFd);
            for (ThreadState* const thread : std::exchange(process.polls_[fd], {}))
                if (is_ready(fd, thread->events))
                    wake(*thread);
                else
                    process.polls_[fd].push_back(thread);
            watch(process, fd);
            continue;
        }
        const std::uint64_t wire = event.data.u64 / 2;
        const int end = static_cast<int>(event.data.u64 % 2);
        network_.told(wire, end);
        if ((event.events & EPOLLOUT) != 0) network_.writable(wire, end);
        if ((event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) network_.readable(wire, end);
    }
    return count > 0;
}

/// Nothing of a process runs any more.
void World::abandon(Process& process) {
    process.alive_ = false;
    std::erase(processes_, &process);
    for (auto& [what, threads] : waiting_)
        std::erase_if(threads,
                      [&](const ThreadState* thread) { return &thread->process == &process; });
    process.ready_.clear();
}

World::ThreadState* World::current_thread() {
    if (Fiber::running() == nullptr)
        throw std::logic_error("the loop of a program waits as a thread does");
    return thread_;
}

/// \return whether it was woken
bool World::pause(ThreadState& thread, Deadline until) {
    thread.waits = true;
    thread.woken = false;
    const std::uint64_t wait = ++thread.wait;
    if (until != Deadline::max())
        at(until, [this, &thread, wait] {
            if (!thread.waits || thread.wait != wait || !thread.process.alive_) return;
            if (thread.what != nullptr) std::erase(waiting_[thread.what], &thread);
            if (thread.fd >= 0) {
                std::erase(thread.process.polls_[thread.fd], &thread);
                watch(thread.process, thread.fd);
            }
            thread.waits = false;
            thread.process.ready_.push_back(&thread);
            thread.process.due_ = now_;
        });
    Fiber::pause();
    thread.waits = false;
    thread.what = nullptr;
    thread.fd = -1;
    return thread.woken;
}

void World::wake(ThreadState& thread) {
    thread.waits = false;
    thread.woken = true;
    thread.process.ready_.push_back(&thread);
    thread.process.due_ = std::min(thread.process.due_, now_);
}

std::unique_ptr<SimulatedSystem::Thread> World::start_thread(std::function<void()> run) {
    current_->start_thread(std::move(run));
    return std::make_unique<Process::SimulatedThread>(*current_->threads_.back());
}

bool World::wait_on(const void* what, Deadline until) {
    ThreadState& thread = *current_thread();
    thread.what = what;
    waiting_[what].push_back(&thread);
    return pause(thread, until);
}

void World::wake_one(const void* what) {
    const auto found = waiting_.find(what);
    if (found == waiting_.end()) return;
    if (!found->second.empty()) {
        ThreadState& first = *found->second.front();
        found->second.pop_front();
        wake(first);
    }
    if (found->second.empty()) waiting_.erase(found);
}

void World::wake_all(const void* what) {
    while (waiting_.contains(what)) wake_one(what);
}

int World::poll(int fd, short events, Deadline until) {
    if (is_ready(fd, events)) return 1;
    if (until <= now_) return 0;
    ThreadState& thread = *current_thread();
    if (fd >= 0) {
        thread.fd = fd;
        thread.events = events;
        thread.process.polls_[fd].push_back(&thread);
        watch(thread.process, fd);
    }
    pause(thread, until);
    return is_ready(fd, events) ? 1 : 0;
}

/// Has the system say when what threads wait for at a descriptor is there.
void World::watch(Process& process, int fd) {
    const auto found = process.polls_.find(fd);
    std::uint32_t events = 0;
    for (const ThreadState* const thread : found->second)
        events |= static_cast<std::uint16_t>(thread->events);  // EPOLLIN is POLLIN, and so on
    watch_fd(process.poll_, fd, events, kThreadFd + static_cast<std::uint64_t>(fd));
    if (found->second.empty()) process.polls_.erase(found);
}

int World::connect(const sockaddr& address) {
    const auto& to = reinterpret_cast<const sockaddr_in&>(address);
    char text[INET_ADDRSTRLEN] = "";
    ::inet_ntop(AF_INET, &to.sin_addr, text, sizeof text);
    Machine* const machine = machine_at(text);
    if (machine == nullptr) {
        errno = ENETUNREACH;
        return -1;
    }
    return network_.connect(*current_, *machine, ntohs(to.sin_port));
}

void World::random_bytes(std::span<std::uint8_t> out) {
    for (std::uint8_t& byte : out) byte = static_cast<std::uint8_t>(random_());
}

std::chrono::nanoseconds World::wall_time() {
    const auto offset =
        current_ != nullptr ? current_->machine_.wall_offset_ : std::chrono::nanoseconds();
    return kWallTime + now_.time_since_epoch() + offset;
}

std::uint64_t World::free_bytes(const std::string&) {
    return current_->machine_.disk_.free_bytes();
}

void World::rename_file(const std::string& from, const std::string& to) {
    current_->machine_.disk_.rename(from, to);
}

void World::exit_process(int) {
    if (Fiber::running() == nullptr) throw Exit{};
    Machine& machine = current_->machine_;
    machine.kill();
    Fiber::pause();  // for ever
    std::abort();
}

}  // namespace dtrun::simulation
