#include "launcher/transport/ssh_settings.h"

#include "base/strings.h"
#include "launcher/transport/ssh_keywords.h"
#include "launcher/transport/ssh_patterns.h"

#include <unistd.h>
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace dtrun::transport {
namespace {

using std::string_view;
using Words = std::vector<std::string>;

/// Keywords whose value is "yes" or "no".
constexpr std::pair<string_view, bool SshSettings::*> kFlags[] = {
    {"compression", &SshSettings::compression},
    {"gssapiauthentication", &SshSettings::gssapi},
    {"identitiesonly", &SshSettings::only_identities},
};
/// Keywords whose value is a list of algorithms.
constexpr std::pair<string_view, std::string SshSettings::*> kAlgorithms[] = {
    {"ciphers", &SshSettings::ciphers},
    {"hostkeyalgorithms", &SshSettings::host_key_types},
    {"kexalgorithms", &SshSettings::key_exchange},
    {"macs", &SshSettings::macs},
    {"pubkeyacceptedalgorithms", &SshSettings::key_types},
    {"pubkeyacceptedkeytypes", &SshSettings::key_types},
};

std::optional<bool> yes_or_no(string_view text) {
    const std::string word = lower(text);
    if (word == "yes" || word == "true") return true;
    if (word == "no" || word == "false") return false;
    return {};
}

bool is_none(string_view text) {
    return lower(text) == "none";
}

/// Goes through the lines as ssh does: of most keywords the first value counts.
class Lookup {
public:
    Lookup(const SshUser& user, const Host& host, const SshOptions& options) : user_(user) {
        name_ = called_ = host.name;
        set_.user = host.user;
        set_.port = host.port != 0 ? host.port : options.port;
        const std::string& key =
            host.identity_file.empty() ? options.identity_file : host.identity_file;
        if (!key.empty()) set_.identities.push_back(key);
        if (options.accept_new_host_keys) set_.new_host_keys = NewHostKeys::accepted;
        if (!set_.user.empty()) seen_.insert("user");
        if (set_.port != 0) seen_.insert("port");
        if (options.accept_new_host_keys) seen_.insert("stricthostkeychecking");
    }

    SshSettings read(const std::vector<SshLine>& lines) {
        pass(lines);
        if (wants_final_) {  // ssh then reads all of it again, for the host that it has found
            hostname_ = called_ = lower(target());
            seen_.insert("hostname");
            is_final_ = active_ = true;
            pass(lines);
        }
        finish();
        return std::move(set_);
    }

private:
    using Kind = SshLine::Kind;

    void pass(const std::vector<SshLine>& lines) {
        for (const SshLine& line : lines) {
            const std::string reason = take(line);
            if (!reason.empty() && set_.only_ssh.empty())
                set_.only_ssh = fmt::format("{} ({})", reason, line.place);
        }
    }

    /// \return why only ssh can obey the line, or nothing
    std::string take(const SshLine& line) {
        if (line.kind == Kind::file) {
            outer_.push_back(active_);
            return {};
        }
        if (line.kind == Kind::end_of_file) {
            active_ = outer_.back();
            outer_.pop_back();
            return {};
        }
        // A file that is included where nothing is meant for the host cannot change that.
        const bool reachable = outer_.empty() || outer_.back();
        const bool is_head = line.keyword == "host" || line.keyword == "match";
        if (is_head) active_ = false;
        if (line.keyword == "match" && !reachable)
            match(line.rest);  // it may ask for a second pass
        if (is_head && !reachable) active_ = false;
        if (is_head ? !reachable : !active_) return {};
        if (!line.mistake.empty()) return line.mistake;
        if (line.keyword == "match") return match(line.rest);
        if (line.keyword == "host") {
            active_ = is_for_host(*words_of(line.rest));
            return {};
        }
        if (line.keyword == "include") return {};
        return setting(line);
    }

    std::string setting(const SshLine& line) {
        const auto known = std::ranges::find(kKeywords, line.keyword, &Keyword::name);
        if (known == kKeywords.end())
            return matches_any(lower(ignored_), line.keyword) ? "" : line.keyword;
        if (known->meaning == Meaning::nothing) return {};
        const auto words = words_of(line.rest);
        if (words->empty()) return line.keyword + " without a value";
        if (known->meaning == Meaning::obeyed) {
            const std::string reason = apply(line, *words);
            return reason.empty() ? reason : fmt::format("{} {}", line.keyword, reason);
        }
        // The first value counts, but of certificates all.
        if (line.keyword != "certificatefile" && !seen_.insert(line.keyword).second) return {};
        const bool harmless =
            !known->harmless.empty() && matches_any(known->harmless, lower(words->front()));
        return harmless ? "" : line.keyword;
    }

    bool is_for_host(const Words& patterns) const {
        bool found = false;
        for (const string_view pattern : patterns) {
            const bool negated = pattern.starts_with('!');
            if (!matches(pattern.substr(negated ? 1 : 0), called_)) continue;
            if (negated) return false;
            found = true;
        }
        return found;
    }

    /// Sets active_. \return why only ssh can tell
    std::string match(string_view rest) {
        rest = without_blanks(rest);
        // Quotes around whole values are all that is understood here.
        if (has_odd_quotes(rest)) return "match with quotes";
        bool all = !rest.empty();
        std::string reason;
        bool first = true;
        while (!rest.empty() && rest.front() != '#') {
            std::string criterion = take_keyword(rest);
            const bool negated = criterion.starts_with('!');
            if (negated) criterion.erase(0, 1);
            if (criterion == "canonical" || criterion == "final") {
                wants_final_ = wants_final_ || criterion == "final";
                all = all && is_final_ != negated;
                continue;
            }
            if (criterion == "all") {
                all = all && first && !negated;
                continue;
            }
            first = false;
            const std::string value = take_value(rest);
            if (value.empty()) return fmt::format("match {} without a value", criterion);
            const auto fits = fits_criterion(criterion, value);
            if (!fits)
                reason = "match " + criterion;
            else
                all = all && *fits != negated;
        }
        // Where something else keeps it from applying, the rest does not matter.
        if (!all) return {};
        active_ = reason.empty();
        return reason;
    }

    static bool has_odd_quotes(string_view rest) {
        bool inside = false;
        for (std::size_t i = 0; i < rest.size(); ++i) {
            if (rest[i] == '\\' || rest[i] == '\'') return true;
            if (rest[i] != '"') continue;
            const string_view edges = " \t=";
            const char beside =
                inside ? (i + 1 < rest.size() ? rest[i + 1] : ' ') : (i > 0 ? rest[i - 1] : ' ');
            if (edges.find(beside) == string_view::npos) return true;
            inside = !inside;
        }
        return inside;
    }

    static std::string take_value(string_view& rest) {
        std::string value;
        if (rest.starts_with('"')) {
            const std::size_t end = std::min(rest.size(), rest.find('"', 1));
            value = rest.substr(1, end - 1);
            rest.remove_prefix(std::min(rest.size(), end + 1));
        } else {
            const std::size_t end = std::min(rest.size(), rest.find_first_of(kSshBlanks));
            value = rest.substr(0, end);
            rest.remove_prefix(end);
        }
        rest = without_blanks(rest);
        return value;
    }

    /// Nothing: it cannot be told here.
    std::optional<bool> fits_criterion(string_view criterion, const std::string& value) const {
        if (criterion == "host") return matches_any(lower(value), lower(target()));
        if (criterion == "originalhost") return matches_any(lower(value), lower(name_));
        if (criterion == "user")
            return matches_any(value, set_.user.empty() ? user_.name : set_.user);
        if (criterion == "localuser") return matches_any(value, user_.name);
        return {};
    }

    /// The host's name with HostName obeyed as far as it is known by now.
    std::string target() const {
        if (hostname_.empty()) return name_;
        return expanded(hostname_, "h").value_or(name_);
    }

    /// Obeys one line. \return what about it only ssh can do
    std::string apply(const SshLine& line, const Words& words) {
        const std::string& keyword = line.keyword;
        const std::string& value = words.front();
        if (keyword == "identityfile") {
            if (is_none(value)) return "none";
            if (std::ranges::find(set_.identities, value) == set_.identities.end())
                set_.identities.push_back(value);
            return {};
        }
        // Either counts, whichever comes first, and the whole line is its value.
        const bool is_proxy = keyword == "proxyjump" || keyword == "proxycommand";
        const std::string slot = is_proxy                              ? "proxyjump"
                                 : keyword == "pubkeyacceptedkeytypes" ? "pubkeyacceptedalgorithms"
                                                                       : keyword;
        if (!seen_.insert(slot).second) return {};
        if (is_proxy) {
            if (is_none(trim(line.rest))) return {};
            set_.route = trim(line.rest);
            return set_.route;
        }
        if (keyword == "userknownhostsfile") return set_files(set_.known_hosts, words);
        if (keyword == "globalknownhostsfile") return set_files(set_.global_known_hosts, words);
        if (words.size() > 1) return "with several values";
        return apply_value(keyword, value);
    }

    std::string apply_value(string_view keyword, const std::string& value) {
        for (const auto& [name, flag] : kFlags) {
            if (name != keyword) continue;
            const auto said = yes_or_no(value);
            set_.*flag = said.value_or(false);
            return said ? "" : value;
        }
        for (const auto& [name, algorithms] : kAlgorithms) {
            if (name != keyword) continue;
            set_.*algorithms = value;  // libssh does not know patterns
            return value.find_first_of("*?") == std::string::npos ? "" : value;
        }
        if (keyword == "hostname") {
            hostname_ = value;
        } else if (keyword == "user") {
            set_.user = value;
            return value.find_first_of("%$") == std::string::npos ? "" : value;
        } else if (keyword == "port") {
            const auto port = to_int(value, 1, 65'535);
            if (!port) return value;
            set_.port = static_cast<int>(*port);
        } else if (keyword == "identityagent") {
            if (value != "SSH_AUTH_SOCK") set_.agent = value;
        } else if (keyword == "hostkeyalias") {
            set_.known_as = value;
        } else if (keyword == "stricthostkeychecking") {
            return set_strictness(lower(value));
        } else if (keyword == "controlpath") {
            set_.master = !is_none(value);
            control_path_ = value;
        } else if (keyword == "ignoreunknown") {
            ignored_ = value;
        } else if (keyword == "preferredauthentications") {
            return matches_any(value, "publickey") ? "" : value;
        }
        return {};
    }

    std::string set_strictness(string_view value) {
        if (value == "yes" || value == "true" || value == "ask") return {};
        if (value == "accept-new")
            set_.new_host_keys = NewHostKeys::accepted;
        else if (value == "no" || value == "off" || value == "false")
            set_.new_host_keys = NewHostKeys::anything;
        else
            return std::string(value);
        return {};
    }

    static std::string set_files(std::vector<std::string>& files, const Words& words) {
        files = words;
        if (words.size() > 1 || !is_none(words.front())) return {};
        files = {"/dev/null"};
        return {};
    }

    /// What stands for other words is replaced, and what nobody has said gets its default.
    void finish() {
        set_.host = lower(target());
        set_.has_other_name = set_.host != lower(name_);
        if (!hostname_.empty() && !expanded(hostname_, "h")) cannot("HostName " + hostname_);
        if (set_.user.empty()) set_.user = user_.name;
        if (set_.port == 0) set_.port = 22;
        set_.directory = user_.home + "/.ssh";
        if (!seen_.contains("userknownhostsfile"))
            set_.known_hosts = {"~/.ssh/known_hosts", "~/.ssh/known_hosts2"};
        if (!seen_.contains("globalknownhostsfile"))
            set_.global_known_hosts = {"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"};
        for (std::string& file : set_.identities) expand_path(file);
        for (std::string& file : set_.known_hosts) expand_path(file);
        if (!set_.agent.empty() && !is_none(set_.agent)) expand_path(set_.agent);
        if (set_.master) set_.master = may_be_there(control_path_);
        look_for_certificates();
    }

    /// Whether a socket is there, as far as its path can be told here.
    bool may_be_there(std::string path) const {
        if (path.starts_with("~/")) path.replace(0, 1, user_.home);
        const auto whole = expanded(path, "dhinpru");
        return !whole || whole->find('$') != std::string::npos ||
               ::access(whole->c_str(), F_OK) == 0;
    }

    void cannot(std::string reason) {
        if (set_.only_ssh.empty()) set_.only_ssh = std::move(reason);
    }

    void expand_path(std::string& path) {
        if (path.starts_with("~/")) path.replace(0, 1, user_.home);
        const auto whole = expanded(path, "dhinpru");
        if (path.starts_with('~') || path.find('$') != std::string::npos || !whole)
            return cannot(path);
        path = *whole;
    }

    /// \param known  the letters that may stand behind '%'
    /// \return nothing if another one does
    std::optional<std::string> expanded(string_view text, string_view known) const {
        std::string result;
        for (std::size_t i = 0; i < text.size(); ++i) {
            if (text[i] != '%') {
                result += text[i];
                continue;
            }
            const char letter = ++i < text.size() ? text[i] : '\0';
            if (letter != '%' && known.find(letter) == string_view::npos) return {};
            result += meaning_of(letter);
        }
        return result;
    }

    std::string meaning_of(char letter) const {
        switch (letter) {
            case 'd':
                return user_.home;
            case 'h':  // in HostName: as the user has written it
                return set_.host.empty() ? name_ : set_.host;
            case 'i':
                return std::to_string(user_.id);
            case 'n':
                return name_;
            case 'p':
                return std::to_string(set_.port);
            case 'r':
                return set_.user;
            case 'u':
                return user_.name;
            default:
                return "%";
        }
    }

    void look_for_certificates() {
        std::vector<std::string> keys = set_.identities;
        if (keys.empty())
            for (const char* const kind : {"rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk"})
                keys.push_back(fmt::format("{}/.ssh/id_{}", user_.home, kind));
        for (const std::string& key : keys) {
            const std::string certificate = key + "-cert.pub";
            if (::access(certificate.c_str(), R_OK) == 0)
                return cannot("the certificate " + certificate);
        }
    }

    const SshUser& user_;
    std::string name_;    ///< as the user has written it
    std::string called_;  ///< to which Host is compared
    bool is_final_ = false, wants_final_ = false;
    SshSettings set_;
    std::string hostname_, ignored_, control_path_;
    std::set<std::string> seen_;
    bool active_ = true;
    std::vector<bool> outer_;  ///< active_ at the begin of each file
};

}  // namespace

SshSettings settings_for(const Host& host, const SshOptions& options, const SshUser& user,
                         const std::vector<SshLine>& lines) {
    return Lookup(user, host, options).read(lines);
}

}  // namespace dtrun::transport
