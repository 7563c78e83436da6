#include "launcher/output/progress.h"

#include "hostfiles/nodelist.h"

#include <fmt/format.h>
#include <map>

namespace dtrun::output {
namespace {

constexpr std::chrono::milliseconds kTerminalInterval{100};
constexpr std::chrono::milliseconds kPlainFirst{2'000}, kPlainInterval{60'000};

}  // namespace

Progress::Progress(asio::any_io_executor executor, Output& output, PerHost<std::string> hosts)
    : timer_(executor),
      output_(output),
      names_(std::move(hosts)),
      phases_(names_.size(), "waiting for its turn") {}

void Progress::start(std::string limit) {
    limit_ = std::move(limit);
    started_ = Clock::now();
    finished_ = false;
    tick();
}

void Progress::host_added(std::string name) {
    names_.push_back(std::move(name));
    phases_.push_back("waiting for its turn");
}

void Progress::host_phase(HostId host, const char* what) {
    if (phases_[host] != nullptr) phases_[host] = what;
}

void Progress::host_ready(HostId host) {
    if (phases_[host] == nullptr) return;
    phases_[host] = nullptr;
    ++ready_;
}

void Progress::host_failed(HostId host) {
    if (phases_[host] == nullptr) return;
    phases_[host] = nullptr;
    ++failed_;
}

void Progress::tick() {
    const bool terminal = output_.has_status();
    const auto plain = is_told_ ? kPlainInterval : kPlainFirst;
    timer_.expires_after(terminal ? kTerminalInterval : plain);
    timer_.async_wait([this, terminal](boost::system::error_code error) {
        if (error || finished_) return;
        if (terminal)
            output_.set_status(line());
        else
            output_.message(line() + "\n");
        is_told_ = !terminal;
        tick();
    });
}

std::string Progress::line() const {
    std::map<std::string, std::vector<std::string>> waiting;  // phase -> names
    for (const HostId host : names_.hosts()) {
        if (phases_[host] != nullptr) waiting[phases_[host]].push_back(names_[host]);
    }
    const auto seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    std::string text =
        fmt::format("dtrun: {}/{} hosts ready after {:.1f} s", ready_, names_.size(), seconds);
    if (failed_ > 0) text += fmt::format(", {} failed", failed_);
    // What they do comes first: a terminal may have no room for all names.
    for (const auto& [phase, names] : waiting)
        text += fmt::format("; {}: {}", phase, name_hosts(names));
    return text + limit_;
}

void Progress::finish() {
    if (std::exchange(finished_, true)) return;
    timer_.cancel();
    output_.set_status({});
}

}  // namespace dtrun::output
