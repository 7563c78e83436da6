#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/client/connect/handshake.h"
#include "worker/client/step/key.h"

#include <algorithm>

namespace dtrun::embedded {
namespace {

/// The key of a step whose secret is in a file.
StepKey key_of(const std::string& id, const std::string& cluster = "c") {
    const TempDir dir;
    SlurmStep step;
    step.cluster = cluster;
    step.id = id;
    step.secret_file = dir.write("secret", "0123456789abcdef0123456789abcdef", 0600);
    return StepKey::find(step).value();
}

std::string text_of(const ClientCredentials& credentials) {
    return hex(credentials.job) + hex(credentials.secret.bytes());
}

}  // namespace

TEST_CASE("the ports of a step follow from its name", "[client][step]") {
    CHECK(key_of("17.0").ports() == key_of("17.0").ports());
    CHECK(key_of("17.0").ports() != key_of("17.1").ports());
    CHECK(key_of("17.0").ports() != key_of("17.0", "other").ports());
    for (int job = 0; job < 100; ++job) {
        const StepKey key = key_of(std::to_string(job) + ".0");
        for (const std::uint16_t port : key.ports()) CHECK((port >= 20'000 && port < 32'000));
    }
}

TEST_CASE("what is proved is bound to the step, the node and the port", "[client][step]") {
    const StepKey key = key_of("17.0");
    const std::string here = text_of(key.credentials_at({"n1", 20'000}));
    CHECK(here != text_of(key.credentials_at({"n2", 20'000})));
    CHECK(here != text_of(key.credentials_at({"n1", 20'001})));
    CHECK(here != text_of(key_of("17.1").credentials_at({"n1", 20'000})));
}

TEST_CASE("a greeting says how long the credential behind it is", "[client][step]") {
    const std::string greeting = key_of("17.0").make_greeting().value();
    CHECK(greeting.size() == StepKey::kGreetingBytes);
    CHECK(StepKey::credential_bytes(greeting).value() == 0);
    std::string other = greeting;
    other[6] = '\x10';  // 4,096
    CHECK(StepKey::credential_bytes(other).value() == StepKey::kCredentialBytesMax);
    other[7] = '\x01';
    CHECK_FALSE(StepKey::credential_bytes(other).has_value());
    other = greeting;
    other[5] = '\x7f';  // a later version, which speaks ours
    CHECK(StepKey::credential_bytes(other).has_value());
    other[5] = '\x01';
    CHECK_THAT(StepKey::credential_bytes(other).error().text, Catch::Contains("another version"));
    CHECK_FALSE(StepKey::credential_bytes("HTTP/1.1").has_value());
}

TEST_CASE("ranks with and without a secret's file do not go together", "[client][step]") {
    StepKey key = key_of("17.0");
    CHECK(key.take_credential("").has_value());
    CHECK_THAT(key.take_credential("MUNGE:…").error().text,
               Catch::Contains("it has no DTRUN_SECRET_FILE, and we have"));
}

}  // namespace dtrun::embedded
