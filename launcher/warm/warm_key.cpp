#include "launcher/warm/warm_key.h"

#include "base/crypto.h"
#include "base/ids.h"

#include <fmt/format.h>
#include <string_view>
#include <vector>

namespace dtrun::warm {
namespace {

/// Words one behind the other, so that no two lists of words are one text.
class WordList {
public:
    void add(std::string_view word) { text_ += fmt::format("{}:{},", word.size(), word); }
    void add(int number) { add(std::to_string(number)); }
    void add(const std::vector<std::string>& words) {
        add(static_cast<int>(words.size()));
        for (const std::string& word : words) add(std::string_view(word));
    }
    const std::string& text() const { return text_; }

private:
    std::string text_;
};

void add_settings(WordList& words, const transport::SshSettings& set) {
    for (const std::string* const word :
         {&set.only_ssh, &set.route, &set.host, &set.user, &set.directory, &set.agent,
          &set.known_as, &set.ciphers, &set.macs, &set.key_exchange, &set.host_key_types,
          &set.key_types})
        words.add(std::string_view(*word));
    for (const auto* const list : {&set.identities, &set.known_hosts, &set.global_known_hosts})
        words.add(*list);
    words.add(set.port);
    words.add(static_cast<int>(set.new_host_keys));
    for (const bool flag : {set.only_identities, set.compression, set.gssapi, set.master})
        words.add(flag ? 1 : 0);
}

}  // namespace

bool LogInWords::is_by_ssh() const {
    return settings == nullptr || !settings->only_ssh.empty() || !options.command.empty();
}

std::string warm_key(const LogInWords& words) {
    WordList list;
    list.add(words.build);
    list.add(words.batch_job);
    list.add(words.host.name);
    list.add(words.host.address);
    list.add(words.host.user);
    list.add(words.host.port);
    list.add(words.host.identity_file);
    list.add(words.options.port);
    list.add(words.options.identity_file);
    list.add(words.options.accept_new_host_keys ? 1 : 0);
    list.add(words.options.command);
    if (words.settings != nullptr) add_settings(list, *words.settings);
    list.add(words.ssh_files);
    return hex(sha256(list.text()));
}

}  // namespace dtrun::warm
