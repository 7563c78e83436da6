// What dtrun reads in ssh's configuration, beside what ssh says of it: `ssh -G`.
#include "launcher/transport/ssh_config.h"

#include "base/process/command_output.h"
#include "base/strings.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

#include <pwd.h>
#include <unistd.h>
#include <filesystem>
#include <map>

namespace dtrun {

using namespace transport;
namespace {

using Lines = std::vector<std::string>;
using Catch::Contains;

SshUser me() {
    const passwd* const entry = ::getpwuid(::getuid());
    REQUIRE(entry != nullptr);
    return {entry->pw_uid, entry->pw_name, entry->pw_dir};
}

Host named(const std::string& name) {
    Host host;
    host.name = name;
    return host;
}

SshSettings settings(const std::string& text, const std::string& name = "s1",
                     const SshOptions& options = {}) {
    const TempDir dir;
    return SshConfig(me(), {dir.write("config", text)}).find(named(name), options);
}

/// "~" and "%d" in one of ssh's paths, which it shows as they were written.
std::string whole(std::string path) {
    if (path.starts_with("~/")) path.replace(0, 1, me().home);
    if (const auto at = path.find("%d"); at != std::string::npos) path.replace(at, 2, me().home);
    return path;
}

/// What `ssh -G` says of a host; nothing if it refuses the file.
std::optional<std::multimap<std::string, std::string>> by_ssh(const std::string& file,
                                                              const std::string& name) {
    const auto said = command_output({"ssh", "-T", "-G", "-F", file, name}, Captured::out_alone);
    REQUIRE(said.has_value());
    if (said->status != 0) return {};
    std::multimap<std::string, std::string> found;
    for (const std::string_view line : split(said->text, '\n')) {
        const std::size_t blank = std::min(line.size(), line.find(' '));
        found.emplace(line.substr(0, blank), line.substr(std::min(line.size(), blank + 1)));
    }
    return found;
}

std::string first(const std::multimap<std::string, std::string>& said, const std::string& keyword) {
    const auto found = said.find(keyword);
    return found == said.end() ? "" : found->second;
}

Lines paths(const std::multimap<std::string, std::string>& said, const std::string& keyword) {
    Lines found;
    const auto [begin, end] = said.equal_range(keyword);
    for (auto at = begin; at != end; ++at) {
        if (keyword == "identityfile") found.push_back(whole(at->second));
        if (keyword == "identityfile") continue;
        for (const std::string_view path : split(at->second, ' '))
            found.push_back(whole(std::string(path)));
    }
    return found;
}

const char* strictness(NewHostKeys keys) {
    if (keys == NewHostKeys::refused) return "ask";
    return keys == NewHostKeys::accepted ? "accept-new" : "false";
}

/// Fails where dtrun would not do as ssh does.
void compare(const std::string& text, const std::string& name) {
    INFO(text << "\nhost " << name);
    const TempDir dir;
    const std::string file = dir.write("config", text);
    const SshSettings found = SshConfig(me(), {file}).find(named(name), {});
    const auto said = by_ssh(file, name);
    if (!said) CHECK(found.only_ssh != "");
    if (!said || !found.only_ssh.empty()) return;
    CHECK(first(*said, "proxyjump") == "");
    CHECK(first(*said, "proxycommand") == "");
    CHECK(found.host == first(*said, "hostname"));
    CHECK(found.user == first(*said, "user"));
    CHECK(std::to_string(found.port) == first(*said, "port"));
    if (!found.identities.empty()) CHECK(found.identities == paths(*said, "identityfile"));
    CHECK(found.known_hosts == paths(*said, "userknownhostsfile"));
    CHECK(found.global_known_hosts == paths(*said, "globalknownhostsfile"));
    CHECK(found.known_as == first(*said, "hostkeyalias"));
    const std::string strict = first(*said, "stricthostkeychecking");
    CHECK(strictness(found.new_host_keys) == (strict == "true" ? "ask" : strict));
    CHECK(found.only_identities == (first(*said, "identitiesonly") == "yes"));
}

/// Configurations that dtrun obeys by itself for s1.
const Lines kObeyed{
    "",
    "# mine\n\nHost s1\n  User bob\n  Port 2222\n  HostName node1.Cluster\n",
    "User=bob\nport = 2222\n\tHostName\t\"%h.cluster\"\nUser alice\n",
    "Host *\n  User late\nHost s1\n  User bob\n",
    "Host s1 !s?\n  User bob\nHost s? !s2 other\n  Port 99\nHost s2\n Port 7\n",
    "Match host s1,s3 user *\n  User bob\nMatch host \"s2\"\n  User carl\nMatch all\n  Port 5\n",
    "HostName real\nMatch host s1\n  User wrong\nMatch host real\n  User right\n",
    "Match originalhost s1\n  User dtuser\nMatch !originalhost s1\n Port 9\n",
    "Match user bob\n  Port 9\nHost s1\n  User bob\nMatch user bob\n  Port 10\n",
    "Match host=s1\n  Port=9\n",
    "IdentityFile ~/.ssh/one\nIdentityFile \"/with blank/two\"\nIdentityFile %d/three\n",
    "Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
    "StrictHostKeyChecking accept-new\nStrictHostKeyChecking no\n",
    "StrictHostKeyChecking yes\nUserKnownHostsFile ~/.ssh/a /b\nGlobalKnownHostsFile /c /d\n",
    "HostKeyAlias real-s1\nIdentitiesOnly yes\n",
    "Host s1\n ProxyJump none\nHost *\n ProxyJump gate\n",
    "Host s2\n ProxyCommand nc %h %p\n HostKeyAlias x\n CertificateFile y\n",
    "IgnoreUnknown UseKeychain,Foo*\nUseKeychain yes\nfoobar 1\n",
    "Match exec \"true\" host s2\n User bob\n",
    "Match exec false originalhost other\n User bob\n",
    "User bob # a comment\nPort 77\f \n",
    "CanonicalizeHostname no\nAddressFamily any\nForwardAgent yes\nLocalForward 1 localhost:2\n",
    "Match canonical\n User nobody\nHost s1\n User dtuser\n",
    "Match final all\n User late\nHost s1\n User bob\n",
    "Match final all\n User late\nHost s1\n HostName real\nHost real\n Port 9\n",
    "Host s1\n HostName node1\nHost node1\n User bob\nMatch final host other\n Port 9\n",
    "Match host other final\n Port 9\nHost s1\n HostName node1\nHost node1\n User bob\n",
    "Match !final all\n Port 9\nMatch final host s1\n User bob\n IdentityFile /a\n",
    "Ciphers aes256-ctr\nMACs hmac-sha2-256\nCompression yes\nPreferredAuthentications "
    "publickey,password\n",
    "Host other\n Nonsense yes\nHost s1\n User bob\n" /* ssh is stricter, and says so */,
};

/// Those that only ssh can, and what of it is told.
const std::vector<std::pair<const char*, const char*>> kOnlySsh{
    {"Host s1\n ProxyJump gate\n", "proxyjump gate"},
    {"ProxyCommand nc %h %p\n", "proxycommand nc %h %p"},
    {"Match exec \"test -e /\"\n User bob\n", "match exec"},
    {"Match originalhost s2,\"s1\"\n User bob\n", "match with quotes"},
    {"Host other\n\"Host\" s1\n User bob\n", "a keyword in quotes"},
    {"Match localnetwork 10.0.0.0/8\n User bob\n", "match localnetwork"},
    {"Match tagged x\n User bob\n", "match tagged"},
    {"HostName s1\nBindAddress 10.0.0.1\n", "bindaddress"},
    {"CanonicalizeHostname yes\n", "canonicalizehostname"},
    {"CertificateFile ~/.ssh/x-cert.pub\n", "certificatefile"},
    {"HostbasedAuthentication yes\n", "hostbasedauthentication"},
    {"KnownHostsCommand /usr/bin/keys %H\n", "knownhostscommand"},
    {"IdentityFile ${HOME}/.ssh/key\n", "${HOME}/.ssh/key"},
    {"IdentityFile ~/%l\n", "%l"},
    {"UserKnownHostsFile ~/.ssh/%C\n", "%C"},
    {"PKCS11Provider /usr/lib/p.so\n", "pkcs11provider"},
    {"PubkeyAuthentication no\n", "pubkeyauthentication"},
    {"PreferredAuthentications keyboard-interactive\n", "preferredauthentications"},
    {"RevokedHostKeys /etc/ssh/revoked\n", "revokedhostkeys"},
    {"HostKeyAlgorithms -ssh-rsa*\n", "hostkeyalgorithms"},
    {"Match user bob host\n Port 9\n", "without a value"},
    {"Nonsense yes\n", "nonsense"},
    {"Port many\n", "port many"},
    {"User \"bob\n", "quote"},
    {"User\n", "without a value"},
};

}  // namespace

TEST_CASE("what ssh's configuration says of a host is what ssh makes of it", "[ssh_config]") {
    if (!command_output({"ssh", "-V"}, Captured::both)) return skip_case("there is no ssh");
    for (const std::string& text : kObeyed) {
        INFO(text);
        CHECK(settings(text).only_ssh == "");
        for (const char* const name : {"s1", "s2", "other", "S1"}) {
            if (text.find("Nonsense") == std::string::npos) compare(text, name);
        }
    }
    std::string longest = "Host s1";
    for (int i = 1; i <= 300; ++i) longest += fmt::format(" n{:04}", i);
    for (const char* const name : {"s1", "n0300", "n0301"})
        compare(longest + "\n User dtuser\n", name);
    for (const auto& [text, why] : kOnlySsh) compare(text, "s1");
}

TEST_CASE("what dtrun's own log-in cannot do is ssh's, and is told with its place",
          "[ssh_config]") {
    for (const auto& [text, why] : kOnlySsh) {
        INFO(text);
        CHECK_THAT(settings(text).only_ssh, Contains(why));
    }
    CHECK_THAT(settings("\nHost s?\n  ProxyJump gate\n").only_ssh, Contains("/config:3)"));
    CHECK(settings("\nHost s?\n  ProxyJump gate\n").route == "gate");
    CHECK(settings("Host s1\n  ProxyJump gate\n", "s2").only_ssh == "");
    const TempDir dir;
    const std::string file = dir.write("config", "IdentityFile " + dir.at("key") + "\n");
    const SshConfig config(me(), {file});
    CHECK(config.find(named("s1"), {}).only_ssh == "");
    dir.write("key-cert.pub", "");
    CHECK_THAT(config.find(named("s1"), {}).only_ssh, Contains("certificate"));
}

TEST_CASE("what is included counts where it is included", "[ssh_config]") {
    const TempDir dir;
    dir.write("of-1", "User one\nHost s2\n  Port 2\n");
    dir.write("of-2", "Host *\n  Port 22222\n");
    const std::string file =
        dir.write("config", fmt::format("Host s3\nInclude {0}/of-*\nPort 3\nHost s1\nInclude "
                                        "{0}/of-1 {0}/none\nHost *\nPort 4\n",
                                        dir.path()));
    const SshConfig config(me(), {file});
    for (const char* const name : {"s1", "s2", "s3"}) {
        INFO(name);
        const auto said = by_ssh(file, name);
        REQUIRE(said);
        const SshSettings found = config.find(named(name), {});
        CHECK(found.user == first(*said, "user"));
        CHECK(std::to_string(found.port) == first(*said, "port"));
    }
    CHECK(config.find(named("s1"), {}).user == "one");
    dir.write("of-1", "Include " + file + "\n");
    const SshConfig loop(me(), {file});
    CHECK_THAT(loop.find(named("s1"), {}).only_ssh, Contains("include"));
}

TEST_CASE("a configuration that others could have written is ssh's to refuse", "[ssh_config]") {
    const TempDir dir;
    const SshConfig config(me(), {dir.write("config", "User bob\n", 0666)});
    CHECK_THAT(config.find(named("s1"), {}).only_ssh, Contains("owner or mode"));
}

TEST_CASE("what the command line says of a host wins over ssh's configuration", "[ssh_config]") {
    SshOptions options;
    options.port = 7;
    options.identity_file = "/mine";
    options.accept_new_host_keys = true;
    const char* const text = "User bob\nPort 9\nIdentityFile /other\nStrictHostKeyChecking yes\n";
    const SshSettings found = settings(text, "s1", options);
    CHECK(found.port == 7);
    CHECK(found.identities == Lines{"/mine", "/other"});
    CHECK(found.new_host_keys == NewHostKeys::accepted);
    const TempDir dir;
    Host host = named("s1");
    host.user = "carl";
    host.port = 8;
    const SshSettings of_host = SshConfig(me(), {dir.write("config", text)}).find(host, options);
    CHECK(of_host.user == "carl");
    CHECK(of_host.port == 8);
}

TEST_CASE("the digest of ssh's configuration is another one if any file of it says something else",
          "[ssh_config]") {
    const TempDir dir;
    const std::string main = dir.write("config", "Include " + dir.path() + "/more/*\nPort 2222\n");
    std::filesystem::create_directory(dir.path() + "/more");
    const auto digest = [&] { return SshConfig(me(), {main}).digest(); };
    const std::string alone = digest();
    CHECK(digest() == alone);
    dir.write("more/a", "# nothing\n");
    const std::string with_more = digest();
    CHECK(with_more != alone);
    dir.write("more/a", "Host s1\n  ProxyJump gate\n");
    const std::string by_gate = digest();
    CHECK(by_gate != with_more);
    dir.write("more/a", "Host s1\n  ProxyJump door\n");  // as long as before
    CHECK(digest() != by_gate);
    dir.write("more/a", "Host s1\n  ProxyJump gate\n");
    CHECK(digest() == by_gate);
}

}  // namespace dtrun
