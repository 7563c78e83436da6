#include "base/signal_names.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

namespace dtrun {
namespace {

constexpr auto kSignalNames = std::to_array<std::pair<int, std::string_view>>({
    {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},       {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},     {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},     {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"},     {SIGTERM, "SIGTERM"}, {SIGSTKFLT, "SIGSTKFLT"},
    {SIGCHLD, "SIGCHLD"}, {SIGCONT, "SIGCONT"},     {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},
    {SIGTTIN, "SIGTTIN"}, {SIGTTOU, "SIGTTOU"},     {SIGURG, "SIGURG"},   {SIGXCPU, "SIGXCPU"},
    {SIGXFSZ, "SIGXFSZ"}, {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGWINCH, "SIGWINCH"},
    {SIGPOLL, "SIGPOLL"}, {SIGPWR, "SIGPWR"},       {SIGSYS, "SIGSYS"},
});

}  // namespace

std::string_view signal_name(int signal) {
    const auto* const found =
        std::ranges::find(kSignalNames, signal, &std::pair<int, std::string_view>::first);
    return found == kSignalNames.end() ? std::string_view() : found->second;
}

std::string signal_word(int signal) {
    const std::string_view name = signal_name(signal);
    return name.empty() ? std::to_string(signal) : std::string(name);
}

std::string signal_text(int signal) {
    const std::string_view name = signal_name(signal);
    return fmt::format("signal {} ({})", signal, name.empty() ? "real-time" : name);
}

}  // namespace dtrun
