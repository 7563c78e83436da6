// What the head does when a job is to end in which nothing seems to happen: it tells where the ranks are.

#include "base/log.h"
#include "base/text_layout.h"
#include "launcher/head/head.h"

#include <fmt/format.h>
#include <chrono>
#include <csignal>
#include <utility>

namespace dtrun::head {
namespace {

/// A job that has printed nothing for so long may hang.
constexpr std::chrono::seconds kSilence{30};
/// For hosts to answer; who waits has pressed Ctrl-C.
constexpr std::chrono::seconds kLookLimit{2};

}  // namespace

/// When the ranks of a daemon's job have started is not known here, nor whether it is them who are waited for.
bool Head::may_hang() const {
    return job_.running() && !job_.ending() && !spec_.daemon && inspector_.silence() >= kSilence;
}

void Head::interrupted() {
    if (std::exchange(
            looks_,
            false)) {  // again: who does not want to wait gets what two of them are otherwise
        end_by(SIGINT);
        return end_by(SIGINT);
    }
    const bool is_quiet = spec_.options.verbosity < log::Level::normal;
    if (asked_to_end_ || is_quiet || !may_hang()) return end_by(SIGINT);
    const double silence = std::chrono::duration<double>(inspector_.silence()).count();
    output_.message(fmt::format(
        "dtrun: nothing was printed for {}: asking the ranks where they are, at most {} "
        "s; Ctrl-C again kills them at once\n",
        duration_text(silence), kLookLimit.count()));
    looks_ = true;
    tasks_.spawn(look_and_end());
}

asio::awaitable<void> Head::look_and_end() {
    const std::vector<std::string> lines = co_await inspector_.stacks_for_report(kLookLimit);
    // Something else may have ended the job meanwhile.
    if (!std::exchange(looks_, false) || job_.ending()) co_return;
    std::string text;
    for (const std::string& line : lines) text += "  " + line + "\n";
    if (!text.empty()) output_.message(text);
    end_by(SIGINT);
}

}  // namespace dtrun::head
