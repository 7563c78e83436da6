#include "launcher/transport/agent_starter.h"

#include "base/strings.h"
#include "launcher/transport/agent_script.h"
#include "rendezvous/wire/message.h"

#include <fmt/ranges.h>
#include <array>
#include <optional>

namespace dtrun::transport {
namespace {

constexpr std::size_t kPieceBytes = 64u << 10;   // each with the user's whole patience
constexpr std::chrono::seconds kEndingLimit{1};  // for a program to end after its output
constexpr std::size_t kSaidBytesMax = 200;       // of a line that a failing program has written

// Runs on the host. It first looks for the agent of this build; else it says what machine this is, how it unpacks,
// whether it can fetch, or could not reach whom it was to fetch from, and which home it has. It is told which agent to expect (build id, size, SHA-256, size without
// the package, packing), by which word to hand it on, in how many seconds without a byte to give up, and either how long
// a program is that comes behind that line and does the rest (carrier.py), or, if it is to fetch it from a host that hands
// it on, at which port and address. It stores the agent, and says so before it unpacks the
// package. If it is told the build id alone, another host of this home has stored it; if it cannot be seen here, or be fetched, the host asks again, without its home. Where Python has failed
// itself, or has not begun within a second, as from a slow file server, it does without: who has no Python fares no worse.
// Nothing else is sent before the host has said that it reads, so that `head` cannot read too far. What has come by ssh,
// which checks that itself, is not summed up again.
constexpr std::string_view kStartScript = R"sh(
    dtrun_has "$dtrun_build" && dtrun_run $dtrun_option; dtrun_names;
    dtrun_failed() {
        rm -f "$dtrun_new" "$dtrun_cache/.first-$dtrun_job";
        echo "dtrun-agent-failed $*"; exit 1;
    };
    dtrun_knows() { for dtrun_x; do command -v "$dtrun_x" || return; done >/dev/null; };
    dtrun_can=$dtrun_packing;
    dtrun_knows bash timeout sha256sum && dtrun_can=$dtrun_can,tcp;
    dtrun_knows timeout python3 && dtrun_can=$dtrun_can,python;
    dtrun_ask() {
        echo "dtrun-agent-wanted $dtrun_machine $dtrun_can$1";
        read -r dtrun_id dtrun_bytes dtrun_digest dtrun_whole dtrun_packed
        dtrun_word dtrun_limit dtrun_code dtrun_port dtrun_from || exit 1;
        if [ "${dtrun_code:-0}" = 0 ]; then dtrun_code=; else dtrun_code=$(head -c "$dtrun_code"); fi;
        { [ -z "$dtrun_bytes" ] && dtrun_stored "$dtrun_id"; } || dtrun_sees "$dtrun_id" && {
            [ -L "$dtrun_cache/.first-$dtrun_job" ] && rm -f "$dtrun_cache/.first-$dtrun_job";
            dtrun_run $dtrun_option;
        };
    };
    dtrun_fetched() {
        ( set -C; umask 077; timeout "$dtrun_limit" bash -c
        "exec 3<>/dev/tcp/\$0/\$1 && echo \$2 >&3 && head -c \$3 <&3"
        "$dtrun_from" "$dtrun_port" "$dtrun_word" "$dtrun_bytes" >"$dtrun_new" ) 2>/dev/null &&
        [ "$(sha256sum <"$dtrun_new")" = "$dtrun_digest  -" ];
    };
    dtrun_carried() {
        {
            dtrun_e=$(timeout 1 python3 -I -S -c "$dtrun_code" "$dtrun_new" "$dtrun_bytes"
            "$dtrun_digest" "$dtrun_word" "$dtrun_limit" $$ 2>&1 >&3 3>&-);
        } 3>&1;
        case $dtrun_e in
            *"carrier: all") dtrun_word=; return;;
            *"carrier: again: "*) ;;
            *"carrier: unreached: "*) dtrun_can=${dtrun_can%,python},unreached,python;;
            *"carrier: failed "*) dtrun_no "${dtrun_e##*carrier: failed }";;
            *"carrier: taken"*) dtrun_no "python3 has ended: ${dtrun_e##*carrier: taken}";;
            *) dtrun_can=${dtrun_can%,python};;
        esac;
        return 1;
    };
    dtrun_got() {
        if [ "$dtrun_code" ]; then dtrun_carried;
        elif [ "$dtrun_port" ]; then dtrun_fetched && echo dtrun-agent-fetched;
        else
            echo dtrun-agent-send;
            dtrun_e=$({ umask 077; head -c "$dtrun_bytes" >"$dtrun_new"; } 2>&1) ||
            dtrun_no "$dtrun_e";
        fi;
    };
    dtrun_ask " $(dtrun_home "$dtrun_node.$$")"; [ "$dtrun_bytes" ] || dtrun_ask; dtrun_folder;
    until dtrun_got; do rm -f "$dtrun_new"; dtrun_ask; done;
    dtrun_digest=; dtrun_store;
    echo dtrun-agent-stored; "$dtrun_agent" --prepare </dev/null >/dev/null 2>&1;
    [ -z "$dtrun_word" ] || dtrun_run --hand-on "$dtrun_word" 8 $dtrun_option 8<&8;
    dtrun_run $dtrun_option
)sh";

/// What ssh says when it has not got as far as running a command: it then exits with 255.
std::optional<Error> failure_of_ssh(std::string_view ending) {
    constexpr std::string_view kOwnStatus = "exit status 255: ";
    if (!ending.starts_with(kOwnStatus)) return {};
    const std::string_view said = ending.substr(kOwnStatus.size());
    const auto says = [said](std::string_view words) {
        return said.find(words) != std::string_view::npos;
    };
    const auto error = [said](Errc code) { return Error{code, std::string(said)}; };
    if (says(kBooting)) return error(Errc::closed);
    if (says(": Permission denied (") || says("Host key verification failed.") ||
        says("Received disconnect from "))
        return error(Errc::denied);
    if (said.starts_with("ssh: ") || says("\nssh: ")) return error(Errc::unreachable);
    // A server that has too many log-ins, or has had too many of ours. Behind a jump host that refuses us it
    // is said, too, but last.
    if (says("exchange_identification: ") || says("banner exchange: ")) return error(Errc::closed);
    // One that hangs up later does not want this user, if it says anything.
    if (said.starts_with("Connection closed by ") || said.starts_with("Connection reset by "))
        return error(Errc::unreachable);
    if (says("\nConnection closed by ")) return error(Errc::denied);
    return {};
}

/// What the start script, or the agent, says in a line.
std::string_view said_by_agent(std::string_view line) {
    std::size_t begin = line.size();
    // The agent's own has its version behind it.
    for (std::size_t at = line.find(kAgentReady); at < line.size();
         at = line.find(kAgentReady, at + 1)) {
        const char next =
            at + kAgentReady.size() < line.size() ? line[at + kAgentReady.size()] : ' ';
        if (next < '0' || next > '9') continue;
        begin = at;
        break;
    }
    for (const std::string_view marker : {kAgentWanted, kAgentReceives, kAgentComes, kAgentFetched,
                                          kAgentStored, kAgentHandsOn, kAgentSend, kAgentFailed})
        begin = std::min(begin, line.find(marker));
    return line.substr(begin);
}

std::string cut(std::string_view line) {
    if (line.size() <= kSaidBytesMax) return std::string(line);
    const auto inside = [line](std::size_t at) { return (line[at] & 0xc0) == 0x80; };  // of UTF-8
    std::size_t end = kSaidBytesMax;
    while (end > 0 && inside(end)) --end;
    return std::string(line.substr(0, end)) + "…";
}

/// The first line and the last two: what went wrong stands at one of these ends.
std::string in_short(std::string_view said) {
    constexpr std::size_t kLast = 2;
    const auto lines = split(said, '\n');
    std::string text;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const bool shown = i == 0 || i + kLast >= lines.size();
        if (!shown && i > 1) continue;
        if (i > 0) text += '\n';
        text += shown ? cut(trim(lines[i])) : "…";
    }
    return text;
}

}  // namespace

asio::awaitable<Result<void>> send_in_pieces(Channel& channel, std::string_view bytes,
                                             std::chrono::milliseconds patience) {
    while (!bytes.empty()) {
        const std::string_view piece = bytes.substr(0, kPieceBytes);
        const auto done = co_await channel.write(piece, after(patience));
        if (!done) co_return done;
        bytes.remove_prefix(piece.size());
    }
    co_return Result<void>{};
}

std::string remote_agent_command(const AgentFile& agent, const std::string& job,
                                 std::string_view option) {
    const std::string script = fmt::format(
        "dtrun_build={}; dtrun_job={}; dtrun_option={}; {}{}{}{}", agent.build_id, job, option,
        one_line(kFindAgent), one_line(kStoreAgent), kPacking, one_line(kStartScript));
    return "exec /bin/sh -c " + shell_quote(script);
}

std::string remote_sweep_command(const std::vector<std::string>& build_ids, const std::string& job,
                                 std::uint64_t whose) {
    // Several CPUs may share a home, and an agent of another one cannot say what it is.
    const std::string script = fmt::format(
        "{}for dtrun_build in {}; do dtrun_has \"$dtrun_build\" && dtrun_is "
        "\"$dtrun_agent\" \"$dtrun_build\" && dtrun_run --sweep {} {}; done",
        one_line(kFindAgent), fmt::join(build_ids, " "), job, whose);
    return "exec /bin/sh -c " + shell_quote(script);
}

asio::awaitable<Result<std::string>> LineReader::next(Deadline deadline) {
    for (;;) {
        const std::size_t end = buffer_.find('\n');
        if (end != std::string::npos) {
            std::string line = buffer_.substr(0, end);
            buffer_.erase(0, end + 1);
            co_return line;
        }
        if (buffer_.size() > kBytesMax)
            co_return fail(Errc::internal, "the host prints without end");
        std::array<char, 4096> bytes;
        const auto n = co_await channel_.read(bytes, deadline);
        if (!n) co_return std::unexpected(n.error());
        if (*n == 0) co_return std::unexpected(Error{Errc::closed, {}});
        buffer_.append(bytes.data(), *n);
    }
}

Result<void> check_ready(std::string_view line) {
    line.remove_prefix(kAgentReady.size());
    const std::string_view version = line.substr(0, line.find(' '));
    if (version == std::to_string(kProtocolVersion)) return {};
    return fail(
        Errc::internal,
        "its agent speaks protocol {}, and this dtrun {}: dtrun and dtrun-agent here are of "
        "different versions; install both together",
        version, kProtocolVersion);
}

namespace {

constexpr const char* kStartUpFiles =
    ".bashrc, .bash_profile, .profile, .zshenv, .cshrc, config.fish";

/// Why a command has ended without a word of ours.
asio::awaitable<Error> failure_to_start(Channel& channel, std::string last_said) {
    const std::string ending = co_await describe_ending(channel);
    if (auto of_ssh = failure_of_ssh(ending)) co_return std::move(*of_ssh);
    const bool spoke = !last_said.empty() || ending.find(": ") != std::string::npos;
    if (!last_said.empty()) last_said = ": " + cut(last_said);
    Error error{Errc::internal, fmt::format("the agent did not start: {}{}", ending, last_said)};
    if (!spoke && !channel.is_here())
        error.message += fmt::format(
            "; the login shell has ended before: look for exit, set -e or a command that fails in "
            "its start-up files there ({})",
            kStartUpFiles);
    co_return error;
}

const char* copying(const CopySlot& slot) {
    return slot.is_from_host() ? kFetchesCopy : "copying the agent";
}

}  // namespace

asio::awaitable<Result<void>> greet_agent(Channel& channel, LineReader& lines, AgentCopies& copies,
                                          Deadline& deadline, std::chrono::milliseconds patience,
                                          std::function<void(const char*)> phase) {
    constexpr const char* kStarts = "starting the agent";
    const char* doing = kStarts;
    const std::function<void()> waits = [&phase] { phase(kAwaitsCopy); };
    const AgentCopy* copy = nullptr;  // that the host lacks
    HomeTurn turn;
    CopySlot slot;
    std::string last_said;
    for (;;) {
        const auto line = co_await lines.next(deadline);
        if (!lines.unfinished().empty()) last_said = trim(lines.unfinished());
        if (!line && line.error().code == Errc::closed && !line.error().message.empty())
            co_return fail(Errc::unreachable, "{}: the connection has ended: {}", doing,
                           line.error().message);
        if (!line && line.error().code == Errc::closed) {
            Error why = co_await failure_to_start(channel, std::move(last_said));
            co_return std::unexpected(std::move(why));
        }
        const bool is_mute = last_said.empty() && copy == nullptr;
        if (!line && is_mute && !channel.is_here() && line.error().code == Errc::timed_out)
            co_return fail(line.error(),
                           "{} (not a word of its login shell, which may wait in its start-up "
                           "files there, or have become another shell in them: {})",
                           doing, kStartUpFiles);
        if (!line && last_said.empty()) co_return fail(line.error(), "{}", doing);
        if (!line)
            co_return fail(line.error(), "{} ({} has said: {})", doing,
                           channel.is_here() ? "it" : "its login shell", cut(last_said));
        const std::string_view said = said_by_agent(*line);
        // Also in place of kAgentSend: another job may have stored the agent after the host had looked.
        if (said.starts_with(kAgentReady)) {
            turn.stored();
            co_await turn.all_of_it(waits);
            co_return check_ready(said);
        }
        if (said.starts_with(kAgentFailed))
            co_return fail(Errc::internal, "{}", said.substr(kAgentFailed.size()));
        Result<void> sent;
        if (said.starts_with(kAgentWanted)) {
            AgentRequest request = parse_request(said.substr(kAgentWanted.size()));
            request.wants.gzip = request.wants.gzip && !channel.is_near();
            const bool is_known = !channel.address().empty();
            request.fetches = request.fetches && is_known;
            request.carries = request.carries && is_known;
            const auto found = copies.get(request.wants);
            if (!found) co_return std::unexpected(found.error());
            copy = *found;
            std::string answer = copy->build_id + "\n";
            const bool is_ours = co_await turn.wait(copies, request, waits);
            if (is_ours) {
                slot.ask(copies, request, patience);
                const std::string program = slot.program();
                if (program.empty()) co_await slot.wait(waits);
                answer = copy->announcement + (program.empty() ? slot.words() : program);
            }
            phase(doing = is_ours ? copying(slot) : kStarts);
            sent = co_await channel.write(answer, after(patience));
        } else if (said.starts_with(kAgentReceives) && copy != nullptr) {
            const auto port = to_int(said.substr(kAgentReceives.size()), 1, 65'535);
            slot.listens(channel.address(), static_cast<int>(port.value_or(0)));
            co_await slot.wait(waits);
            phase(doing = copying(slot));
            sent = co_await channel.write(slot.words(), after(patience));
        } else if (said == kAgentSend && copy != nullptr) {
            sent = co_await send_in_pieces(channel, copy->bytes, patience);
            if (sent) {
                slot.done();
                phase(doing = kStarts);
            }
        } else if (said == kAgentStored) {
            turn.stored();
        } else if (said == kAgentFetched) {
            slot.done();
            phase(doing = kStarts);
        } else if (said.starts_with(kAgentHandsOn)) {
            const auto port = to_int(said.substr(kAgentHandsOn.size()), 1, 65'535);
            if (port) slot.hands_on(channel.address(), static_cast<int>(*port));
        } else if (said != kAgentComes) {
            last_said = trim(*line);  // what a login shell prints, or why there is none
            continue;
        }
        last_said.clear();
        // If the host gives up half way, its reason stands in what it says, not in our broken pipe.
        if (!sent && sent.error().code != Errc::closed) co_return fail(sent.error(), "{}", doing);
        deadline = after(patience);
    }
}

asio::awaitable<std::string> describe_ending(Channel& channel) {
    const Deadline limit = after(kEndingLimit);
    const std::string ending = co_await channel.ending(limit);
    const std::string errors = channel.take_errors();
    const std::string said = in_short(trim(errors));
    if (said.empty() && ending.empty()) co_return std::string("it said nothing");
    co_return fmt::format("{}{}{}", ending, ending.empty() || said.empty() ? "" : ": ", said);
}

}  // namespace dtrun::transport
